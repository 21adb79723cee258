"""A plot of return against cost made of characters, for `bcrl data info`."""

import math
from dataclasses import dataclass

import numpy as np

from bcrl.data._dataset import Floats, Ints

_SHADES, _PLAIN_SHADES = "·░▒▓█", ".:+#@"


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    cells: int
    whole: bool = False
    """All values are whole numbers below `high`."""

    def cell(self, values: Floats) -> Ints:
        """The cell each value falls in."""
        position = (values - self.low) / (self.high - self.low) * self.cells
        return np.clip(np.floor(position + 1e-9).astype(np.int64), 0, self.cells - 1)

    def ticks(self, about: int) -> tuple[Floats, list[str]]:
        """At most `about` + 1 evenly spaced round numbers on the axis, and their labels."""
        spread = self.high - self.low
        power = 10.0 ** math.floor(math.log10(spread / about))
        step = next(m * power for m in (1, 2, 5, 10) if spread / (m * power) <= about + 1e-9)
        if self.whole:
            step = max(step, 1.0)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        ticks = np.arange(first, last + 1) * step
        if self.whole:
            ticks = ticks[ticks < self.high]
        return ticks, _names(ticks, step)


def density_picture(
    costs: Floats,
    returns: Floats,
    *,
    width: int = 80,
    height: int = 16,
    cost_label: str = "episode cost",
    plain: bool = False,
) -> str:
    """Episodes as a shaded density with cost on x, from 0, and return on y; `plain` uses ASCII only."""
    shades = _PLAIN_SHADES if plain else _SHADES
    side, foot, y_mark, x_mark, corner = ("|", "-", "+", "+", "+") if plain else ("│", "─", "┤", "┬", "└")
    y_axis = _return_axis(returns, height)
    y_ticks, y_names = y_axis.ticks(5)
    gutter = max(7, *(len(name) + 1 for name in y_names))
    x_axis = _cost_axis(costs, max(width - gutter - 5, 20))
    x_ticks, x_names = x_axis.ticks(6)
    wide = max(1, (width - gutter - 5) // x_axis.cells)  # characters that draw one cell
    columns = x_axis.cells * wide

    counts = np.zeros((height, x_axis.cells), dtype=np.int64)
    np.add.at(counts, (height - 1 - y_axis.cell(returns), x_axis.cell(costs)), 1)
    least = _least_counts(int(counts.max()), len(shades))
    cells = np.array([" ", *shades])[np.searchsorted(least, counts, side="right")].repeat(wide, axis=1)

    heads = [" " * gutter + side] * height
    for row, name in zip(height - 1 - y_axis.cell(y_ticks), y_names, strict=True):
        heads[row] = f"{name:>{gutter}}{y_mark}"
    axis, numbers = [foot] * columns, ""
    for cell, name in zip(x_axis.cell(x_ticks), x_names, strict=True):
        column = cell * wide + wide // 2
        axis[column] = x_mark
        first = gutter + 1 + column - (len(name) - 1) // 2
        if not numbers or first > len(numbers):  # skip a label that would touch the one before
            numbers = numbers.ljust(first) + name
    return "\n".join(
        [
            f"{'return':>{gutter}}",
            *((head + "".join(row)).rstrip() for head, row in zip(heads, cells, strict=True)),
            " " * gutter + corner + "".join(axis),
            numbers,
            " " * (gutter + 1) + cost_label.center(columns).rstrip(),
            " " * (gutter + 1) + _legend(shades, least, int(counts.max()), "-" if plain else "–"),
        ]
    )


def _return_axis(returns: Floats, cells: int) -> _Axis:
    low, high = float(returns.min()), float(returns.max())
    if high - low <= 1e-6 * max(abs(low), abs(high)):  # one value up to rounding: widen the axis
        room = 0.05 * max(abs(low), abs(high)) or 1.0
        low, high = low - room, high + room
    return _Axis(low, high, cells)


def _cost_axis(costs: Floats, most_cells: int) -> _Axis:
    """An axis for costs. For whole numbers every cell covers equally many, to avoid false stripes."""
    high = float(costs.max())
    if high < 1e9 and np.array_equal(costs, np.rint(costs)):
        values = int(high) + 1
        each = math.ceil(values / most_cells)
        cells = math.ceil(values / each)
        return _Axis(0.0, float(cells * each), cells, whole=True)
    return _Axis(0.0, high, most_cells)


def _names(ticks: Floats, step: float) -> list[str]:
    if np.abs(ticks).max() >= 1e7 or step < 1e-4:
        return [f"{tick:.3g}" for tick in ticks]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{tick + 0.0:,.{decimals}f}" for tick in ticks]


def _least_counts(most: int, shades: int) -> list[int]:
    """The smallest count of each shade: 1, then growing by equal factors."""
    least = [1]
    for level in range(1, shades):
        least.append(max(least[-1] + 1, math.ceil(most ** (level / shades))))
    return least


def _legend(shades: str, least: list[int], most: int, dash: str) -> str:
    parts = []
    for shade, low, following in zip(shades, least, [*least[1:], most + 1], strict=True):
        high = min(following - 1, most)
        if low <= most:
            parts.append(f"{shade} {low}" + (f"{dash}{high}" if high > low else ""))
    return "episodes: " + "   ".join(parts)
