"""Convergence of a run: quality, objective and total variation over the rounds of all stages."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Mask
from p2pkm.metrics.milestones import find_best, is_best, is_personal, is_worse
from p2pkm.metrics.registry import find
from p2pkm.viz.looks import finish_figure, is_narrow, is_tight
from p2pkm.viz.names import describe_run
from p2pkm.viz.open_run import open_run
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import (
    BLUE,
    GRAY,
    GREEN,
    INK,
    PALE,
    PURPLE,
    RED,
    choose_steps,
    format_tick_labels,
    is_wide,
    open_axes,
    write_number,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.viz.open_run import Run

_MARKED = 40  # records; above, only isolated records get a mark
_LETTER = 0.014  # width of a letter of a stage name, as a share of the axes' width
_LEAST_DISTANCE = 0.025  # of two stage names, as a share of the axes' width
_TICKS = 12  # most numbered rounds
_EXACT = 1e-7  # excess in percent; smaller ones are rounding errors and drawn as 0


class Span(NamedTuple):
    """Interval of a stage on the axis of rounds: name, first and last place, and the round at the first place."""

    name: str
    first: float
    last: float
    start: int


class Panel(NamedTuple):
    """Curve of one metric with its texts; best: index of the record after which quality got worse, or None."""

    title: str
    label: str
    color: str
    values: Floats
    best: int | None = None


@with_own_settings
def plot_convergence(result: "Run", ax: "Axes | None" = None) -> "Figure":
    """Draw quality, objective and total variation over the recorded rounds of all stages.

    Panels share the axis of rounds, with one shaded band per stage: the excess cost over central k-means, the
    objective, and the total variation (with a server, the ARI of the clients). With test points the first panel is
    their cost relative to a common clustering; it takes the place of the excess cost where the devices have better
    centroids of their own. Panels without values are omitted; rounds without a value are gaps. The panels are
    ``ax.child_axes``.

    Parameters
    ----------
    result : Result, or path of a run folder
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    result = open_run(result)
    panels = _choose_panels(result.rounds, result.summary)
    height = 1.4 + 1.65 * len(panels)
    places, spans = place_rounds(result.rounds)
    slant = max((max(24.0, 3.8 * len(span.name) - 19.0) for span in spans if _is_narrow(span, spans)), default=0.0)
    top = 1 - (0.87 + slant / 72) / height
    ax = open_axes(ax, 5.0 if is_narrow() else 7.0, height, left=0.14, right=0.9, bottom=0.55 / height, top=top)
    ax.set_axis_off()
    ax.set_title(f"Convergence: {describe_run(result.summary)}", fontsize=11, loc="left", pad=42 + slant)
    room = 1 / (len(panels) + 0.28 * (len(panels) - 1))
    for i, panel in enumerate(panels):
        bottom = (len(panels) - 1 - i) * 1.28 * room
        axes = ax.inset_axes((0, bottom, 1, room))
        _draw_panel(axes, panel, places)
        _shade(axes, spans, named=i == 0)
        _number_rounds(axes, spans, named=i == len(panels) - 1)
    return finish_figure(ax)


def place_rounds(rounds: Sequence[dict[str, Any]]) -> tuple[Floats, list[Span]]:
    """Place the records on the axis of rounds, float64[r], and list the stages in order.

    Round 0 of a stage is one place after the last round of the previous stage.
    """
    places: list[float] = []
    spans: list[Span] = []
    for record in rounds:
        name = str(record["stage"])
        t = int(record["round"])
        # The same stage may run twice in a row: then its rounds start again.
        if not spans or name != spans[-1].name or t <= spans[-1].start + spans[-1].last - spans[-1].first:
            place = places[-1] + 1 if places else 0.0
            spans.append(Span(name, place, place, t))
        else:
            place = spans[-1].first + t - spans[-1].start
            spans[-1] = spans[-1]._replace(last=place)
        places.append(place)
    return np.array(places), spans


def _choose_panels(rounds: Sequence[dict[str, Any]], summary: Mapping[str, Any]) -> list[Panel]:
    """Return the panels with values, or the panel of the objective if none has any."""
    tests, ratio, objective, gtv, ari = (
        read_records(rounds, name) for name in ("test_ratio_common", "ratio_mean", "objective", "gtv", "ari_clients")
    )
    # For groups of devices and centroids of each device, the ratio to central k-means does not measure quality.
    is_quality = summary.get("ratio_best") is not None and not is_personal(summary)
    excess = 100 * (ratio - 1)
    excess[np.abs(excess) < _EXACT] = 0.0
    if np.isfinite(tests).any() and not is_quality:
        excess[:] = np.nan
    worse = _find_worse(rounds) if is_quality else None
    panels = [
        Panel("Cost of the test points of each device (a common clustering = 1)", "relative test cost", PURPLE, tests),
        Panel("Cost above central k-means (mean over devices)", "excess cost (%)", BLUE, excess, worse),
        _panel("objective", RED, objective),
        _panel("ari_clients", GREEN, ari) if np.isfinite(ari).any() else _panel("gtv", GREEN, gtv),
    ]
    return [panel for panel in panels if np.isfinite(panel.values).any()] or panels[2:3]


def _panel(key: str, color: str, values: Floats) -> Panel:
    """Return the panel of a registered metric."""
    metric = find(key)
    return Panel(metric.heading, metric.unit or metric.label, color, values)


def _shorten(panel: Panel) -> Panel:
    """Return the panel with its unit in the title, and without the explanation in the label."""
    unit = panel.label.removeprefix("excess cost (").removesuffix(")")
    return panel._replace(title=f"{re.split(r': | [(]', panel.title)[0]} ({unit})", label="")


def _find_worse(rounds: Sequence[dict[str, Any]]) -> int | None:
    """Return the last record before the mean ratio got worse; None if the last ratio is as good as the best."""
    best = find_best(rounds)
    known = [i for i, record in enumerate(rounds) if record.get("ratio_mean") is not None]
    if not known or not is_worse(rounds[known[-1]]["ratio_mean"], best["ratio_best"]):
        return None
    return max(i for i in known if is_best(rounds[i]["ratio_mean"], best["ratio_best"]))


def read_records(rounds: Sequence[dict[str, Any]], name: str) -> Floats:
    """Return a metric of every record, float64[r]; NaN where it is unknown."""
    values = np.array([np.nan if record.get(name) is None else record[name] for record in rounds], np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _draw_panel(axes: "Axes", panel: Panel, places: Floats) -> None:
    """Draw a curve, with its last known value to the right."""
    known = np.isfinite(panel.values)
    axes.plot(
        places, panel.values, color=panel.color, marker="o", markevery=_choose_marks(known), markersize=3.5,
        linewidth=1.5, clip_on=False, zorder=3,
    )  # fmt: skip
    panel = _shorten(panel) if is_tight() else panel
    axes.set_title(panel.title, fontsize=9, loc="left", pad=4)
    axes.set_ylabel(panel.label, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if not known.any():
        axes.text(0.5, 0.5, "nothing recorded", transform=axes.transAxes, ha="center", va="center", color=INK)
        return
    axes.set_ylabel(panel.label + _scale(axes, panel.values[known]), fontsize=9)
    if panel.best is not None:
        low = float(panel.values[panel.best])
        axes.annotate(
            f"best: {write_number(low)}, then worse", (float(places[panel.best]), low), xytext=(0, 9), color=INK,
            fontsize=8, textcoords="offset points", ha="center",
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.6},
        )  # fmt: skip
    last = float(panel.values[known][-1])
    axes.annotate(
        write_number(last), (float(places[known][-1]), last), xytext=(6, 0), textcoords="offset points", va="center",
        fontsize=9, color=INK, annotation_clip=False,
    )  # fmt: skip


def _choose_marks(known: Mask) -> list[int]:
    """Choose the records with a mark: all of a short run, else those between two unknown ones."""
    if len(known) > _MARKED:
        padded = np.concatenate(([False], known, [False]))
        known = known & ~padded[:-2] & ~padded[2:]
    return [int(i) for i in np.flatnonzero(known)]


def _scale(axes: "Axes", values: Floats) -> str:
    """Set a linear, logarithmic or (with values of 0 or below) symmetric logarithmic scale; return a label suffix."""
    from matplotlib.ticker import LogLocator

    sizes = np.abs(values[values != 0])
    low, high = (float(sizes.min()), float(sizes.max())) if len(sizes) else (0.0, 0.0)
    if is_wide(sizes) and values.min() > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=choose_steps(low, high)))
    elif is_wide(sizes):
        axes.set_yscale("symlog", linthresh=10 ** np.floor(np.log10(max(low, 1e-3 * high))))
        axes.axhline(0, color=GRAY, linewidth=0.6, zorder=1)
    elif high == 0:
        axes.set_ylim(-0.1, 1)
    elif float(np.ptp(values)) <= 1e-9 * high:
        # Constant up to rounding: automatic limits would magnify the rounding errors.
        axes.set_ylim(*sorted((0.9 * float(values[0]), 1.1 * float(values[0]))))
    return format_tick_labels(axes.yaxis)


def _shade(axes: "Axes", spans: list[Span], *, named: bool) -> None:
    """Shade every other stage, and write the stage names above, rotated if a stage is narrower than its name.

    A narrow stage that follows one of the same name has none.
    """
    low, high = (spans[0].first - 0.5, spans[-1].last + 0.5) if spans else (-0.5, 0.5)
    axes.set_xlim(low, high)
    written = -np.inf
    for i, span in enumerate(spans):
        if i % 2 == 0 and len(spans) > 1:
            axes.axvspan(span.first - 0.5, span.last + 0.5, color=PALE, linewidth=0, zorder=0)
        middle = (span.first + span.last) / 2
        if not named or middle - written < _LEAST_DISTANCE * _widen() * (high - low):
            continue
        aslant = _is_narrow(span, spans)
        if aslant and i and spans[i - 1].name == span.name:
            # The name of the stage before it stands for both.
            continue
        written = middle
        axes.annotate(
            span.name, (middle, 1), xycoords=axes.get_xaxis_transform(), xytext=(0, 17),
            textcoords="offset points", ha="left" if aslant else "center", va="bottom",
            rotation=40 if aslant else 0, rotation_mode="anchor", fontsize=9, color=INK, annotation_clip=False,
        )  # fmt: skip


def _widen() -> float:
    """Return the factor by which texts are wider, relative to the axes, in the current style."""
    return 3.0 if is_narrow() else 1.0


def _is_narrow(span: Span, spans: list[Span]) -> bool:
    """Return whether a stage is narrower than its name."""
    return span.last - span.first + 1 < _LETTER * _widen() * (len(span.name) + 1) * (spans[-1].last + 1)


def _number_rounds(axes: "Axes", spans: list[Span], *, named: bool) -> None:
    """Set ticks at round numbers within each stage; only the lowest panel has labels."""
    total = spans[-1].last + 1 if spans else 1.0
    step = next(s * 10**p for p in range(12) for s in (1, 2, 5) if total / (s * 10**p) <= _TICKS)
    ticks: dict[float, str] = {}
    for span, after in zip(spans, [*spans, None][1:], strict=True):
        # Keep some distance from the 0 of the next stage.
        end = np.inf if after is None else after.first - 0.4 * step
        rounds = [
            span.start,
            *range((span.start // step + 1) * step, span.start + int(span.last - span.first) + 1, step),
        ]
        ticks |= {span.first + t - span.start: str(t) for t in rounds if span.first + t - span.start <= end}
    axes.set_xticks(list(ticks), list(ticks.values()) if named else [""] * len(ticks))
    if named:
        axes.set_xlabel("round of the stage" if len(spans) > 1 else "round", fontsize=9)
