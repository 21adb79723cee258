"""Maps of the grid world for the terminal: safe set, policy and occupancy, readable without colours."""

import numpy as np
from rich.columns import Columns
from rich.panel import Panel
from rich.text import Text

from bcrl.cmdp._gridworld import ARROWS, GridWorld

SHADES = ((1.0, "█"), (0.3, "▓"), (0.1, "▒"), (0.01, "░"))
STYLES = {"#": "dim", "S": "bold cyan", "G": "bold green", "!": "red", "X": "yellow", "Y": "magenta"}


def draw(world: GridWorld, safe: np.ndarray, visits: np.ndarray) -> Columns:
    """Three maps: `safe` (S,) marks the safe set, `visits` (S, A) are discounted visits."""
    return Columns(
        [
            _panel(world, safe_letters(world, safe), "safe set", "! outside"),
            _panel(world, policy_letters(world, visits), "policy", "· not visited"),
            _panel(world, visit_letters(world, visits), "visits", "░ .01 ▒ .1 ▓ .3 █ 1"),
        ]
    )


def safe_letters(world: GridWorld, safe: np.ndarray) -> np.ndarray:
    """The map with ! where the budget is less than the cost that cannot be avoided."""
    return np.where(safe | (world.letters == "S"), world.letters, "!")


def policy_letters(world: GridWorld, visits: np.ndarray) -> np.ndarray:
    """The most frequent move of every state that is ever visited."""
    arrows = np.array(list(ARROWS))[visits.argmax(1)]
    letters = np.where(visits.sum(1) > 1e-6, arrows, "·")
    return np.where(world.letters == "G", "G", letters)


def visit_letters(world: GridWorld, visits: np.ndarray) -> np.ndarray:
    total = visits.sum(1)
    shade = np.select([total >= least for least, _ in SHADES], [sign for _, sign in SHADES], "·")
    # The goal is absorbing, so its count says nothing.
    return np.where(world.letters == "G", "G", shade)


def _panel(world: GridWorld, letters: np.ndarray, title: str, note: str) -> Panel:
    text = Text(no_wrap=True)
    for row in world.paint(letters, "#"):
        for letter in row:
            text.append(letter, STYLES.get(letter, ""))
        text.append("\n")
    text.rstrip()
    # A narrow map still needs room for its title.
    width = max(world.cells.shape[1], len(title) + 2, len(note) + 2) + 4
    return Panel(text, title=title, subtitle=note, width=width)
