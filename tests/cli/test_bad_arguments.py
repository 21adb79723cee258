"""Bad command lines: exit status 2 and one line that says what is wrong, no traceback."""

import shlex
from pathlib import Path

import pytest

from bcrl.cli import main

SMALL = "--hidden 8 --batch-size 8 --steps 5 --log-every 5"

# name -> (words, what the line must say). LOG, RUN, POLICY, EMPTY, FILE, NEW stand for paths.
BAD = {
    "unknown verb": ("learn LOG", ["no verb 'learn", "train", "evaluate"]),
    "half a verb": ("data", ["data info"]),
    "unknown option": ("train --data LOG --out NEW --colour red", ["colour"]),
    "no data": ("train --out NEW", ["--data"]),
    "no out": ("train --data LOG", ["--out"]),
    "data missing": (f"train --data none.npz --out NEW {SMALL}", ["none.npz", "no such file"]),
    "data is a policy": (f"train --data POLICY --out NEW {SMALL}", ["POLICY", "suffix"]),
    "unknown method": (
        "train --data LOG --out NEW --method cpo",
        ["'cpo'; did you mean cpq?", "bc-all, bc-safe"],
    ),
    "unknown preset": ("train --data LOG --out NEW --preset gpu", ["--preset gpu", "paper, cpu"]),
    "unknown family": ("train --data LOG --out NEW --family mujoco", ["--family mujoco", "bullet"]),
    "seeds are words": (f"train --data LOG --out NEW {SMALL} --seeds a,b", ["--seeds is 'a,b'", "0,10,20"]),
    "half a seed": (f"train --data LOG --out NEW {SMALL} --seeds 1.5", ["--seeds", "whole numbers"]),
    "no seed": (f"train --data LOG --out NEW {SMALL} --seeds ''", ["--seeds", "whole numbers"]),
    "negative seed": (f"train --data LOG --out NEW {SMALL} --seeds=-1", ["seeds", "from 0 up"]),
    "seed twice": (f"train --data LOG --out NEW {SMALL} --seeds 1,1", ["seeds are (1, 1)", "different"]),
    "seed too large": (f"train --data LOG --out NEW {SMALL} --seeds 4294967296", ["seeds"]),
    "no steps": (f"train --data LOG --out NEW {SMALL} --steps 0", ["steps is 0"]),
    "steps are a word": (f"train --data LOG --out NEW {SMALL} --steps many", ["steps", "many"]),
    "log never": (f"train --data LOG --out NEW {SMALL} --log-every 0", ["log_every is 0"]),
    "tau out of range": (f"train --data LOG --out NEW {SMALL} --tau-c 0.9", ["tau_c is 0.9", "0.5"]),
    "tau is a word": (f"train --data LOG --out NEW {SMALL} --tau-c low", ["tau-c", "low"]),
    "gamma of one": (f"train --data LOG --out NEW {SMALL} --gamma-cost 1", ["gamma_cost is 1", "episodic"]),
    "no batch": (f"train --data LOG --out NEW {SMALL} --batch-size 0", ["batch_size is 0"]),
    "unknown tracking": (f"train --data LOG --out NEW {SMALL} --tracking hard", ["tracking", "hard"]),
    "unknown criterion": (f"train --data LOG --out NEW {SMALL} --criterion yearly", ["criterion", "yearly"]),
    "weights of two costs": (f"train --data LOG --out NEW {SMALL} --cost-weights 1 2", ["cost_weights"]),
    "bc-safe without threshold": (
        f"train --data LOG --out NEW {SMALL} --method bc-safe",
        ["--threshold"],
    ),
    "bc-safe with nothing to learn from": (
        f"train --data LOG --out NEW {SMALL} --method bc-safe --threshold 0",
        ["no episode costs at most 0", "the least costs"],
    ),
    "bc-all with an option of bcrl": (
        f"train --data LOG --out NEW {SMALL} --method bc-all --tau-c 0.1",
        ["there is no --tau-c here", "bcrl train --method bc-all --help"],
    ),
    "no end of a threshold": (
        f"train --data LOG --out NEW {SMALL} --method bc-safe --threshold inf",
        ["threshold is inf", "from 0 up"],
    ),
    "a page that is no page": ("report FILE --out page.pdf", ["page.pdf", ".html", "--figure"]),
    "out is a file": (f"train --data LOG --out FILE {SMALL}", ["FILE", "is a file"]),
    "out below a file": (f"train --data LOG --out FILE/run {SMALL}", ["FILE"]),
    "out holds a run": (f"train --data LOG --out RUN {SMALL}", ["RUN", "--resume"]),
    "resume with another option": (
        "train --data LOG --out RUN --resume --hidden 8 --batch-size 16 --learning-rate 0.01 --seeds 0,10 "
        "--steps 40 --tau-c 0.3",
        ["config.json", "tau_c was 0.2 and is now 0.3"],
    ),
    "critics of no policy": (f"train --data LOG --out NEW {SMALL} --cost-critics FILE", ["FILE", "policy"]),
    "critics of another size": (
        f"train --data LOG --out NEW {SMALL} --hidden 4 --cost-critics POLICY",
        ["hidden"],
    ),
    "evaluate nothing": ("evaluate", ["Missing", "A policy file, or the folder of a run"]),
    "policy missing": ("evaluate none.bcrl --world point-circle", ["none.bcrl", "no such file"]),
    "policy is no policy": ("evaluate FILE --world point-circle", ["FILE", "not a readable bcrl policy"]),
    "policy is a checkpoint": (
        "evaluate RUN/checkpoint.safetensors --world point-circle",
        ["not a bcrl policy"],
    ),
    "empty run": ("evaluate EMPTY --world point-circle", ["EMPTY", "no policy in this folder"]),
    "unknown world": ("evaluate POLICY --world moon", ["'moon'", "point-circle, point-run, point-goal"]),
    "world of another size": ("evaluate POLICY --world point-run", ["(6, 2", "point-run"]),
    "thresholds are words": ("evaluate POLICY --world point-circle --thresholds a,b", ["'a,b'", "10,20,40"]),
    "threshold missing": ("evaluate POLICY --world point-circle --thresholds 10,,20", ["10,,20"]),
    "negative threshold": (
        "evaluate POLICY --world point-circle --thresholds=-5",
        ["thresholds", "from 0 up"],
    ),
    "threshold is nan": ("evaluate POLICY --world point-circle --thresholds nan", ["thresholds"]),
    "no episodes": ("evaluate POLICY --world point-circle --episodes 0", ["episodes is 0"]),
    "unknown execution": ("evaluate POLICY --world point-circle --execution hope", ["execution", "hope"]),
    "negative candidates": ("evaluate POLICY --world point-circle --candidates=-1", ["candidates is -1"]),
    "negative noise": ("evaluate POLICY --world point-circle --noise=-0.1", ["noise is -0.1"]),
    "results onto a folder": ("evaluate POLICY --world point-circle --episodes 1 --out EMPTY", ["EMPTY"]),
    "results below a file": ("evaluate POLICY --world point-circle --episodes 1 --out FILE/x.csv", ["FILE"]),
}


@pytest.fixture(scope="module")
def places(tiny_log_file, tiny_run, tmp_path_factory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("bad")
    (base / "empty").mkdir()
    (base / "file.bcrl").write_text("just text\n")
    return {
        "LOG": tiny_log_file,
        "RUN": tiny_run.folder,
        "POLICY": tiny_run.folder / "policy-10.bcrl",
        "EMPTY": base / "empty",
        "FILE": base / "file.bcrl",
        "NEW": base / "new",
    }


def with_places(text: str, places: dict[str, Path]) -> str:
    for name, path in places.items():
        text = text.replace(name, str(path))
    return text


@pytest.mark.parametrize("name", BAD)
def test_bad_command_lines_end_in_one_line(name, places, capsys):
    words, wanted = BAD[name]
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(with_places(words, places)))
    said = capsys.readouterr()
    assert stop.value.code == 2
    lines = said.err.splitlines()
    assert len(lines) == 1, said.err
    assert lines[0].startswith("bcrl: ")
    assert "Traceback" not in said.out + said.err
    for word in wanted:
        assert with_places(word, places) in lines[0]
    assert not places["NEW"].exists(), "nothing is left behind"
