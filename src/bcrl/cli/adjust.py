"""`bcrl adjust`: how trained policies act, changed without training them again."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from bcrl.cli.terminal import next_step
from bcrl.errors import BCRLError


@dataclass
class Command:
    """Write trained policies that act by other options, such as another safety factor.

    The networks stay as they are. The options are those under "acting" in bcrl train --help; what policies
    have is in bcrl inspect. An option without effect on a policy (support, with continuous actions) is only
    stored. A calibration was made for the old options, so it is left out.
    """

    policies: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="POLICY_OR_RUN")]
    """A policy file, or the folder of a run (every seed in it)."""
    set: tuple[str, ...]
    """Options with their values, such as safety_factor=1,fallback_beta=3."""
    out: Path
    """The policy file to write, such as adjusted.bcrl; for a run, the folder."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace files that exist."""

    def run(self) -> None:
        from bcrl.cli.out import policy_places
        from bcrl.policy import load_learned
        from bcrl.train.folder import policy_files

        files = policy_files(self.policies)
        policies = [load_learned(file) for file in files]
        adjusted = [policy.adjusted(**self.options(type(policy.method))) for policy in policies]
        places = policy_places(self.policies, files, self.out, self.overwrite)
        for policy, place in zip(adjusted, places, strict=True):
            policy.save(place)
        if any(policy.calibration for policy in policies):
            print("the calibration is left out: it was made for the old options")
        print(f"the adjusted {'policy' if self.policies.is_file() else 'policies'}: {self.out}")
        next_step("bcrl", "estimate", self.out, "--data", "LOG")

    def options(self, kind: Any) -> dict[str, Any]:
        """The value of each option."""
        from bcrl.train.sweep import read_grid

        grid = read_grid(kind, self.set, "--set")
        for name, values in grid.items():
            if len(values) > 1:
                raise BCRLError(f"--set: {name} has {len(values)} values, but a policy has one")
        return {name: value for name, (value,) in grid.items()}
