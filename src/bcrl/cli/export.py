"""`bcrl export`: a policy for a machine without JAX."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bcrl.runtime import Execution


@dataclass
class Command:
    """Export a policy for a machine without JAX.

    numpy: a folder with the policy, one Python module that executes it, and an example. onnx: three graphs
    (start, act, observe), for C, C++ and everything that has onnxruntime; the budget's state is a tensor that
    the caller keeps. docs/policy-file.md describes both. BCRL in all its forms, BC-All, BC-Safe and CAPS.
    """

    policy: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="POLICY")]
    """A policy file."""
    to: Literal["numpy", "onnx"]
    """What the other machine has."""
    out: Path
    """The folder to make (numpy), or the file of the graph that acts, such as policy.onnx."""
    execution: Execution | None = None
    """onnx: how the budget is tracked while acting (default: finite-horizon)."""
    candidates: int = 0
    """onnx: draw this many actions each step and take the best of those the cost critic allows; 0 is off."""
    out_of_range: Literal["report", "fallback"] = "report"
    """onnx: what happens at observations outside the log's range: an output says so, or the fallback acts."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace files that exist."""

    def run(self) -> None:
        from bcrl.cli.out import check_file
        from bcrl.cli.terminal import next_step
        from bcrl.errors import BCRLError
        from bcrl.export import export_numpy, export_onnx

        if self.to == "onnx":
            check_file(self.out, (".onnx",), self.overwrite)
            files = export_onnx(
                self.policy,
                self.out,
                execution=self.execution,
                candidates=self.candidates,
                out_of_range="fallback" if self.out_of_range == "fallback" else "warn",
            )
        else:
            if self.execution or self.candidates or self.out_of_range != "report":
                raise BCRLError(
                    "--execution, --candidates and --out-of-range are for onnx; numpy takes them at start"
                )
            if self.out.exists() and (
                not self.out.is_dir() or (any(self.out.iterdir()) and not self.overwrite)
            ):
                raise BCRLError(f"--out {self.out} exists; choose another name or give --overwrite")
            files = export_numpy(self.policy, self.out)
        for path in files.values():
            print(f"{path}: {path.stat().st_size:,} bytes")
        if self.to == "numpy":
            next_step(f"python {self.out / 'example.py'}")
