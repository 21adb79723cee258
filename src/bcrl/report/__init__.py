"""Figures and pages of what policies earned and cost."""

from bcrl.report.figure import draw, save_figure
from bcrl.report.page import report_page, write_report

__all__ = ["draw", "report_page", "save_figure", "write_report"]
