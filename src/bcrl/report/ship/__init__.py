"""Ships on a page: maps of scenarios, and what policies do at each budget."""

from bcrl.report.ship._budgets import draw_budgets
from bcrl.report.ship._coastline import Coastline, read_coastline
from bcrl.report.ship._map import describe_routes, map_page, map_part, write_map
from bcrl.report.ship._page import map_section, run_names, ship_report_page, typical_scenario
from bcrl.report.ship._picture import draw_map
from bcrl.report.ship._tracks import Map, Route, make_map

__all__ = [
    "Coastline",
    "Map",
    "Route",
    "describe_routes",
    "draw_budgets",
    "draw_map",
    "make_map",
    "map_page",
    "map_part",
    "map_section",
    "read_coastline",
    "run_names",
    "ship_report_page",
    "typical_scenario",
    "write_map",
]
