"""A policy with the module that executes it, for machines that have numpy and nothing else."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from bcrl.errors import BCRLError, brief
from bcrl.files import atomic_path, write_text
from bcrl.runtime import Policy, load

EXAMPLE = '''"""The first steps of an episode of this policy; needs numpy alone: python example.py"""

from pathlib import Path

import numpy as np

from bcrl_runtime import load

policy = load(Path(__file__).with_name("{policy}"))
print(policy)
# threshold: what the whole episode may cost
episode = policy.start({start})
for step in range({steps}):  # of {horizon}
    observation = np.array({observation}, np.float32)  # made up: read your sensors here
    action = episode.act(observation)
    episode.observe(cost={cost})  # what the step cost
print("last action", action, "slack", episode.slack, "by the fallback:", bool(episode.fallback))
'''
README = """# {policy}

A policy of bcrl ({method}) and what executes it. It needs Python 3.11 or later and numpy, nothing else:

    python example.py

- `{policy}`: the policy.
- `bcrl_runtime.py`: `load`, `start`, `act`, `observe`, as in bcrl.
- `example.py`: the first steps of an episode, at the middle of the log's ranges. That may be no state your
  process can be in, and then the fallback may act: put your readings there.

Horizon of the log: {horizon} steps. {start}

{columns}
"""
STEPS = 10
"""Steps of the example."""
ENDS = (("low", -1.0), ("high", 1.0))


def export_numpy(source: str | os.PathLike, out: str | os.PathLike) -> dict[str, Path]:
    """Copies a policy file into a folder, with the runtime, an example and a README."""
    policy, source, out = load(source), Path(source), Path(out)
    spec = policy.spec
    if source.name in ("bcrl_runtime.py", "example.py", "README.md"):
        raise BCRLError(f"{source}: would be overwritten by a file of the export: rename it to *.bcrl")
    runtime = find_spec("bcrl.runtime")
    assert runtime is not None
    assert runtime.origin is not None
    files = {name: out / name for name in (source.name, "bcrl_runtime.py", "example.py", "README.md")}
    for origin, name in ((source, source.name), (Path(runtime.origin), "bcrl_runtime.py")):
        with atomic_path(files[name]) as temporary:
            shutil.copyfile(origin, temporary)
    several, start = spec.cost_count > 1, _start(policy)
    horizon = spec.horizon if policy.calibration is None else policy.calibration.horizon
    example = EXAMPLE.format(
        policy=source.name,
        start=start,
        steps=min(STEPS, horizon),
        horizon=horizon,
        observation=_observation(policy),
        cost=[0.0] * spec.cost_count if several else 0.0,
    )
    write_text(files["example.py"], example)
    said = "The policy is not calibrated: it is told the threshold as it is."
    if policy.calibration is not None:
        table = ", ".join(f"{wanted:g}" for wanted, _ in policy.calibration.table)
        said = f"The policy is calibrated for the thresholds {table}: `policy.start({start})`."
    text = README.format(
        policy=source.name,
        method=policy.name,
        horizon=spec.horizon,
        start=said,
        columns="\n".join(_columns(policy)),
    )
    write_text(files["README.md"], text)
    return files


def _start(policy: Policy) -> str:
    """The arguments of `start` for this policy: a threshold of its table, if it is calibrated."""
    spec, known = policy.spec, policy.calibration
    most = [float(f"{0.1 * cost * spec.horizon:.2g}") or 10.0 for cost in _largest(policy)]
    if known is not None:
        most = [known.table[len(known.table) // 2][0]] * spec.cost_count
    words = {"threshold": most if len(most) > 1 else most[0], "horizon": spec.horizon}
    if known is not None:  # a table holds for one horizon, execution and number of candidates
        words |= {"horizon": known.horizon, "execution": known.execution, "candidates": known.candidates}
        words["calibrated"] = True
    return ", ".join(f"{name}={value!r}" for name, value in words.items())


def _observation(policy: Policy) -> list[float]:
    """The middle of the log's range; of a category's columns, whose names are column=label, one is 1."""
    size, log = policy.spec.observation_size, policy.observed
    if log is None:
        return [0.0] * size
    chosen, values = set(), []
    for name, low, high in zip(_names(policy, "observation", size), log.low, log.high, strict=True):
        category, sign, _ = name.partition("=")
        values.append(float(f"{low / 2 + high / 2:.4g}"))
        if (low, high) == (0, 1):
            values[-1] = float(bool(sign) and category not in chosen)
        if sign and values[-1] == 1:
            chosen.add(category)
    return values


def _names(policy: Policy, kind: str, count: int) -> list[str]:
    """The names of the columns of a kind; their numbers where the file has no names."""
    return policy.schema.get(f"{kind}_names") or [str(number) for number in range(count)]


def _columns(policy: Policy) -> list[str]:
    """The lines of the README about observations, actions and costs."""
    spec, schema, log = policy.spec, policy.schema, policy.observed
    units = schema.get("units", {})

    def line(name: str, said: str = "") -> str:
        unit = f" [{units[name]}]" if name in units else ""
        return brief(f"- {name}{unit}{said and ': '}{said}", 500)

    ranges = [""] * spec.observation_size
    if log is not None:
        ranges = [f"{low:.6g} to {high:.6g} in the log" for low, high in zip(log.low, log.high, strict=True)]
    lines = ["Observations, in this order:", ""]
    lines += map(line, _names(policy, "observation", spec.observation_size), ranges)
    if spec.discrete:
        labels = schema.get("action_labels") or _names(policy, "", spec.action_size)
        lines += ["", "The action is the number of a label:", ""]
        lines += [line(str(number), label) for number, label in enumerate(labels)]
    else:
        low, high = (schema.get(f"action_{side}") or [end] * spec.action_size for side, end in ENDS)
        bounds = [f"{a:g} to {b:g}" for a, b in zip(low, high, strict=True)]
        lines += ["", "Actions, in this order:", ""]
        lines += map(line, _names(policy, "action", spec.action_size), bounds)
    said = "at most {:.6g}" if schema.get("max_cost") else "at most {:.6g} in the log"
    lines += ["", "Costs of a step, for `observe`:", ""]
    lines += map(line, _names(policy, "cost", spec.cost_count), map(said.format, _largest(policy)))
    return lines


def _largest(policy: Policy) -> list[float]:
    """The largest cost of a step in the user's unit, as declared or as in the log."""
    return (np.array(policy.spec.max_cost) * policy.units).tolist()
