"""`bcrl ship ...`, and that the simulator needs no more than jax, equinox and numpy."""

import subprocess
import sys

import numpy as np
import pytest
from ship_maker import BOX, random_reports

from bcrl.assess.results import columns
from bcrl.cli import main
from bcrl.data import load_data
from bcrl.learn.baselines.bc import BCAll
from bcrl.learn.protocol import Spec, blank_actor
from bcrl.policy import Policy
from bcrl.ship import load_scenarios, save_scenarios


@pytest.fixture
def sea_file(small_sea, tmp_path):
    save_scenarios(small_sea, tmp_path / "sea.npz")
    return tmp_path / "sea.npz"


def cadastre(path, seed=1):
    """A MarineCadastre file of a random sea."""
    reports = random_reports(seed, ships=10)
    lines = ["MMSI,BaseDateTime,LAT,LON,SOG,COG,Heading,VesselType,Status"]
    for ship, time, lon, lat in zip(reports.ship, reports.time, reports.lon, reports.lat, strict=True):
        moment = np.datetime64(int(time), "s")
        lines.append(f"{ship},{moment},{lat:.6f},{lon:.6f},,,511,{70 + 10 * (ship % 2)},0")
    lines.append("0,,,,,,,,")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_from_ais_to_a_table(tmp_path, capsys):
    log = cadastre(tmp_path / "AIS_[2020] [end].csv")
    box = f"{BOX.west},{BOX.south},{BOX.east},{BOX.north}"
    main(["ship", "data", str(log), "--out", str(tmp_path / "sea.npz"), "--box", box, "--types", "tanker"])
    said = capsys.readouterr().out
    scenarios = load_scenarios(tmp_path / "sea.npz")
    assert f"{len(scenarios):,} scenarios: " in said
    assert said.splitlines()[-1] == f"next: bcrl ship log {tmp_path}/sea.npz --variations 3 --out train.npz"
    assert max(map(len, said.splitlines()[:-3])) <= 80
    assert "AIS_[2020] [end].csv" in said, "a name is not markup"
    assert "no ship" in said
    assert "rows without a speed" in said
    assert "congested" in said
    assert set(scenarios.kinds[scenarios.ship[scenarios.track]].tolist()) == {2}
    assert str(200_000_000) not in said

    main(["ship", "log", str(tmp_path / "sea.npz"), "--out", str(tmp_path / "train.npz")])
    written = load_data(tmp_path / "train.npz")
    assert written.episode_count == len(scenarios.training)
    said = capsys.readouterr().out
    assert f"{written.episode_count:,} episodes" in said
    train = f"next: bcrl train --data {tmp_path}/train.npz --out runs/ships --family ship"
    assert said.splitlines()[-1] == train

    main(["ship", "evaluate", "--scenarios", str(tmp_path / "sea.npz"), "--out", str(tmp_path / "e.csv")])
    said = capsys.readouterr().out
    assert "expert" in said
    lines = said.splitlines()
    assert max(map(len, lines[:-2])) <= 80, "the table fits; the commands after it may be longer"
    assert ["ADE", "GC-ADE", "close"] in [line.split()[:3] for line in lines]
    assert "nan" not in said, "one episode has no error"
    (cells,) = (line.split() for line in lines if line.startswith("expert"))
    assert cells[1:3] + cells[6:7] == ["0", "0.0", "1.00"]
    assert lines[-1].startswith(f"next: bcrl report {tmp_path}/e.csv --scenarios {tmp_path}/sea.npz --out ")
    head = (tmp_path / "e.csv").read_text().splitlines()[0].split(",")
    assert head[: len(columns())] == columns()
    assert head[len(columns()) :][:3] == ["run", "budget", "scenario"]


def test_a_policy_that_did_not_learn_from_ships_is_refused(sea_file, tmp_path, capsys):
    method, spec = BCAll(hidden=(8,)), Spec(6, 2, 1, horizon=10, max_cost=(1.0,), steps=1)
    Policy(blank_actor(method, spec), method, spec, {}).save(tmp_path / "other.bcrl")
    with pytest.raises(SystemExit) as stop:
        main(["ship", "evaluate", str(tmp_path / "other.bcrl"), "--scenarios", str(sea_file)])
    assert stop.value.code == 2
    assert "bcrl ship log" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("data {log} --out {folder}/a.csv", "unknown suffix '.csv'"),
        ("data {log} --out {folder}", "unknown suffix"),
        ("data {log} --out {sea}", "exists; choose another name or give --overwrite"),
        ("data {log} --out {folder}/a.npz", "give --box"),
        ("data {log} --out {folder}/a.npz --box 1,2,3", "--box is '1,2,3'"),
        ("data {log} --out {folder}/a.npz --box 3,0,2,1", "west < east"),
        ("data {log} --out {folder}/a.npz --box 3,0,4,a", "must be numbers with commas"),
        ("data {log} --out {folder}/a.npz --box 10,0,10.05,0.05 --types yacht", "'yacht'"),
        ("data {log} --out {folder}/a.npz --box 1,1,2,2", "outside the box"),
        ("data --out {folder}/a.npz", "name AIS files, or ny-harbor"),
        ("data nowhere.csv --out {folder}/a.npz", "no such file"),
        ("log {log} --out {folder}/a.npz", "not a scenario file"),
        ("log {sea} --out {folder}/a.txt", "unknown suffix '.txt'"),
        ("log {folder}/none.npz --out {folder}/a.npz", "bcrl ship data"),
        ("evaluate --scenarios {folder}/none.npz", "no such file"),
        ("evaluate {folder} --scenarios {sea}", "no policy in this folder"),
        ("evaluate --scenarios {sea} --budgets 1,b", "--budgets is '1,b'"),
        ("evaluate --scenarios {sea} --budgets=-1", "budgets are (-1.0,)"),
        ("evaluate --scenarios {sea} --episodes 0", "episodes is 0"),
        ("evaluate --scenarios {sea} --limit 0", "limit is 0"),
        ("evaluate --scenarios {sea} --out {folder}/a.npz", "unknown suffix '.npz'"),
        ("sail", "there is no verb"),
    ],
)
def test_mistakes_end_in_one_line(words, wanted, sea_file, tmp_path, capsys):
    log = cadastre(tmp_path / "ais.csv")
    folder = tmp_path / "folder"
    folder.mkdir()
    filled = [word.format(log=log, sea=sea_file, folder=folder) for word in words.split()]
    with pytest.raises(SystemExit) as stop:
        main(["ship", *filled])
    assert stop.value.code == 2
    said = capsys.readouterr().err.strip()
    line = said.splitlines()[-1]
    assert line.startswith("bcrl: ")
    assert wanted in line
    assert list(folder.iterdir()) == []


def test_a_bare_box_can_simulate_log_and_measure(sea_file):
    code = """
import sys

class Refuse:
    names = {"rich", "h5py", "gymnasium", "tyro", "matplotlib", "polars", "scipy", "tracktable_data"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError(f"{name} is not installed on this box")

sys.meta_path.insert(0, Refuse())
import numpy as np
from bcrl.ship import evaluate_ships, expert_log, load_scenarios, read_reports
scenarios = load_scenarios(sys.argv[1])
print(len(expert_log(scenarios)), evaluate_ships({}, scenarios)[0].success)
from bcrl.errors import BCRLError
try:
    read_reports(["x.csv"], None, 0.0)
except BCRLError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(sea_file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counted, missing = done.stdout.splitlines()
    assert counted.endswith(" 1.0")
    assert missing == "AIS files need polars, which is not installed: pip install 'bcrl[ship]'"
