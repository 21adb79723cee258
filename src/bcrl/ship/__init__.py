"""Ships: from AIS logs to scenarios, a simulator in which a policy steers one ship, and its measures.

scenarios = load_scenarios("ny-harbor.npz")
log = expert_log(scenarios)
results = evaluate_ships({"mine": [policy]}, scenarios)
"""

from bcrl.ship._ais import KINDS, Reports, read_reports
from bcrl.ship._evaluate import (
    EXPERT,
    MEASURES,
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
from bcrl.ship._rollout import Voyages, replay, sail, sail_all
from bcrl.ship._rule import NEW_YORK, RULES, SECONDS, SINGAPORE, Box, Rule
from bcrl.ship._scenarios import CLOSE_METRES, GOAL_METRES, Held, Part, Scenarios, summarise
from bcrl.ship._scene import distances, make_scene
from bcrl.ship._simulator import BUDGETS, ORIGINAL, Frame, Quirks, ShipWorld, make_ship_world

__all__ = [
    "BUDGETS",
    "CLOSE_METRES",
    "EXPERT",
    "GOAL_METRES",
    "KINDS",
    "MEASURES",
    "NEW_YORK",
    "NEW_YORK_SOURCE",
    "ORIGINAL",
    "PAIRED",
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
    "Quirks",
    "Reports",
    "Rule",
    "Scenarios",
    "ShipResult",
    "ShipWorld",
    "Voyages",
    "allowed_costs",
    "differences",
    "distances",
    "evaluate_ships",
    "expert_log",
    "load_scenarios",
    "make_scenarios",
    "make_scene",
    "make_ship_world",
    "measure",
    "read_new_york",
    "read_reports",
    "reference_run",
    "replay",
    "sail",
    "sail_all",
    "save_scenarios",
    "summarise",
    "table_lines",
]
