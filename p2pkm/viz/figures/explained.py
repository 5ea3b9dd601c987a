"""Rank correlations between graph measures and outcomes of a study: a heat map per method."""

from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.analysis.explanation import OUTCOMES, Row, explain
from p2pkm.analysis.graph_measures import DEVICES, MEASURES
from p2pkm.analysis.study_table import find_axes, read_ended
from p2pkm.core.errors import DataError
from p2pkm.core.units import count
from p2pkm.viz.looks import finish_figure, is_narrow
from p2pkm.viz.names import break_name
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import add_color_bar, choose_text_color, open_axes, set_name_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ACROSS = 4  # most panels in a row
_MOST = 12  # methods that are drawn
_CELL = (0.42, 0.2)  # inches; width and height
_LEFT, _RIGHT, _TOP = 2.0, 1.2, 0.75  # inches for names of measures, color bar and title
_BELOW = 1.45  # inches for names of outcomes
_BETWEEN = (0.25, 0.45)  # inches between panels
_SHORTEST = 16  # letters in a line of the title of a panel, at least
_LETTER = 0.085  # inches; width of a letter in the title of a panel
_LINE = 13  # points; height of a line of it
_SHORT = {"ratio_worst": "worst device", "bytes_busiest": "plain bytes, busiest"}


@with_own_settings
def plot_explained(study: Any, ax: "Axes | None" = None) -> "Figure":
    """Draw the rank correlations of graph measures with outcomes, one panel per method.

    The color is the correlation, the mean over numbers of devices. The number is written if it is significant at every
    number of devices, see `p2pkm.Study.explain`. Outcomes and measures without a correlation are gray.

    Parameters
    ----------
    study : path, pandas.DataFrame, list of dict or Study
        With at least 8 graphs.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        The panels are its ``child_axes``.

    Raises
    ------
    DataError
        If there are too few graphs.
    """
    rows = read_ended(study)
    explanation = explain(rows, find_axes(rows))
    correlations = explanation.correlations
    if not correlations:
        raise DataError(explanation.notes[0])
    methods = list(dict.fromkeys(row["method"] for row in correlations))
    shown = methods[:_MOST]
    measures = [name for name in (*MEASURES, DEVICES) if any(row["measure"] == name for row in correlations)]
    outcomes = [name for name in OUTCOMES if any(row["outcome"] == OUTCOMES[name] for row in correlations)]
    across = 1 if is_narrow() else -(-len(shown) // -(-len(shown) // _ACROSS))
    down = -(-len(shown) // across)
    wide, high = _CELL[0] * len(outcomes), _CELL[1] * len(measures)
    titles = [break_name(method, max(int(wide / _LETTER), _SHORTEST)) for method in shown]
    above = max(title.count("\n") for title in titles)
    between = _BETWEEN[0], _BETWEEN[1] + above * _LINE / 72
    inner = across * wide + (across - 1) * between[0], down * high + (down - 1) * between[1]
    width, height = _LEFT + inner[0] + _RIGHT, _TOP + above * _LINE / 72 + inner[1] + _BELOW
    ax = open_axes(ax, width, height, left=_LEFT / width, right=1 - _RIGHT / width, bottom=_BELOW / height,
                   top=1 - (_TOP + above * _LINE / 72) / height)  # fmt: skip
    ax.set_axis_off()
    few = f", the first {_MOST} of {count(len(methods), 'method')}" if len(methods) > _MOST else ""
    ax.set_title(f"Rank correlation of graph measures with outcomes, {count(explanation.graphs, 'graph')}{few}",
                 fontsize=11, loc="left", pad=22 + _LINE * above)  # fmt: skip
    for number, method in enumerate(shown):
        row, column = divmod(number, across)
        place = (column * (wide + between[0]) / inner[0], 1 - (row * (high + between[1]) + high) / inner[1],
                 wide / inner[0], high / inner[1])  # fmt: skip
        panel = ax.inset_axes(place)
        image = _draw_panel(panel, [row for row in correlations if row["method"] == method], measures, outcomes)
        panel.set_title(titles[number], fontsize=9, loc="left")
        set_name_ticks(panel.yaxis, measures if column == 0 else [""] * len(measures),
                       [name.replace("_", " ") for name in measures] if column == 0 else None)  # fmt: skip
        names = [_SHORT.get(name, OUTCOMES[name]) for name in outcomes]
        is_lowest = number + across >= len(shown)
        set_name_ticks(panel.xaxis, names if is_lowest else [""] * len(names))
        panel.tick_params("x", rotation=90)
        panel.tick_params(length=0, labelsize=8.5)
    add_color_bar(ax, image, "rank correlation", (1 + 0.25 / inner[0], 0.0, 0.15 / inner[0], 1.0))
    return finish_figure(ax)


def _draw_panel(panel: "Axes", correlations: list[Row], measures: list[str], outcomes: list[str]) -> Any:
    """Draw the heat map of a method."""
    cells = np.full((len(measures), len(outcomes)), np.nan)
    marked = np.zeros(cells.shape, np.bool_)
    for i, measure in enumerate(measures):
        for j, outcome in enumerate(outcomes):
            group = [row for row in correlations if (row["measure"], row["outcome"]) == (measure, OUTCOMES[outcome])]
            if group:
                cells[i, j] = np.mean([row["correlation"] for row in group])
                signs = {row["correlation"] > 0.0 for row in group}
                marked[i, j] = all(row["significant"] for row in group) and len(signs) == 1
    image = panel.imshow(np.ma.masked_invalid(cells), cmap="RdBu_r", vmin=-1.0, vmax=1.0, aspect="auto",
                         interpolation="nearest")  # fmt: skip
    panel.set_facecolor("#E4E4E4")
    for i, j in np.argwhere(marked):
        ink = choose_text_color(image.cmap(image.norm(cells[i, j])))
        panel.text(j, i, f"{cells[i, j]:+.2f}", ha="center", va="center", fontsize=7, color=ink)
    return image
