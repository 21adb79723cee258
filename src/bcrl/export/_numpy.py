"""A policy with the module that executes it, for machines that have numpy and nothing else."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

from bcrl.errors import BCRLError
from bcrl.files import atomic_path, write_text
from bcrl.runtime import load

EXAMPLE = '''"""One episode of the policy beside this file; needs numpy alone: python example.py"""

from pathlib import Path

import numpy as np

from bcrl_runtime import load

policy = load(Path(__file__).with_name("{policy}"))
print(policy)
episode = policy.start(threshold={threshold}, horizon={horizon})
for step in range({horizon}):
    observation = np.array({observation}, np.float32)  # read your sensors here
    action = episode.act(observation)
    episode.observe(cost={cost})  # what the step cost
print("last action", action, "slack", episode.slack, "by the fallback:", bool(episode.fallback))
'''
README = """# {policy}

A policy of bcrl ({method}) and what executes it. It needs Python 3.11 or later and numpy, nothing else:

    python example.py

- `{policy}`: the policy.
- `bcrl_runtime.py`: `load`, `start`, `act`, `observe`, as in bcrl.
- `example.py`: one episode.

Observations: {observations}. Actions: {actions}. Costs: {costs}. Horizon of the log: {horizon} steps.
"""


def export_numpy(source: str | os.PathLike, out: str | os.PathLike) -> dict[str, Path]:
    """Copies a policy file into a folder, with the runtime, an example and a README."""
    policy, source, out = load(source), Path(source), Path(out)
    spec, schema = policy.spec, policy.schema
    if source.name in ("bcrl_runtime.py", "example.py", "README.md"):
        raise BCRLError(f"{source}: would be overwritten by a file of the export: rename it to *.bcrl")
    runtime = find_spec("bcrl.runtime")
    assert runtime is not None
    assert runtime.origin is not None
    files = {name: out / name for name in (source.name, "bcrl_runtime.py", "example.py", "README.md")}
    for origin, name in ((source, source.name), (Path(runtime.origin), "bcrl_runtime.py")):
        with atomic_path(files[name]) as temporary:
            shutil.copyfile(origin, temporary)
    middle = [0.0] * spec.observation_size
    if policy.observed is not None:
        middle = [float(f"{x:.4g}") for x in (policy.observed.low / 2 + policy.observed.high / 2).tolist()]
    several = spec.cost_count > 1
    example = EXAMPLE.format(
        policy=source.name,
        threshold=[10.0] * spec.cost_count if several else 10.0,
        horizon=min(10, spec.horizon),
        observation=middle,
        cost=[0.0] * spec.cost_count if several else 0.0,
    )
    write_text(files["example.py"], example)
    actions = schema.get("action_labels") or schema.get("action_names") or [f"{spec.action_size} numbers"]
    text = README.format(
        policy=source.name,
        method=policy.name,
        observations=", ".join(schema.get("observation_names") or [f"{spec.observation_size} numbers"]),
        actions=", ".join(actions),
        costs=", ".join(schema.get("cost_names") or [f"{spec.cost_count}"]),
        horizon=spec.horizon,
    )
    write_text(files["README.md"], text)
    return files
