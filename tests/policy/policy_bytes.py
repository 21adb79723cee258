"""Policy files taken apart and put together by hand, so that tests can damage them."""

import json
import struct
from pathlib import Path

import numpy as np

from bcrl.tensors import file_digest

Header = dict
Tensors = dict[str, np.ndarray]
KINDS = {"F32": np.float32, "I32": np.int32, "F64": np.float64, "I64": np.int64, "BOOL": np.bool_}


def parts(content: bytes) -> tuple[dict, bytes]:
    """The table of a safetensors file (a length, JSON, raw numbers) and the numbers."""
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def split(content: bytes) -> tuple[Header, Tensors]:
    """Our header and the tensors. Nothing in a file could be executed."""
    table, body = parts(content)
    header = json.loads(table.pop("__metadata__")["bcrl"])
    tensors = {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], KINDS[entry["dtype"]]).reshape(
            entry["shape"]
        )
        for name, entry in table.items()
    }
    return header, tensors


def write(path: Path, header: Header, tensors: Tensors) -> None:
    """A well-formed file, with the digest that belongs to it."""
    from safetensors.numpy import save_file

    header = header | {"sha256": file_digest(header, tensors)}
    save_file(tensors, path, metadata={"bcrl": json.dumps(header)})
