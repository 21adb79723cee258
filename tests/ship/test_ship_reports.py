"""AIS files of three kinds, and their bad rows."""

import gzip

import numpy as np
import polars as pl
import pytest

from bcrl.errors import BCRLError
from bcrl.ship import SINGAPORE, Box, read_reports
from bcrl.ship._ais import CARGO, OTHER, TANKER, UNKNOWN
from bcrl.ship._new_york import read_trajectories
from bcrl.ship._rule import KNOT

BOX = Box(10.0, 55.0, 10.2, 55.1)

ORIGINAL = """SHIP_ID;TIMESTAMP_UTC;LAT;LON;STATUS;HEADING;SPEED_KNOTSX10
549;2017-08-05 23:03:40;1.2;103.85;0;107.5;58
549;2017-08-05 23:03:50.500;1.21;103.85;5;511;NULL
;2017-08-05 23:03:40;1.2;103.85;0;107;58
550;yesterday;1.2;103.85;0;107;58
550;2017-08-05 23:03:40;NULL;103.85;0;107;58
550;2017-08-05 23:03:40;1.2;181;0;107;58
550;2017-08-05 23:03:40;9.2;103.85;0;107;58
"""

CADASTRE = """MMSI,BaseDateTime,LAT,LON,SOG,COG,Heading,VesselName,IMO,CallSign,VesselType,Status,Length
111,2020-06-30T00:00:00,55.05,10.1,10.0,90.0,511.0,A,,,70.0,0.0,94.0
222,2020-06-30T00:00:10,55.05,10.1,102.3,360.0,45.0,B,,,84,5,94.0
333,2020-06-30T00:00:20,55.05,10.1,1.0,-60.6,511,C,,,,,
444,2020-06-30T00:00:30,55.05,10.1,1.0,10,20,D,,,1024,15,
555,2020-06-30T00:00:40,55.05,10.1,1.0,10,20,E,,,60,0,
"""

DANISH = """# Timestamp,Type of mobile,MMSI,Latitude,Longitude,Navigational status,ROT,SOG,COG,Heading,IMO,\
Callsign,Name,Ship type,Cargo type
31/12/2015 23:59:59,Class A,219000001,55.05,10.1,Under way using engine,,12.5,181.2,180,,,X,Cargo,
31/12/2015 23:59:59,Base Station,2190064,55.05,10.1,,,,,,,,,,
31/12/2015 23:59:58,Class B,219000002,55.05,10.1,Moored,,,,,,,Y,Undefined,
31/12/2015 23:59:58,Class A,219000003,91.0,0.0,Unknown value,,,,,,,Z,Tanker,
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="log.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_the_original_columns(write):
    found, box = read_reports([write(ORIGINAL)], None, 0.0)
    assert box == SINGAPORE
    assert found.rows == 7
    assert found.bad == {
        "no ship": 1,
        "no time": 1,
        "no position": 1,
        "impossible position": 1,
        "outside the box": 1,
    }
    assert found.ship.tolist() == [549, 549]
    assert found.time.tolist() == [1501974220, 1501974230]
    np.testing.assert_allclose(found.speed, [5.8 * KNOT, np.nan])
    np.testing.assert_array_equal(found.heading, [107.5, np.nan])
    assert found.status.tolist() == [0, 5]
    assert found.kind.tolist() == [UNKNOWN] * 2


def test_marine_cadastre(write):
    found, _ = read_reports([write(CADASTRE)], BOX, 0.0)
    assert found.ship.tolist() == [111, 222, 333, 444, 555]
    assert found.time[0] == 1593475200
    np.testing.assert_allclose(found.speed, [10 * KNOT, np.nan, KNOT, KNOT, KNOT])
    # Where there is no heading, the course over ground; where that is not available either, nothing.
    np.testing.assert_array_equal(found.heading, [90, 45, np.nan, 20, 20])
    assert found.kind.tolist() == [CARGO, TANKER, UNKNOWN, TANKER, OTHER]
    assert found.status.tolist() == [0, 5, -1, 15, 0]


def test_marine_cadastre_since_2025(write):
    names = {
        "BaseDateTime": "base_date_time",
        "LAT": "latitude",
        "LON": "longitude",
        "VesselType": "vessel_type",
    }
    text = CADASTRE
    for old, new in names.items():
        text = text.replace(old, new)
    old, _ = read_reports([write(CADASTRE)], BOX, 0.0)
    new, _ = read_reports([write(text.replace("MMSI", "mmsi").replace("T00:", " 00:"), "new.csv")], BOX, 0.0)
    for column in ("ship", "time", "lon", "lat", "speed", "heading", "status", "kind"):
        np.testing.assert_array_equal(getattr(old, column), getattr(new, column))


def test_danish_maritime_authority(write):
    found, _ = read_reports([write(DANISH)], BOX, 0.0)
    assert found.bad == {"not a vessel": 1, "impossible position": 1}
    assert found.ship.tolist() == [219000001, 219000002]
    assert found.time.tolist() == [1451606399, 1451606398]
    np.testing.assert_array_equal(found.heading, [180, np.nan])
    np.testing.assert_allclose(found.speed, [12.5 * KNOT, np.nan])
    assert found.kind.tolist() == [CARGO, UNKNOWN]
    assert found.status.tolist() == [0, -1]


def test_parquet_with_types_and_gzip_are_the_same_as_csv(write, tmp_path):
    plain, _ = read_reports([write(CADASTRE)], BOX, 0.0)
    table = pl.read_csv(write(CADASTRE)).with_columns(pl.col("BaseDateTime").str.to_datetime())
    table.write_parquet(tmp_path / "log.parquet")
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(CADASTRE.encode()))
    for name in ("log.parquet", "log.csv.gz"):
        found, _ = read_reports([tmp_path / name], BOX, 0.0)
        for column in ("ship", "time", "lon", "lat", "speed", "heading", "status", "kind"):
            np.testing.assert_array_equal(getattr(plain, column), getattr(found, column), err_msg=name)


def test_several_files_are_one_log(write):
    both, _ = read_reports([write(CADASTRE, "a.csv"), write(DANISH, "b.csv")], BOX, 0.0)
    assert both.rows == 9
    assert len(both.ship) == 7
    assert both.bad == {"not a vessel": 1, "impossible position": 1}


def test_rows_around_the_box_are_kept_for_the_interpolation(write):
    near = CADASTRE.replace("55.05,10.1,10.0", "55.05,10.21,10.0")  # 640 m east of the box
    assert len(read_reports([write(near)], BOX, 0.0)[0].ship) == 4
    assert len(read_reports([write(near)], BOX, 1000.0)[0].ship) == 5


@pytest.mark.parametrize(
    ("text", "name", "wanted"),
    [
        ("a,b\n1,2\n", "log.csv", "none of the known layouts"),
        ("", "log.csv", "log.csv"),
        (CADASTRE, "log.txt", "unknown suffix '.txt'"),
        (CADASTRE, "log.zip", "unzip it first"),
        ("PAR1 no", "log.parquet", "log.parquet"),
        (CADASTRE, "log.csv", "give --box"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(write, text, name, wanted):
    with pytest.raises(BCRLError, match=wanted) as error:
        read_reports([write(text, name)], None, 0.0)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BCRLError, match=r"none\.csv: there is no such file"):
        read_reports([tmp_path / "none.csv"], BOX, 0.0)


LINE = (
    "*T*,some-id,terrestrial,2,0,*P*,terrestrial,2,1,1,0,"
    "367073680,2020-12-01 11:31:39,-74.03917,40.71079,367073680,2020-12-01 11:34:20,-74.0335,40.71\n"
)


def test_tracktable(tmp_path):
    path = tmp_path / "week.traj"
    path.write_text(LINE + LINE.replace("-74.0335", "west"))
    found = read_trajectories(path)
    assert found.rows == 4
    assert found.bad == {"unreadable": 1}
    assert found.ship.tolist() == [367073680] * 3
    assert found.time.tolist() == [1606822299, 1606822460, 1606822299]
    np.testing.assert_array_equal(found.lon, [-74.03917, -74.0335, -74.03917])
    assert np.isnan(found.speed).all()
    assert (found.kind == UNKNOWN).all()


@pytest.mark.parametrize("text", ["hello\n", LINE.replace("terrestrial,2,1,1,0", "terrestrial,3,1,1,0")])
def test_another_format_is_refused(tmp_path, text):
    path = tmp_path / "week.traj"
    path.write_text(text)
    with pytest.raises(BCRLError, match="line 1"):
        read_trajectories(path)
