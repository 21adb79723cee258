"""Safe offline reinforcement learning with a budget you set at run time.

    data = bcrl.load_data("log.hdf5")
    method = bcrl.make_method("bcrl", preset="cpu")
    run = bcrl.fit(data, method, steps=20_000)
    run.policy().save("policy.bcrl")

    policy = bcrl.load("policy.bcrl")
    episode = policy.start(threshold=20, horizon=200)
    action = episode.act(observation)
    episode.observe(cost)

Names are imported on first use, so that `import bcrl` is quick and needs nothing but Python.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bcrl.assess import Certificate as Certificate
    from bcrl.assess import Results as Results
    from bcrl.assess import certify as certify
    from bcrl.assess import certify_sequence as certify_sequence
    from bcrl.assess import evaluate as evaluate
    from bcrl.data import Dataset as Dataset
    from bcrl.data import Schema as Schema
    from bcrl.data import from_frame as from_frame
    from bcrl.data import load_data as load_data
    from bcrl.data import read_table as read_table
    from bcrl.data import save_data as save_data
    from bcrl.episode import Episode as Episode
    from bcrl.errors import BCRLError as BCRLError
    from bcrl.estimates import Calibrated as Calibrated
    from bcrl.estimates import Estimates as Estimates
    from bcrl.estimates import Model as Model
    from bcrl.estimates import calibrate as calibrate
    from bcrl.estimates import choose as choose
    from bcrl.estimates import estimate as estimate
    from bcrl.estimates import fit_model as fit_model
    from bcrl.export import export_numpy as export_numpy
    from bcrl.export import export_onnx as export_onnx
    from bcrl.learn.baselines.bc import BCAll as BCAll
    from bcrl.learn.baselines.bc import BCSafe as BCSafe
    from bcrl.learn.baselines.bcq_lag import BCQLag as BCQLag
    from bcrl.learn.baselines.caps import CAPS as CAPS
    from bcrl.learn.baselines.ccac import CCAC as CCAC
    from bcrl.learn.baselines.cdt import CDT as CDT
    from bcrl.learn.baselines.coptidice import COptiDICE as COptiDICE
    from bcrl.learn.baselines.cpq import CPQ as CPQ
    from bcrl.learn.baselines.fisor import FISOR as FISOR
    from bcrl.learn.baselines.lspc import LSPC as LSPC
    from bcrl.learn.bcrl import BCRL as BCRL
    from bcrl.learn.bcrl_td3 import BCRLTD3 as BCRLTD3
    from bcrl.learn.registry import make_method as make_method
    from bcrl.policy import Policy as Policy
    from bcrl.policy import load as load
    from bcrl.report import write_report as write_report
    from bcrl.report.inspection import Inspection as Inspection
    from bcrl.report.inspection import inspect as inspect
    from bcrl.train.run import Run as Run
    from bcrl.train.run import fit as fit
    from bcrl.train.run import load_run as load_run
    from bcrl.train.sweep import settings as settings
    from bcrl.train.sweep import sweep as sweep
    from bcrl.worlds import make_world as make_world
    from bcrl.worlds.collect import collect as collect

__version__ = "0.1.0"

_HOMES = {
    "BCAll": "bcrl.learn.baselines.bc",
    "BCQLag": "bcrl.learn.baselines.bcq_lag",
    "BCRL": "bcrl.learn.bcrl",
    "BCRLError": "bcrl.errors",
    "BCRLTD3": "bcrl.learn.bcrl_td3",
    "BCSafe": "bcrl.learn.baselines.bc",
    "CAPS": "bcrl.learn.baselines.caps",
    "CCAC": "bcrl.learn.baselines.ccac",
    "CDT": "bcrl.learn.baselines.cdt",
    "COptiDICE": "bcrl.learn.baselines.coptidice",
    "CPQ": "bcrl.learn.baselines.cpq",
    "Calibrated": "bcrl.estimates",
    "Certificate": "bcrl.assess",
    "Dataset": "bcrl.data",
    "Episode": "bcrl.episode",
    "Estimates": "bcrl.estimates",
    "FISOR": "bcrl.learn.baselines.fisor",
    "Inspection": "bcrl.report.inspection",
    "LSPC": "bcrl.learn.baselines.lspc",
    "Model": "bcrl.estimates",
    "Policy": "bcrl.policy",
    "Results": "bcrl.assess",
    "Run": "bcrl.train.run",
    "Schema": "bcrl.data",
    "calibrate": "bcrl.estimates",
    "certify": "bcrl.assess",
    "certify_sequence": "bcrl.assess",
    "choose": "bcrl.estimates",
    "collect": "bcrl.worlds.collect",
    "estimate": "bcrl.estimates",
    "evaluate": "bcrl.assess",
    "export_numpy": "bcrl.export",
    "export_onnx": "bcrl.export",
    "fit": "bcrl.train.run",
    "fit_model": "bcrl.estimates",
    "from_frame": "bcrl.data",
    "inspect": "bcrl.report.inspection",
    "load": "bcrl.policy",
    "load_data": "bcrl.data",
    "load_run": "bcrl.train.run",
    "make_method": "bcrl.learn.registry",
    "make_world": "bcrl.worlds",
    "read_table": "bcrl.data",
    "save_data": "bcrl.data",
    "settings": "bcrl.train.sweep",
    "sweep": "bcrl.train.sweep",
    "write_report": "bcrl.report",
}
__all__ = [
    "BCRL",
    "BCRLTD3",
    "CAPS",
    "CCAC",
    "CDT",
    "CPQ",
    "FISOR",
    "LSPC",
    "BCAll",
    "BCQLag",
    "BCRLError",
    "BCSafe",
    "COptiDICE",
    "Calibrated",
    "Certificate",
    "Dataset",
    "Episode",
    "Estimates",
    "Inspection",
    "Model",
    "Policy",
    "Results",
    "Run",
    "Schema",
    "calibrate",
    "certify",
    "certify_sequence",
    "choose",
    "collect",
    "estimate",
    "evaluate",
    "export_numpy",
    "export_onnx",
    "fit",
    "fit_model",
    "from_frame",
    "inspect",
    "load",
    "load_data",
    "load_run",
    "make_method",
    "make_world",
    "read_table",
    "save_data",
    "settings",
    "sweep",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bcrl' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
