"""`bcrl example ev-charging`: the whole way, going on after a stop, and refusals."""

import functools
from pathlib import Path

import pytest

from bcrl.cli import main
from bcrl.estimates import Estimates, fit_model
from bcrl.examples import ev_charging


def example(*words: str) -> None:
    main(["example", "ev-charging", *words])


@pytest.mark.slow
def test_the_whole_way_and_again(
    street: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"hidden": "16,16", "batch-size": "64"}
    monkeypatch.setattr(ev_charging, "TRAINING", ev_charging.TRAINING | small)
    monkeypatch.setattr(
        "bcrl.estimates.fit_model", functools.partial(fit_model, members=2, hidden=(8, 8), steps=20)
    )
    out = tmp_path / "out"
    words = ["--out", str(out), "--wheel", str(street), "--steps", "40", "--budgets", "0.5,2"]
    example(*words)
    printed = capsys.readouterr().out
    tables = printed[printed.index("spring 2020") : printed.index("$ bcrl report")]
    assert max(map(len, tables.splitlines())) <= 80
    assert "CC BY 4.0" in printed
    assert "made by stated rules" in printed
    assert "$ bcrl data import" in printed
    for period in ("2020", "2021"):
        assert (out / f"comparison-{period}.csv").read_text().count("\n") == 3
        assert (out / f"energy-{period}.png").stat().st_size > 10_000
    assert [row.threshold for row in Estimates.load(out / "estimates.csv")] == [0.5, 2.0]
    assert "ev-charging 2021" in (out / "truth-2021.csv").read_text()
    (out / "report.html").unlink()
    before = (out / "truth-2021.csv").stat().st_mtime_ns
    example(*words)  # goes on: only the page is made anew
    assert (out / "report.html").is_file()
    assert (out / "truth-2021.csv").stat().st_mtime_ns == before
    assert "$ bcrl train" not in capsys.readouterr().out


def test_folders_of_others_and_other_options_are_refused(
    street: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    settings = ev_charging.Settings((1.0,), 10, 0, 0)
    ev_charging.claim(tmp_path / "begun", settings)
    ev_charging.claim(tmp_path / "begun", settings)
    for words, said in (
        (["--out", str(tmp_path / "mine")], "holds other files, such as thesis.txt"),
        (["--out", str(tmp_path / "begun"), "--seed", "1"], "was made with other options"),
        (["--budgets", "0,1"], "must be numbers between 0 and 100 kg"),
        (["--budgets", "1,1"], "one number is there twice"),
        (["--steps", "0"], "--steps is 0, but must be 1 or more"),
    ):
        with pytest.raises(SystemExit) as stop:
            example("--wheel", str(street), *words)
        assert stop.value.code == 2
        assert said in capsys.readouterr().err


def test_the_page_shows_the_options_of_the_training() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "ev-charging.md").read_text(encoding="utf-8")
    for name, value in ev_charging.TRAINING.items():
        assert f"--{name} {value}" in page
