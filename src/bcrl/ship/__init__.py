"""Ships: from AIS logs to scenarios, a simulator in which a policy steers one ship, and its measures.

scenarios = load_scenarios("ny-harbor.npz")
log = expert_log(scenarios)
results = evaluate_ships({"mine": [policy]}, scenarios)
"""

from bcrl.ship._ais import KINDS, Reports, read_reports
from bcrl.ship._evaluate import (
    EXPERT,
    MEASURES,
    PLANNER,
    Allowed,
    ShipResult,
    allowed_costs,
    evaluate_ships,
)
from bcrl.ship._file import load_scenarios, save_scenarios
from bcrl.ship._lines import PAIRED, Difference, Line, differences, reference_run, table_lines
from bcrl.ship._log import expert_log
from bcrl.ship._make import make_scenarios
from bcrl.ship._metrics import Measures, measure
from bcrl.ship._new_york import SOURCE as NEW_YORK_SOURCE
from bcrl.ship._new_york import read_new_york
from bcrl.ship._plan import Possible, plan_ships, possible_budgets
from bcrl.ship._rollout import OFF_WATER, Voyages, replay, sail, sail_all
from bcrl.ship._rule import NEW_YORK, RULES, SECONDS, SINGAPORE, Box, Rule
from bcrl.ship._scenarios import CLOSE_METRES, GOAL_METRES, Held, Part, Scenarios, summarise
from bcrl.ship._scene import distances, make_scene
from bcrl.ship._simulator import BUDGETS, ORIGINAL, Frame, Quirks, ShipWorld, make_ship_world
from bcrl.ship._water import cell_size, known_water, off_water, sailed_water

__all__ = [
    "BUDGETS",
    "CLOSE_METRES",
    "EXPERT",
    "GOAL_METRES",
    "KINDS",
    "MEASURES",
    "NEW_YORK",
    "NEW_YORK_SOURCE",
    "OFF_WATER",
    "ORIGINAL",
    "PAIRED",
    "PLANNER",
    "RULES",
    "SECONDS",
    "SINGAPORE",
    "Allowed",
    "Box",
    "Difference",
    "Frame",
    "Held",
    "Line",
    "Measures",
    "Part",
    "Possible",
    "Quirks",
    "Reports",
    "Rule",
    "Scenarios",
    "ShipResult",
    "ShipWorld",
    "Voyages",
    "allowed_costs",
    "cell_size",
    "differences",
    "distances",
    "evaluate_ships",
    "expert_log",
    "known_water",
    "load_scenarios",
    "make_scenarios",
    "make_scene",
    "make_ship_world",
    "measure",
    "off_water",
    "plan_ships",
    "possible_budgets",
    "read_new_york",
    "read_reports",
    "reference_run",
    "replay",
    "sail",
    "sail_all",
    "sailed_water",
    "save_scenarios",
    "summarise",
    "table_lines",
]
