"""The journal alone: lines that notice damage, writing together, growing no further than what runs."""

import asyncio
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcrl.errors import BCRLError
from bcrl.serve import journal
from bcrl.serve.engine import load_engine
from bcrl.serve.journal import Failed, Writer, compact, decode, encode, header, read_journal
from bcrl.serve.store import Limits, Store

values = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
records = st.dictionaries(
    st.text().filter(lambda name: name != "crc32"), values | st.lists(values), min_size=1
)


@given(records)
def test_a_line_is_read_as_it_was_written(record):
    assert decode(encode(record)) == record


@given(records, st.data())
def test_a_changed_byte_is_noticed(record, data):
    line = bytearray(encode(record))
    line[data.draw(st.integers(0, len(line) - 1))] ^= data.draw(st.integers(1, 255))
    found = decode(bytes(line))
    assert found is None or found == record  # a space for a tab, say, changes nothing


@pytest.mark.parametrize("word", ["Infinity", "-Infinity", "NaN", "1e400"])
def test_a_number_that_is_none_is_damage(word):
    text = f'"cost": {word}}}'
    written = json.dumps(json.loads("{" + text))  # what a checksum over Python's own words would see
    assert decode(f'{{"crc32": {zlib.crc32(written.encode())}, {text}\n'.encode()) is None


NAME = "0" * 32
BEGUN = {"create": NAME, "at": 1.0, "key": None, "goal": {"threshold": 3.0, "seed": 0}}


@pytest.mark.parametrize(
    "records",
    [
        [{"at": 1.0}],
        [BEGUN | {"goal": {"threshold": 3.0, "seed": 0, "horizon": {"a": 1}}}],
        [BEGUN | {"goal": {"threshold": 3.0, "seed": 0, "horizon": "5"}}],
        [BEGUN | {"create": ["x"]}],
        [BEGUN, {"act": ["x"], "at": 1.0}],
        [BEGUN, {"end": NAME, "at": 1e15, "how": "client"}],
    ],
)
def test_records_that_no_server_wrote_are_one_line(records, policy_file, tmp_path):
    engine, path = load_engine(policy_file, ()), tmp_path / "journal.jsonl"
    path.write_bytes(b"".join(map(encode, [header(engine.digest), *records])))
    with pytest.raises(BCRLError, match="give another --out") as refused:
        Store(engine, path, Limits())
    assert str(refused.value).startswith(str(path))


@pytest.fixture
def path(tmp_path):
    compact(tmp_path / "journal.jsonl", header("p"), lambda record: True)
    return tmp_path / "journal.jsonl"


def test_bad_lines_at_the_end_are_dropped_and_elsewhere_refused(path):
    good, rest = encode({"act": 1}), b'{"crc32": 1, "act": 2}\n\x00\x00'
    path.write_bytes(encode(header("p")) + good + rest)
    with pytest.warns(match="from line 3, was never acknowledged"):
        assert list(read_journal(path)) == [header("p"), {"act": 1}]
    path.write_bytes(encode(header("p")) + rest + b"\n" + good)
    with pytest.raises(BCRLError, match="line 2 is damaged"):
        list(read_journal(path))


def test_a_growing_journal_keeps_what_runs(path, monkeypatch):
    monkeypatch.setattr(journal, "COMPACT_ABOVE", 2_000)

    async def write() -> None:
        writer = Writer(path, header("p"), lambda record: record["id"] == 3)
        for number in range(200):
            done = writer.append({"id": number % 10, "number": number})
            if number % 7 == 0:
                await done
        await done
        await writer.close()

    asyncio.run(write())
    found = [record["number"] for record in list(read_journal(path))[1:]]
    assert [number for number in found if number % 10 == 3] == list(range(3, 200, 10))
    assert len(found) < 100


def test_what_cannot_be_written_is_not_acknowledged(path, monkeypatch):
    async def write() -> None:
        writer = Writer(path, header("p"), lambda record: True)
        await writer.append({"id": 1})

        def full(file: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(journal.os, "fsync", full)
        with pytest.raises(Failed, match="No space left"):
            await writer.append({"id": 2})
        with pytest.raises(Failed, match="No space left"):
            writer.append({"id": 3})
        await writer.close()

    asyncio.run(write())
