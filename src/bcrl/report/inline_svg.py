"""A matplotlib figure as SVG that can stand inside an HTML page."""

import io
import re
from typing import TYPE_CHECKING

from bcrl.report.figure import style
from bcrl.report.markup import HTML, element, join
from bcrl.report.theme import PAGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def inline_svg(figure: "Figure", name: str, description: str) -> HTML:
    """The picture with the page's colours and letters, and `description` for those who do not see it.

    `name` is a word of its own in the page: ids of several pictures must not meet.
    """
    text = io.StringIO()
    with style(PAGE):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    found = re.search(r'<svg[^>]*?viewBox="([^"]+)"[^>]*>(.*)</svg>', text.getvalue(), re.DOTALL)
    assert found is not None
    view, inside = found.groups()
    inside = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", inside, flags=re.DOTALL)
    inside = _own_ids(inside, name)
    for word, colour in PAGE.named().items():
        inside = inside.replace(colour, f"var(--{word})")
    inside = re.sub(r"font-family: [^;\"]+", "font-family: inherit", inside)
    inside = re.sub(r"(font: [^;\"]*?px) [^;\"]+", r"\1 var(--font)", inside)
    title = element("title", description, id=f"{name}-title")
    return element(
        "svg", join(title, HTML(inside)), viewBox=view, role="img", aria_labelledby=f"{name}-title"
    )


def _own_ids(svg: str, name: str) -> str:
    """Ids that nothing refers to are dropped, the others get `name` in front."""
    used = set(re.findall(r"[\"(]#([\w.-]+)[\")]", svg))
    svg = re.sub(r' id="([^"]+)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", svg)
    return re.sub(r"([\"(])#([\w.-]+)([\")])", rf"\1#{name}-\2\3", svg)
