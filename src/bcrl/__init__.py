"""Safe offline reinforcement learning with a budget you set at run time.

    data = bcrl.load_data("log.hdf5")
    run = bcrl.fit(data, bcrl.BCRL(tau_c=0.3), seeds=(0, 10, 20))
    run.policy(seed=0).save("policy.bcrl")

    policy = bcrl.load("policy.bcrl")
    episode = policy.start(threshold=20, horizon=200)
    action = episode.act(observation)
    episode.observe(cost)

Names are imported on first use, so that `import bcrl` is quick and needs nothing but Python.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bcrl.data import Dataset as Dataset
    from bcrl.data import load_data as load_data
    from bcrl.errors import BCRLError as BCRLError
    from bcrl.learn.bcrl import BCRL as BCRL
    from bcrl.policy import Episode as Episode
    from bcrl.policy import Policy as Policy
    from bcrl.policy import load as load
    from bcrl.train.run import Run as Run
    from bcrl.train.run import fit as fit

__version__ = "0.1.0"

_HOMES = {
    "BCRL": "bcrl.learn.bcrl",
    "BCRLError": "bcrl.errors",
    "Dataset": "bcrl.data",
    "Episode": "bcrl.policy",
    "Policy": "bcrl.policy",
    "Run": "bcrl.train.run",
    "fit": "bcrl.train.run",
    "load": "bcrl.policy",
    "load_data": "bcrl.data",
}
__all__ = [
    "BCRL",
    "BCRLError",
    "Dataset",
    "Episode",
    "Policy",
    "Run",
    "fit",
    "load",
    "load_data",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bcrl' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
