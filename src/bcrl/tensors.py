"""PyTrees of arrays in safetensors files with a JSON header, for checkpoints and policies. No pickle."""

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np

from bcrl.errors import BCRLError, brief, brief_repr
from bcrl.files import atomic_path
from bcrl.runtime import check_file

T = TypeVar("T")
DEEPEST = 500  # levels of a header; Python's own limit depends on how deep the caller is
SPARE = 2**27  # bytes of a file besides its tensors; safetensors allows a table of 100 MB


def write_tensors(path: str | os.PathLike, tree: Any, header: dict[str, Any]) -> None:
    """Writes the arrays of `tree`, each under its path in the tree, and `header`, all or nothing.

    The header gets a digest of itself and of the arrays, which `read_tensors` checks.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    tensors = {name: np.asarray(leaf, order="C") for name, leaf in _named(tree).items()}
    with atomic_path(path) as temporary:
        try:
            whole = header | {"sha256": file_digest(header, tensors)}
            save_file(tensors, temporary, metadata={"bcrl": json.dumps(whole)})
        except SafetensorError as error:
            raise BCRLError(f"{path}: could not be written ({brief(error)}); choose another place") from None


def tensors_sha256(tree: Any) -> str:
    """SHA-256 of the names, types, shapes and values of the arrays in `tree`."""
    return file_digest(None, {name: np.asarray(leaf, order="C") for name, leaf in _named(tree).items()})


def file_digest(header: dict[str, Any] | None, tensors: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of a header (without its own `sha256`) as sorted JSON, then of the tensors by name."""
    digest = hashlib.sha256()
    if header is not None:
        known = {name: value for name, value in header.items() if name != "sha256"}
        digest.update(json.dumps(known, sort_keys=True).encode())
    for name in tensors if header is None else sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def read_header(path: str | os.PathLike, kind: str, *also: str) -> dict[str, Any]:
    """The header of a file, after checking that it is a `kind`, or one of `also`, that this version reads."""
    from safetensors import SafetensorError, safe_open

    check_file(path, kind)
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("bcrl", "{}"))
    except (SafetensorError, ValueError, OSError, RecursionError) as error:
        raise BCRLError(f"{path}: not a readable bcrl {kind}, it may be cut short ({brief(error)})") from None
    if _depth(header) > DEEPEST:
        raise BCRLError(f"{path}: not a readable bcrl {kind} (its header is nested too deeply)")
    if not isinstance(header, dict) or header.get("format") not in [f"bcrl-{one}" for one in (kind, *also)]:
        raise BCRLError(f"{path}: not a bcrl {kind} (its header does not say so)")
    if header.get("version") != 1:
        raise BCRLError(
            f"{path}: {kind} format version is {brief_repr(header.get('version'))}, this bcrl reads 1: "
            "use the bcrl that wrote it, or train again"
        )
    return header


def to_device(tree: Any) -> Any:
    """The arrays of a tree, copied to the device. `jnp.asarray` would compile a program for each shape."""
    return jax.tree.map(lambda x: jax.device_put(np.array(x)), tree)  # a copy: on a CPU it would be shared


def read_tensors(
    path: str | os.PathLike,
    like: T,
    header: dict[str, Any],
    as_array: Callable[[np.ndarray], Any] = to_device,
) -> T:
    """The arrays of a file as a tree like `like`, whose names, shapes and types they must have.

    `header` is the file's own; its digest must agree. Files of older versions have none: a warning.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    wanted = _named(like)
    size = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in wanted.values())
    if os.path.getsize(path) > size + SPARE:  # before memory is taken
        raise BCRLError(
            f"{path}: has {os.path.getsize(path):,} bytes, but its header describes {size:,}: train again"
        )
    try:
        found = load_file(path)
    except (SafetensorError, ValueError, TypeError, KeyError, OSError) as error:
        raise BCRLError(f"{path}: its tensors cannot be read ({brief(error)}); train again") from None
    if "sha256" in header:
        whole = header["sha256"] == file_digest(header, found)
    else:  # written by an older version, unless the name of the digest is what is damaged
        whole = not any(isinstance(value, str) and len(value) == 64 for value in header.values())
    if not whole:
        raise BCRLError(f"{path}: is damaged (its digest does not agree): copy it again, or train again")
    if "sha256" not in header:
        warnings.warn(
            f"{path}: has no digest (an older bcrl wrote it), so damage would not be noticed: "
            "load and save it again",
            stacklevel=3,
        )
    if wanted.keys() != found.keys():
        odd = sorted(wanted.keys() ^ found.keys())
        fault = "is missing" if odd[0] in wanted else "is unknown"
        raise BCRLError(f"{path}: tensor {brief(odd[0])} {fault}")
    for name, leaf in wanted.items():
        if found[name].shape != leaf.shape or found[name].dtype != leaf.dtype:
            raise BCRLError(
                f"{path}: tensor {name} is {found[name].dtype}{list(found[name].shape)}, "
                f"expected {leaf.dtype}{list(leaf.shape)}"
            )
        if found[name].dtype.kind == "f" and not np.isfinite(found[name]).all():
            raise BCRLError(f"{path}: tensor {name} holds NaN or infinity: train again with other options")
    leaves, structure = jax.tree.flatten(like)
    arrays = iter(as_array(found[name]) for name in wanted)
    return jax.tree.unflatten(structure, [next(arrays) if _is_array(x) else x for x in leaves])


def _depth(tree: Any) -> int:
    """How many lists and objects are inside each other; counted level by level, without recursion."""
    level, depth = [tree], 0
    while level := [x for x in level if isinstance(x, dict | list)]:
        level = [y for x in level for y in (x.values() if isinstance(x, dict) else x)]
        depth += 1
    return depth


def _named(tree: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves if _is_array(leaf)}


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct)
