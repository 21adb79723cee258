"""Figures and pages of what policies earned and cost, or are estimated to."""

from bcrl.report.estimate_curves import estimate_curves
from bcrl.report.estimate_figure import draw_estimates
from bcrl.report.estimates import estimate_page
from bcrl.report.figure import draw, save_figure
from bcrl.report.learning import learning_section
from bcrl.report.page import report_page, write_report

__all__ = [
    "draw",
    "draw_estimates",
    "estimate_curves",
    "estimate_page",
    "learning_section",
    "report_page",
    "save_figure",
    "write_report",
]
