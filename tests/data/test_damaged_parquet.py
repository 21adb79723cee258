"""Parquet files that end the process of polars, or make it panic on the terminal."""

import base64
import zlib

import polars as pl
import pytest

from bcrl.data._table import ParquetTable
from bcrl.errors import BCRLError
from bcrl.ship._ais import read_reports

# A column of two numbers, uncompressed. Bytes of another writer may have their page elsewhere.
WHOLE = zlib.decompress(
    base64.b85decode(
        b"c-nPQ!A`<J5Z%^>aPU9~)3iwsd$EB?5Ee*VZ(Bl;XtX6JMsLNkK!UBI2<itJkA9-"
        b"FTMk})hj}~m=DovC#AiJ)fC9ZiB7|t9gnncoP=|UO#TrzgQVNEqo#<fLLsF^PmX-"
        b"i94Kp({H*~AScFYh4ru6D|`^wnn`3`gf#+i<*xM@4K<Nj#Qe*xx~1`UF(;a1J8K`_xe<+It{!)5WjTD&CIw{{`Xf8>a<EdCz"
        b"*_xRYW(KY7<A1RLcd4&4mAm>xgmw)$E@udE#=BiA%lF*LkaLPl)W0{9gIh;rLXbQ@ATv|u5%v+ZIWXy?m8|9m1ThQj~$8MEp"
        b"ExKQ9i*=q+*6DS+v^jrUZ&K=spv&fIUx<`>LijB04VdRA-5_DXPzWZxWRV7}WjhZ3>=T|T!qfc%JULvK"
    )
)


def read(path) -> list:
    table = ParquetTable(path, str(path))
    return [value for frame, _ in table.blocks(["a"]) for value in frame["a"]]


@pytest.mark.parametrize("place", [41, 43], ids=["abort", "panic"])
def test_damage_is_one_line_and_nothing_on_the_terminal(place, tmp_path, capfd):
    path = tmp_path / "log.parquet"
    path.write_bytes(WHOLE)
    assert read(path) == [1, 2]
    path.write_bytes(WHOLE[:place] + b"\x7f" + WHOLE[place + 1 :])
    for reader in (read, lambda path: read_reports([path], None, 0.0)):
        with pytest.raises(BCRLError, match="is damaged or cut short") as refused:
            reader(path)
        assert str(refused.value).startswith(str(path))
    assert capfd.readouterr().err.count("panicked") == 0


def test_a_name_is_no_pattern(tmp_path):
    for number, name in enumerate(("a*", "ab", "[2020]", "2")):
        pl.DataFrame({"a": [number]}).write_parquet(tmp_path / f"{name}.parquet")
    assert [read(tmp_path / f"{name}.parquet") for name in ("a*", "[2020]")] == [[0], [2]]
