"""Several runs in one figure: convergence, bytes, and cost against bytes, with a band over the seeds of a run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.units import count
from p2pkm.core.validation import as_list, check_choice
from p2pkm.metrics.registry import find
from p2pkm.viz.figures.convergence import place_rounds, read_records
from p2pkm.viz.looks import finish_figure
from p2pkm.viz.names import name_graph
from p2pkm.viz.open_run import open_run
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import CATEGORIES, GRAY, format_counts, format_tick_labels, is_wide, label_axes, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.metrics.result import Result
    from p2pkm.viz.open_run import Run

_LINEAR = 0.1  # excess in percent below which the axis is linear
_LINES = ("-", "--", ":", "-.")
_TITLES = {
    "convergence": "Convergence of several runs",
    "bytes": "Plain bytes of several runs",
    "cost": "Cost of several runs against plain bytes",
}


@with_own_settings
def overlay(
    results: "Sequence[Run]", labels: Sequence[str] | None = None, ax: "Axes | None" = None, *,
    show: str = "convergence",
) -> "Figure":  # fmt: skip
    """Draw several runs as curves of one figure; runs with equal labels, such as seeds, become a mean with a band.

    The band extends from the smallest to the largest value. A run that has ended keeps its last value, so that runs of
    different length can be averaged.

    Parameters
    ----------
    results : sequence of Result, or of paths of run folders
    labels : sequence of str, optional
        Label of each run. None: method and graph.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.
    show : {"convergence", "bytes", "cost"}, default="convergence"
        * "convergence": cost over the rounds of all stages: that of the test points over that of a common clustering if
          all runs have test points, else cost above central k-means, or the objective if no run was compared with it.
        * "bytes": bytes sent so far, over the rounds.
        * "cost": the same cost, against bytes.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ExperimentError
        If the numbers of runs and labels differ, or `show` is unknown.
    DataError
        If a run has not recorded the values.

    Examples
    --------
    >>> import p2pkm, topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=40, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 4, seed=0), devices=4)
    >>> graphs = {"ring": topologies.ring(4), "complete": topologies.complete(4)}
    >>> runs = [p2pkm.simulate(p2pkm.GTVMin(3), graph, shards, rounds=3, seed=seed)
    ...         for graph in graphs.values() for seed in (0, 1)]
    >>> figure = p2pkm.viz.overlay(runs, labels=["ring", "ring", "complete", "complete"])
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['ring (2 seeds)', 'complete (2 seeds)']
    """
    check_choice(show, tuple(_TITLES), "show")
    groups = _group(results, labels)
    value = "bytes" if show == "bytes" else _choose_value([run for runs in groups.values() for run in runs])
    against = "bytes" if show == "cost" else "round"
    ax = open_axes(ax, 7.0, 4.5, left=0.12, right=0.96)
    ends = [_draw_group(ax, number, name, [_read_curve(run, value, against) for run in runs])
            for number, (name, runs) in enumerate(groups.items())]  # fmt: skip
    percent = value == "ratio_mean"
    several = any(len(runs) > 1 for runs in groups.values())
    y = "cost above central k-means (%)" if percent else find(value).axis
    title = _TITLES[show] + (": mean, and smallest to largest over seeds" if several else "")
    label_axes(ax, title, find("bytes").axis if against == "bytes" else "round, all stages", y)
    _scale(ax, np.concatenate(ends), percent=percent)
    for axis, name in ((ax.xaxis, against), (ax.yaxis, value)):
        if name == "bytes":
            format_counts(axis, "B")
    ax.legend(loc="best", fontsize=8.5, frameon=False)
    return finish_figure(ax)


def _group(results: Any, labels: Any) -> "dict[str, list[Result]]":
    """Return the runs of each label, in the order of the labels."""
    runs = [open_run(run) for run in as_list(results, "results")]
    if not runs:
        raise ExperimentError("results has 0 runs; expected at least one Result or path of a run folder")
    names = [_label(run) for run in runs] if labels is None else [str(label) for label in as_list(labels, "labels")]
    if len(names) != len(runs):
        raise ExperimentError(f"labels has {count(len(names), 'entry', 'entries')}; expected one for each of the "
                              f"{count(len(runs), 'run')}. Runs with equal labels become one curve")  # fmt: skip
    groups: dict[str, list[Result]] = {}
    for name, run in zip(names, runs, strict=True):
        groups.setdefault(name, []).append(run)
    return groups


def _label(run: "Result") -> str:
    """Return the default label of a run: its method with all options, and its graph."""
    method, graph = run.summary["algorithm"], name_graph(run.summary["graph"])
    return f"{method} on {graph}" if graph and run.topology.hub < 0 else str(method)


def _choose_value(runs: "Sequence[Result]") -> str:
    """Return the metric of cost that all runs have recorded."""
    for value in ("test_ratio_common", "ratio_mean", "objective"):
        if all(np.isfinite(read_records(run.rounds, value)).any() for run in runs):
            return value
    raise DataError(
        "the runs have no common metric of cost: some were not compared with central k-means. Remove --no-baselines "
        "(in Python baselines=False), or use show='bytes'"
    )


def _read_curve(run: "Result", value: str, against: str) -> tuple[Floats, Floats]:
    """Return the known records of a run, float64[r] each; costs above central k-means are in percent."""
    places = place_rounds(run.rounds)[0] if against == "round" else read_records(run.rounds, against)
    values = read_records(run.rounds, value)
    known = np.isfinite(places) & np.isfinite(values)
    return places[known], 100 * (values[known] - 1) if value == "ratio_mean" else values[known]


def _draw_group(ax: "Axes", number: int, name: str, curves: list[tuple[Floats, Floats]]) -> Floats:
    """Draw the mean curve of runs, and their band; return all values."""
    color = CATEGORIES[number % len(CATEGORIES)]
    line = _LINES[number // len(CATEGORIES) % len(_LINES)]
    grid = np.unique(np.concatenate([places for places, _ in curves]))
    # Every curve is a step function: the last record holds until the next one.
    last = [np.searchsorted(places, grid, side="right") - 1 for places, _ in curves]
    table = np.array([np.where(at >= 0, values[at], np.nan)
                      for at, (_, values) in zip(last, curves, strict=True)])  # fmt: skip
    # Left of the first record of a run, the others alone would be the mean.
    complete = np.isfinite(table).all(axis=0)
    grid, table = grid[complete], table[:, complete]
    seeds = f" ({count(len(curves), 'seed')})" if len(curves) > 1 else ""
    label = f"{name}{seeds}"
    ax.plot(grid, table.mean(axis=0), color=color, linestyle=line, linewidth=1.5, zorder=3,
            marker="o" if len(grid) == 1 else None, label=f" {label}" if label.startswith("_") else label)  # fmt: skip
    if len(curves) > 1:
        ax.fill_between(grid, table.min(axis=0), table.max(axis=0), color=color, alpha=0.2, linewidth=0, zorder=2)
    return table.ravel()


def _scale(ax: "Axes", values: Floats, *, percent: bool) -> None:
    """Set a logarithmic vertical axis if values span several magnitudes, linear around 0 for costs in percent."""
    if percent and (is_wide(values) or values.min() < 0):
        ax.set_yscale("symlog", linthresh=_LINEAR)
        ax.set_ylim(min(2 * float(values.min()), -0.3 * _LINEAR), max(2 * float(values.max()), _LINEAR))
        ax.axhline(0, color=GRAY, linewidth=0.6, zorder=0)
        format_tick_labels(ax.yaxis)
