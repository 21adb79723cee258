"""Evaluating policies: roll-outs at many thresholds at once, statistics and tables."""

from bcrl.assess.evaluation import evaluate
from bcrl.assess.results import Result, Results, read_results, write_results

__all__ = ["Result", "Results", "evaluate", "read_results", "write_results"]
