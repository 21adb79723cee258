"""The table of a calibrated policy: which threshold it must be told so that a wanted one is kept."""

import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bcrl.errors import BCRLError, brief, brief_repr
from bcrl.runtime import told


@dataclass(frozen=True)
class Calibration:
    """Pairs of wanted and told thresholds, and all that they hold for. `bcrl.calibrate` makes it."""

    table: tuple[tuple[float, float], ...]
    """(wanted, told), rising."""
    data_sha256: str
    """Of the log that the estimates were made from."""
    execution: str
    candidates: int
    horizon: int

    def __post_init__(self) -> None:
        pairs = [pair for pair in self.table if _two_numbers(pair)]
        wanted = [pair[0] for pair in pairs]
        if len(pairs) < len(self.table) or not pairs or wanted != sorted(set(wanted)):
            raise BCRLError(f"calibration.table is {brief_repr(self.table)}, not pairs of rising thresholds")
        for name, least in (("candidates", 0), ("horizon", 1)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value < 2**31:
                raise BCRLError(f"calibration.{name} is {brief_repr(value)}, not a whole number")
        for name in ("data_sha256", "execution"):
            if not isinstance(getattr(self, name), str):
                raise BCRLError(f"calibration.{name} is {brief_repr(getattr(self, name))}, not a word")

    def told(self, wanted: Any, horizon: Any, execution: str, candidates: int) -> np.ndarray:
        """The thresholds to tell the policy; refuses other settings than those of the table."""
        return told(self, wanted, horizon, execution, candidates)

    def header(self) -> dict[str, Any]:
        """For a policy file."""
        return asdict(self)

    @classmethod
    def read(cls, header: dict[str, Any], source: str | os.PathLike) -> "Calibration | None":
        """What the header of a policy file holds, checked; None where it holds none."""
        if "calibration" not in header:
            return None
        try:
            fields = dict(header["calibration"])
            if "prune" in fields:  # the name of `candidates` in older files
                fields["candidates"] = fields.pop("prune")
            table = tuple(tuple(pair) for pair in fields.pop("table"))
            return cls(table=table, **fields)  # type: ignore[arg-type]
        except (BCRLError, KeyError, TypeError, ValueError) as error:
            raise BCRLError(f"{source}: the header's calibration is damaged ({brief(error)})") from None


def _two_numbers(pair: Any) -> bool:
    numbers = [x for x in pair if type(x) in (int, float) and 0 <= x < 1e30]  # fits float32
    return len(numbers) == len(pair) == 2
