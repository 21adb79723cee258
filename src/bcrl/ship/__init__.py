"""Ships: from AIS logs to scenarios, a simulator in which one ship sails by policy, and its measures."""

from bcrl.ship.scenario import Scenarios, load_scenarios

__all__ = ["Scenarios", "load_scenarios"]
