"""Messages between evaluator and worker."""

import io
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bcrl.worlds.remote import _worker as worker
from bcrl.worlds.remote._worker import read_message, write_message


def reader(data: bytes):
    file = io.BytesIO(data)

    def read(count: int) -> bytes:
        piece = file.read(count)
        if len(piece) < count:
            raise EOFError
        return piece

    return read


KINDS = st.sampled_from([np.float32, np.float64, np.uint8, np.int64])
ARRAYS = KINDS.flatmap(lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0)))


@given(st.lists(ARRAYS, max_size=3), st.text())
def test_what_is_written_is_read(arrays, text):
    file = io.BytesIO()
    write_message(file, {"text": text}, [(str(i), a) for i, a in enumerate(arrays)])
    header, found = read_message(reader(file.getvalue()))
    assert header == {"text": text}
    assert len(found) == len(arrays)
    for i, array in enumerate(arrays):
        assert found[str(i)].dtype == array.dtype
        np.testing.assert_array_equal(found[str(i)], array)


def test_half_a_message_is_no_message():
    file = io.BytesIO()
    write_message(file, {}, [("a", np.ones(5))])
    for length in (0, 3, 20, len(file.getvalue()) - 1):
        with pytest.raises(EOFError):
            read_message(reader(file.getvalue()[:length]))


def test_the_worker_needs_nothing_of_bcrl():
    """It runs where bcrl is not installed: only the standard library and numpy at import."""
    code = (
        "import runpy, sys; runpy.run_path(sys.argv[1]);"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'bcrl', 'jax', 'gymnasium', 'h5py'}))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(worker.__file__)], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"
