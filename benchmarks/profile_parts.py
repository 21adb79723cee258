"""What a compiled program says of its kernels: their stage, the bytes they move; and FLOPs of a jaxpr."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bcrl.learn.stages import PREFIX

RANDOM, REST, LOOP = "random numbers", "losses", "loop"
_RANDOM = re.compile(r"threefry|random_|rng_|jit\(_(uniform|normal|bernoulli|randint|shuffle)|iota_2x32")
_STAGE = re.compile(re.escape(PREFIX) + r"([\w ]+)")
_BYTES = {"pred": 1, "bf16": 2, "f16": 2, "token": 0} | {
    f"{kind}{bits}": bits // 8 for kind in "fsuc" for bits in (8, 16, 32, 64, 128)
}
_SHAPE = re.compile(r"\b(pred|bf16|token|[fsuc]\d+)\[([\d,]*)\]")
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_NAME = re.compile(r"%([\w.\-]+)")


def stage_of(op_name: str) -> str:
    """The stage of an operation, by the scopes it was traced in."""
    if _RANDOM.search(op_name):
        return RANDOM
    found = _STAGE.findall(op_name)
    return found[-1] if found else REST if "body" in op_name else LOOP


class Instruction(NamedTuple):
    shape: str
    opcode: str
    operands: list[str]
    calls: str
    op_name: str


class Program:
    """The instructions of an optimised HLO module, by name."""

    def __init__(self, text: str):
        self.instructions: dict[str, Instruction] = {}
        self.computations: dict[str, list[str]] = {}
        current: list[str] = []
        for line in text.splitlines():
            if line.endswith("{") and not line.startswith(" ") and " -> " in line:
                name = line.removeprefix("ENTRY ").split()[0].lstrip("%")
                current = self.computations.setdefault(name, [])
            elif match := _INSTRUCTION.match(line):
                name, shape, opcode, rest = match.groups()
                inputs = rest.split("), ")[0]
                calls = re.search(r"calls=%?([\w.\-]+)", rest)
                op_name = re.search(r'op_name="([^"]*)"', rest)
                self.instructions[name] = Instruction(
                    shape,
                    opcode,
                    [inputs] if opcode == "parameter" else _NAME.findall(inputs),
                    calls.group(1) if calls else "",
                    op_name.group(1) if op_name else "",
                )
                current.append(name)

    def opcode(self, name: str) -> str:
        return self.instructions[name].opcode if name in self.instructions else ""

    def op_name(self, name: str) -> str:
        """Where the operation was traced; of a fusion without a name, the most frequent one inside."""
        if name not in self.instructions:
            return ""
        found = self.instructions[name]
        inside = [self.instructions[i].op_name for i in self.computations.get(found.calls, [])]
        names = Counter(filter(None, inside))
        return found.op_name or (names.most_common(1)[0][0] if names else "")

    def stage(self, name: str) -> str:
        return stage_of(self.op_name(name))

    def bytes(self, name: str) -> float:
        """What a kernel writes and reads; of an input that it only gathers from, what it takes."""
        if name not in self.instructions:
            return 0.0
        found = self.instructions[name]
        if found.opcode in ("gather", "dynamic-slice"):
            return 2.0 * size(found.shape)
        inside = [self.instructions[i] for i in self.computations.get(found.calls, [])]
        parameters = {
            int(self.instructions[i].operands[0].split(")")[0]): i
            for i in self.computations.get(found.calls, [])
            if self.instructions[i].opcode == "parameter"
        }
        total = size(found.shape)
        for number, operand in enumerate(found.operands):
            if operand not in self.instructions:
                continue
            uses = [i for i in inside if parameters.get(number) in i.operands]
            sparse = [i for i in uses if i.opcode in ("gather", "dynamic-slice")]
            if uses and len(sparse) == len(uses):
                total += sum(size(i.shape) for i in sparse)
            else:
                total += size(self.instructions[operand].shape)
        return total


def size(shape: str) -> float:
    """Bytes of a shape, or of all in a tuple."""
    return float(
        sum(
            _BYTES.get(kind, 4) * np.prod([int(n) for n in sizes.split(",") if n], dtype=float)
            for kind, sizes in _SHAPE.findall(shape)
        )
    )


def flops_by_stage(jaxpr: Any, scope: str = "body", times: float = 1.0) -> Counter[tuple[str, str]]:
    """Multiplications and additions of all matrix products, by stage and type."""
    found: Counter[tuple[str, str]] = Counter()
    for equation in jaxpr.eqns:
        where = f"{scope}/{equation.source_info.name_stack}"
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left, out = equation.invars[0].aval, equation.outvars[0].aval
            inner = np.prod([left.shape[i] for i in contracted], dtype=float)
            found[stage_of(where), str(left.dtype)] += times * 2.0 * inner * out.size
        repeats = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        if equation.primitive.name == "pallas_call":
            repeats = np.prod(equation.params["grid_mapping"].grid, dtype=float)
        for inner in _inner(equation.params.values()):
            found += flops_by_stage(inner, where, times * repeats)
    return found


def _inner(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _inner(value)
        elif hasattr(value, "eqns"):
            yield value
        elif hasattr(value, "jaxpr"):
            yield value.jaxpr
