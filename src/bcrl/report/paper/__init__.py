"""The pages of the paper's experiments: Markdown, LaTeX, a picture and data, beside the published numbers."""

from bcrl.report.paper._figures import draw_dots, draw_grid, draw_shares, draw_ships, draw_times
from bcrl.report.paper._page import Page, write_page

__all__ = ["Page", "draw_dots", "draw_grid", "draw_shares", "draw_ships", "draw_times", "write_page"]
