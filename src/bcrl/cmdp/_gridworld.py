"""The grid world of the paper's appendix: noisy moves on a map of text characters."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path

import numpy as np
from scipy import sparse

from bcrl.cmdp._model import CMDP
from bcrl.errors import BCRLError

MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
ARROWS = "↑→↓←"
LEGEND = "S start, G goal, X costs 1 a step, Y costs 1 of a second kind, # wall, . free"


@dataclass(frozen=True)
class GridWorld:
    """A map and its noise. States are the cells that are not walls, numbered row by row.

    The intended move happens with probability 1 − slip, the other three share `slip`; walls and edges
    stop. A step earns −1 until the goal, and costs 1 while standing on X (first cost) or Y (second).
    """

    name: str
    rows: tuple[str, ...]
    slip: float = 0.2
    gamma: float = 0.99

    def __post_init__(self) -> None:
        if not 0 <= self.slip <= 1:
            raise BCRLError(f"slip must lie in [0, 1], not {self.slip}")
        if not self.rows or len({len(row) for row in self.rows}) != 1:
            raise BCRLError(f"map {self.name}: all lines must have the same length")
        text = "".join(self.rows)
        odd = sorted(set(text) - set("SGXY#."))
        if odd:
            line, row = next((i, row) for i, row in enumerate(self.rows, 1) if odd[0] in row)
            raise BCRLError(
                f"map {self.name}, line {line}, column {row.index(odd[0]) + 1}: unknown {odd[0]!r} ({LEGEND})"
            )
        for letter, what in (("S", "start"), ("G", "goal")):
            if letter not in text:
                raise BCRLError(f"map {self.name} has no {what} {letter} ({LEGEND})")

    @classmethod
    def load(cls, name: str, slip: float = 0.2, gamma: float = 0.99) -> "GridWorld":
        """The grid world of a name in `layouts()`, or of a text file."""
        if name in layouts():
            text = (files("bcrl.cmdp") / "maps" / f"{name}.txt").read_text(encoding="utf-8")
        elif Path(name).is_file():
            text = Path(name).read_text(encoding="utf-8")
        else:
            raise BCRLError(f"there is no map {name!r}: give a text file or one of {', '.join(layouts())}")
        lines = [line.rstrip() for line in text.splitlines()]
        return cls(name, tuple(line for line in lines if line), slip, gamma)

    @classmethod
    def random(cls, size: int, slip: float = 0.2, gamma: float = 0.99, seed: int = 0) -> "GridWorld":
        """A random size × size map with 20 % X; S and G in the middle of the left and right edges."""
        cells = np.where(np.random.default_rng(seed).random((size, size)) < 0.2, "X", ".")
        cells[size // 2, 0], cells[size // 2, -1] = "S", "G"
        return cls(f"random {size}×{size}", tuple("".join(row) for row in cells), slip, gamma)

    @cached_property
    def cells(self) -> np.ndarray:
        """The characters, (height, width)."""
        return np.array([list(row) for row in self.rows])

    @cached_property
    def positions(self) -> np.ndarray:
        """Row and column of every state, (S, 2)."""
        return np.argwhere(self.cells != "#")

    @cached_property
    def letters(self) -> np.ndarray:
        """The character under every state, (S,)."""
        return self.cells[tuple(self.positions.T)]

    def paint(self, values: Sequence | np.ndarray, wall: object) -> np.ndarray:
        """The values, one per state, laid out on the map."""
        values = np.asarray(values)
        grid = np.full(self.cells.shape, wall, dtype=np.result_type(values, np.asarray(wall)))
        grid[tuple(self.positions.T)] = values
        return grid

    @cached_property
    def cmdp(self) -> CMDP:
        """The map as a model: costs X, and Y too when the map has one."""
        states, actions = len(self.positions), len(MOVES)
        number = self.paint(np.arange(states), -1)
        edge = np.array(number.shape) - 1
        target = np.clip(self.positions[:, None] + MOVES, 0, edge)
        landing = number[target[..., 0], target[..., 1]]
        landing = np.where(landing < 0, np.arange(states)[:, None], landing)  # (state, direction)
        chance = np.where(np.eye(actions, dtype=bool), 1 - self.slip, self.slip / (actions - 1))
        shape = (states, actions, actions)  # (state, action, direction)
        row = np.broadcast_to(np.arange(states * actions).reshape(states, actions, 1), shape)
        column = np.broadcast_to(landing[:, None], shape)
        goal = self.letters == "G"
        entries = (np.broadcast_to(chance, shape).ravel(), (row.ravel(), column.ravel()))
        transitions = sparse.csr_array(entries, shape=(states * actions, states))
        keep = sparse.diags_array(np.repeat(~goal, actions).astype(float))
        kinds = "XY" if "Y" in self.letters else "X"
        costs = [np.repeat((self.letters == kind)[:, None], actions, 1).astype(float) for kind in kinds]
        rewards = np.repeat(np.where(goal, 0.0, -1.0)[:, None], actions, 1)
        start = (self.letters == "S") / (self.letters == "S").sum()
        return CMDP(keep @ transitions, rewards, np.stack(costs), self.gamma, start, goal)


def layouts() -> list[str]:
    """The names of the maps in the package."""
    folder = files("bcrl.cmdp") / "maps"
    return sorted(item.name[:-4] for item in folder.iterdir() if item.name.endswith(".txt"))
