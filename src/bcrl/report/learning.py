"""Learning curves of runs: the critics' losses and values, as small pictures."""

from collections.abc import Mapping, Sequence

import numpy as np

from bcrl.report.document import Part
from bcrl.report.figure import blank_figure, colour_of, style
from bcrl.report.inline_svg import inline_svg
from bcrl.report.markup import HTML, element
from bcrl.report.sections import section
from bcrl.report.theme import PAGE

SIZE = (3.4, 2.6)  # inches
MOST = 8
"""Pictures."""
MOST_POINTS = 400
"""Of one line."""

Metrics = Sequence[dict[str, float]]


def learning_section(runs: Mapping[str, Metrics]) -> Part | None:
    """The curves of runs by name (`bcrl.train.folder.read_metrics`); None where nothing was logged."""
    runs = {name: rows for name, rows in runs.items() if rows}
    shown = list(dict.fromkeys(name for rows in runs.values() for name in rows[0]))
    chosen = [name for name in shown if name.endswith(("/critic_loss", "/value"))][:MOST]
    chosen = chosen or [name for name in shown if name.endswith("loss")][:MOST]
    if not chosen:
        return None
    pictures = [_picture(i, name, runs) for i, name in enumerate(chosen)]
    caption = (
        "One line per training seed. Values must not grow without limit. Losses may rise while all is well: "
        "they grow with the values."
    )
    legend = [
        element("li", [element("span", "●", style=f"color: var(--series-{i % len(PAGE.series)})"), " ", name])
        for i, name in enumerate(runs)
    ]
    body = section(
        "How it was learned",
        element("ul", legend, class_="legend") if len(runs) > 1 else "",
        element("figure", [
            element("div", pictures, class_="panels multiples"),
            element("figcaption", caption),
        ]),
    )  # fmt: skip
    return Part(body)


def _picture(number: int, metric: str, runs: Mapping[str, Metrics]) -> HTML:
    said = []
    with style(PAGE):
        figure = blank_figure(1, PAGE, SIZE)
        axes = figure.subplots()
        for i, (run, rows) in enumerate(runs.items()):
            for seed in sorted({row["seed"] for row in rows}):
                mine = [(row["step"], row[metric]) for row in rows if row["seed"] == seed and metric in row]
                if not mine:
                    continue
                thinned = np.array(mine[:: -(-len(mine) // MOST_POINTS)])
                axes.plot(
                    *thinned.T, color=colour_of(PAGE, i), linewidth=1.4, marker="." if len(mine) < 3 else ""
                )
                said.append(f"{run}, seed {seed:g}: from {mine[0][1]:.3g} to {mine[-1][1]:.3g}")
        axes.set(title=metric, xlabel="step")
        axes.locator_params(nbins=4)
    return inline_svg(figure, f"learning-{number}", f"{metric}: {'; '.join(said)}")
