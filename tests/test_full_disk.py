"""What cannot be written is told with its name, and leaves nothing behind."""

import errno

import pytest
import safetensors
import safetensors.numpy

from bcrl.errors import BCRLError
from bcrl.files import write_text
from bcrl.tensors import write_tensors


def test_tensors(tmp_path, monkeypatch):
    def full(tensors, path, metadata):
        path.write_bytes(b"half")
        raise safetensors.SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr(safetensors.numpy, "save_file", full)
    with pytest.raises(BCRLError, match=r"p\.bcrl: could not be written \(I/O error: No space"):
        write_tensors(tmp_path / "p.bcrl", {}, {})
    assert list(tmp_path.iterdir()) == []


def test_text(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*page\.html"):
        write_text(tmp_path / "page.html", "<p>")
    assert list(tmp_path.iterdir()) == []
