"""The folder of compiled programs: whose it is, and that it does not grow without end."""

import os

from bcrl.cli import compiled
from bcrl.cli.compiled import keep_compiled_programs


def test_a_folder_of_the_user_stays(monkeypatch, tmp_path):
    monkeypatch.setenv("BCRL_CACHE", str(tmp_path / "kept"))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "mine")
    keep_compiled_programs()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "mine"
    assert not (tmp_path / "kept").exists()


def test_programs_are_kept_in_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("BCRL_CACHE", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    keep_compiled_programs()
    named = os.environ["JAX_COMPILATION_CACHE_DIR"]
    assert named.startswith(str(tmp_path / "compiled"))
    assert os.path.isdir(named)


def test_where_nothing_can_be_written_nothing_is_kept(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BCRL_CACHE", str(tmp_path / "file"))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    keep_compiled_programs()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_the_oldest_go_first(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "LARGEST", 100)
    monkeypatch.setenv("BCRL_CACHE", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    keep_compiled_programs()
    folder = next((tmp_path / "compiled").iterdir())
    for age in range(6):
        (folder / f"program-{age}").write_bytes(bytes(20))
        os.utime(folder / f"program-{age}", (1e9 - age, 1e9 - age))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    keep_compiled_programs()
    assert {path.name for path in folder.iterdir()} == {"program-0", "program-1"}
