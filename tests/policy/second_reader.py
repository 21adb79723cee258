"""A policy file read by the words of docs/policy-file.md alone: plain Python on bytes, no numpy, no bcrl."""

import hashlib
import json
import math
import struct
from pathlib import Path

Tensor = dict  # {"shape": [...], "values": [...]}, values in row-major order


def read(path: Path) -> tuple[dict, dict[str, Tensor]]:
    """The header and the tensors of a file; ValueError where its digest does not agree."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    table = json.loads(content[8 : 8 + length])
    header = json.loads(table.pop("__metadata__")["bcrl"])
    body = content[8 + length :]
    known = {name: value for name, value in header.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(known, sort_keys=True, separators=(", ", ": ")).encode("ascii"))
    tensors = {}
    for name in sorted(table):
        shape, (begin, end) = table[name]["shape"], table[name]["data_offsets"]
        assert table[name]["dtype"] == "F32"
        written = "(" + ", ".join(map(str, shape)) + (",)" if len(shape) == 1 else ")")
        digest.update(f"{name} float32 {written}\n".encode() + body[begin:end])
        values = struct.unpack(f"<{math.prod(shape)}f", body[begin:end])
        tensors[name] = {"shape": shape, "values": list(values)}
    if digest.hexdigest() != header["sha256"]:
        raise ValueError("the digest does not agree")
    return header, tensors


def layers(tensors: dict[str, Tensor], name: str, member: int | None, x: list[float]) -> list[float]:
    """One network, or one member of an ensemble, on one input."""
    count = sum(key.startswith(f"{name}.weights[") for key in tensors)
    for i in range(count):
        weight, bias = tensors[f"{name}.weights[{i}]"], tensors[f"{name}.biases[{i}]"]
        inputs, outputs = weight["shape"][-2:]
        skip = 0 if member is None else member
        w = weight["values"][skip * inputs * outputs : (skip + 1) * inputs * outputs]
        b = bias["values"][skip * outputs : (skip + 1) * outputs]
        x = [b[o] + sum(x[j] * w[j * outputs + o] for j in range(inputs)) for o in range(outputs)]
        if i == count - 1:
            break
        if f"{name}.norms[{i}][0]" in tensors:
            mean = sum(x) / len(x)
            spread = math.sqrt(max(sum(v * v for v in x) / len(x) - mean * mean, 0.0) + 1e-6)
            scale, offset = (tensors[f"{name}.norms[{i}][{j}]"]["values"] for j in (0, 1))
            x = [(v - mean) / spread * s + o for v, s, o in zip(x, scale, offset, strict=True)]
        x = [max(v, 0.0) for v in x]
    return x


def first_step(path: Path, observation: list[float], threshold: float, horizon: int) -> tuple:
    """Action, slack and fallback of the first step: one cost, finite-horizon rule, soft tracking, no draws.

    The fallback's weighted mean of draws needs random numbers; here its options say 0 draws.
    """
    header, tensors = read(path)
    options, unit = header["options"], header["units"]["cost"][0]
    assert (header["format"], header["version"], options["fallback_draws"]) == ("bcrl-policy", 1, 0)
    mean, std = (tensors[f".normaliser.{name}"]["values"] for name in ("mean", "std"))
    features = [(x - m) / s for x, m, s in zip(observation, mean, std, strict=True)]
    factor = options["safety_factor"]
    value = factor * max(layers(tensors, ".cost_value", None, features)[0], 0.0)
    gamma = options["gamma_cost"]
    budget = threshold / unit * (1 - gamma**horizon) / ((1 - gamma) * horizon)
    slack = budget - value

    def cost(action: list[float]) -> float:
        return factor * max(layers(tensors, ".cost_critic", j, [*features, *action])[0] for j in (0, 1))

    allowed = slack >= options["fallback_below"]
    if allowed:
        shown = math.log1p(min(max(slack, 0.0), tensors[".slack_limit"]["values"][0]))
        out = layers(tensors, ".actor.trunk", None, [*features, shown])
        action = [math.tanh(v) for v in out[: len(out) // 2]]
        allowed = not options["check_action"] or cost(action) <= slack + value
    if not allowed:
        out = layers(tensors, ".fallback.trunk", None, features)
        action = [math.tanh(v) for v in out[: len(out) // 2]]
    charge = cost(action) - value
    low, high = header["schema"].get("action_low"), header["schema"].get("action_high")
    if low:
        action = [lo + (a + 1) / 2 * (hi - lo) for a, lo, hi in zip(action, low, high, strict=True)]
    return action, slack * unit, not allowed, charge
