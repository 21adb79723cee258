"""Evaluating policies: roll-outs at many thresholds at once, statistics, tables and certificates."""

from bcrl.assess.certificate import Certificate, certify, certify_sequence
from bcrl.assess.evaluation import evaluate
from bcrl.assess.results import Result, Results, read_results, write_results

__all__ = [
    "Certificate",
    "Result",
    "Results",
    "certify",
    "certify_sequence",
    "evaluate",
    "read_results",
    "write_results",
]
