"""Colours. Series are those of Okabe and Ito, told apart by the colour-blind, and each has its own marker."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Theme:
    ink: str
    muted: str
    grid: str
    paper: str
    over: str
    """Where a promise is broken."""
    series: tuple[str, ...]

    def named(self) -> dict[str, str]:
        """Colour by the name it has in the page's style sheet."""
        plain = {name: getattr(self, name) for name in ("ink", "muted", "grid", "paper", "over")}
        return plain | {f"series-{i}": colour for i, colour in enumerate(self.series)}


LIGHT = Theme(
    ink="#1c2127",
    muted="#5b6570",
    grid="#dfe3e8",
    paper="#ffffff",
    over="#b3430a",
    series=("#0072b2", "#d55e00", "#00805d", "#a8447f", "#9a6a00", "#3a3f9e"),
)
DARK = Theme(
    ink="#e8eaed",
    muted="#a3adb8",
    grid="#343b44",
    paper="#15181d",
    over="#ff9a62",
    series=("#5ab8f0", "#ff8f4d", "#2ecb9c", "#ec9bcb", "#f0bd4f", "#a9b0ff"),
)
# Stand-ins for an SVG inside a page: they are replaced by the page's own colours, which follow the reader's
# choice of light or dark.
PAGE = Theme(
    ink="#f00d01",
    muted="#f00d02",
    grid="#f00d03",
    paper="#f00d04",
    over="#f00d05",
    series=("#f00d10", "#f00d11", "#f00d12", "#f00d13", "#f00d14", "#f00d15"),
)

MARKERS = (("o", "●"), ("s", "■"), ("^", "▲"), ("D", "◆"), ("v", "▼"), ("X", "✖"))
"""Of each series: for matplotlib, and as a character for the legend of the page."""
