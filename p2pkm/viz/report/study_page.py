"""The page of many runs: a comparison or a study, with its failed runs by name."""

import base64
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from p2pkm.core.errors import DataError
from p2pkm.core.units import count, format_bytes
from p2pkm.metrics.milestones import OF_CENTRAL, never_reached, write_share
from p2pkm.metrics.registry import ShownIn, keys
from p2pkm.storage.conclusion import BEST, conclude, describe_test, format_equivalence_interval, format_verdict
from p2pkm.storage.paired_tests import (
    EQUIVALENT,
    MARGIN,
    SEEDS,
    UNDECIDED,
    Verdicts,
    check_margin,
    list_standings,
)
from p2pkm.storage.study_table import (
    Row,
    Study,
    average,
    describe_quality_loss,
    find_axes,
    name_run,
    name_sides,
    read_margin,
)
from p2pkm.storage.toml import load_toml
from p2pkm.viz.figures.comparison import plot_quality
from p2pkm.viz.figures.seeds import plot_differences, plot_seeds
from p2pkm.viz.report.html import Cell, Content, Html, fold, section, tabulate, tag, title_of, write
from p2pkm.viz.report.narrative import tell_ratio
from p2pkm.viz.report.page import render_page
from p2pkm.viz.svg import draw_inline

_ALWAYS = ("algorithm", "graph")  # named even if all are the same
_STRIKING = ("faults", "stale_policy", "byzantine", "robust", "min_cluster_size", "noise", "transforms")
_UNSPOKEN = (
    "seed",
    "graph",
    "algorithm",
    "rank_partition",
    "require_converged",
    "checkpoint_every",
)  # by no comparison
_LISTED = 1_000  # runs
_LEFT_OUT = {"trace", "key", "error", "centroids_sha256"}
_AGAINST = {"bytes": "Quality against bytes", "bytes_busiest": "Quality against bytes at the busiest device"}


def draw_rows(kind: str, folder: Path, usual: dict[str, Any]) -> str:
    """Return the page of a folder of kind comparison or study; usual: the options of a run and their defaults.

    Raises
    ------
    DataError
        If it has not ended, or a file of it cannot be read.
    """
    try:
        rows = _read_lines(folder / ("study.jsonl" if kind == "study" else "rows.jsonl"))
        asked = _read_json(folder / "comparison.json")
        compared = _read_json(folder / "summary.json")
        study = folder / "study.toml"
        if kind == "study" and study.is_file():
            asked |= {"base": load_toml(str(study), "study"), "margin": read_margin(folder)}
        return _draw(kind, folder, rows, asked | compared | {"usual": usual})
    except FileNotFoundError as error:
        name = Path(error.filename).name
        raise DataError(
            f"{folder} has no {name}: this {kind} has not ended; the same command goes on with it"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} cannot be read: {type(error).__name__}: {error}") from None


def _read_lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def _read_json(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return found if isinstance(found, dict) else {}


def _draw(kind: str, folder: Path, rows: Sequence[Row], told: dict[str, Any]) -> str:
    good, bad = ([row for row in rows if (row.get("error") is None) is fine] for fine in (True, False))
    axes = _find_axes(rows, told["usual"])
    means = average_seeds(good, [name for name in axes if name != "seed"])
    groups = {name_row(row, [name for name in axes if name != "seed"]): runs_by_seed(row) for row in means}
    verdicts = Verdicts(groups, "ratio_mean", margin := check_margin(told.get("margin", MARGIN)))
    sentence = conclude(groups, margin=margin)
    figures = [
        *_draw_seeds(Study(good, margin=margin), sentence),
        *_collect_figures(kind, folder, told.get("table", ())),
    ]
    title = f"{kind.capitalize()} of {count(len(rows), 'run')} over {', '.join(axes) or 'nothing'}"
    body: list[Content] = [
        tag("header", tag("p", f"p2pkm: report of a {kind}", class_="kind"), tag("h1", title)),
        section(
            "Verdict",
            tag("blockquote", tag("p", sentence), class_="quote"),
            tag("p", judge(means, axes, (len(good), len(bad)), verdicts) + _fault_sentence(told), class_="verdict"),
        ),
        _name_failures(bad, axes),
        section(
            "Figures",
            tag(
                "div",
                *(figures or [tag("p", "No run was compared with central k-means.", class_="note")]),
                class_="figures",
            ),
        ),
        section(
            "In numbers",
            _list_means(means, axes),
            *_list_standings(verdicts, margin),
            *_list_differences(verdicts, told),
            _list_runs(good, axes),
        ),
        _repeat(kind, folder, told),
    ]
    return render_page(title, body, ["tables.js"])


def _find_axes(rows: Sequence[Row], options: dict[str, Any]) -> list[str]:
    """Return the options that differ between the runs, and the method and the graph in any case."""
    asked = {*options, "rounds_asked"} - {"rounds"}
    values: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, set()).update([] if value is None else [str(value)])
    return [name for name, known in values.items() if name in asked and (name in _ALWAYS or len(known) > 1)]


def average_seeds(rows: Sequence[Row], axes: Sequence[str]) -> list[Row]:
    """Average the runs that differ only in their seeds: one row of means, the worst device and the runs each."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(_tell(row.get(name)) for name in axes), []).append(row)
    found = []
    for names, group in groups.items():
        mean: Row = {**dict(zip(axes, names, strict=True)), "runs": len(group), "seeds": len(group), "group": group}
        found.append(mean | average(group, keys(ShownIn.MEANS)))
    return found


def _tell(value: Any) -> str:
    return "" if value is None else str(value)


def name_row(row: Row, axes: Sequence[str]) -> str:
    """Name a run: gtvmin on ring, seed 3."""
    rest = [f"{name.replace('_', ' ')} {_tell(row.get(name))}" for name in axes if name not in ("algorithm", "graph")]
    return ", ".join([name_run(_tell(row.get("algorithm")), _tell(row.get("graph"))), *rest])


def judge(means: Sequence[Row], axes: Sequence[str], runs: tuple[int, int], verdicts: Verdicts) -> str:
    """Summarize a study: the best, the cheapest nearly as good, the worst, and the runs near central k-means.

    runs: how many ended and failed.
    """
    name = partial(name_row, axes=[one for one in axes if one != "seed"])
    good, bad = runs
    words = [f"{good} run{'s' * (good != 1)} ended" + (f", {bad} failed." if bad else ", none failed.")]
    rated = sorted((row for row in means if row["ratio_mean"] is not None), key=lambda row: row["ratio_mean"])
    if not rated:
        return " ".join([*words, "None was compared with central k-means."])
    best, worst = rated[0], rated[-1]
    few = len(rated) > 1 and min(len(row["group"]) for row in rated) < SEEDS
    words.append(f"{'Lowest cost' if few else 'Best'}: {name(best)}, whose centroids cost "
                 f"{tell_ratio(best['ratio_mean'])} central k-means, with "
                 f"{format_bytes(best['bytes'])} a run.")  # fmt: skip
    if few:
        words.append(f"With fewer than {SEEDS} seeds differences cannot be told from chance.")
    else:
        words += _list_alike(verdicts, name(best), "it")
    near = [row for row in rated if row["ratio_mean"] <= 1.01 * best["ratio_mean"]]
    thrift = min(near, key=lambda row: row["bytes"])
    if thrift is not best:
        words.append(f"Cheapest within 1 % of it: {name(thrift)} ({tell_ratio(thrift['ratio_mean'])} central "
                     f"k-means) with {format_bytes(thrift['bytes'])}.")  # fmt: skip
    gap = verdicts.pair(name(worst), name(best))
    if worst is not best and (few or (gap is not None and gap.verdict not in (EQUIVALENT, UNDECIDED))):
        title = "Highest cost" if few else "Last"
        words.append(f"{title}: {name(worst)}, {tell_ratio(worst['ratio_mean'])} central k-means.")
        words += [] if few else _list_alike(verdicts, name(worst), "the last")
    return " ".join([*words, *_tell_reached(rated, name), *_tell_worse(rated, name)])


def _list_alike(verdicts: Verdicts, name: str, pronoun: str) -> list[str]:
    """Return which configurations are equivalent to one, and which are not distinguished from it."""
    found: dict[str, list[str]] = {EQUIVALENT: [], UNDECIDED: []}
    for other in verdicts.names:
        gap = verdicts.pair(other, name)
        verdict = UNDECIDED if gap is None else gap.verdict
        if other != name and verdict in found:
            found[verdict].append(other)
    titles = {EQUIVALENT: f"Equivalent to {pronoun}", UNDECIDED: f"Not distinguished from {pronoun}"}
    return [f"{titles[verdict]}: {'; '.join(names)}." for verdict, names in found.items() if names]


def runs_by_seed(mean: Row) -> dict[int, Row]:
    """Map the seeds of a configuration to its runs."""
    return {row["seed"]: row for row in mean["group"]}


def _draw_seeds(study: Study, sentence: str) -> list[Html]:
    """Return small multiples with every run, and all configurations beside the best; nothing without a comparison."""
    rated = [row for row in study.rows if row.get("ratio_mean") is not None]
    draws: dict[str, tuple[Callable[..., Any], str]] = {}
    if rated:
        draws["seeds"] = (plot_seeds, "Small multiples: the cost of every run above central k-means, a dot per seed")
    if len(find_axes(rated)) > 0:
        draws["differences"] = (plot_differences, f"Configurations beside the best. {sentence}")
    return [
        tag(
            "figure",
            Html(draw_inline(partial(draw, replace(study, rows=rated)), name)),
            tabindex=0,
            role="group",
            aria_label=alt,
        )
        for name, (draw, alt) in draws.items()
    ]


def _list_standings(verdicts: Verdicts, margin: float) -> list[Html]:
    """Return the configurations beside the best: effects with their intervals, and the verdicts."""
    standings = list_standings(verdicts)
    rows: list[list[Cell]] = []
    for place, one in enumerate(standings):
        gap: list[Cell] = [None, None, None, None, None]
        if one.gap is not None:
            gap = [one.gap.difference, one.gap.effect, one.gap.low, one.gap.high, format_equivalence_interval(one.gap)]
        rows.append([one.name, one.mean, *gap, format_verdict(one.gap) if place else BEST])
    if len(rows) < 2:
        return []
    head: list[Content] = ["configuration", title_of("ratio_mean"), "mean difference", *_head_effect(verdicts.scale),
                           "90 % interval of the log ratio", "verdict"]  # fmt: skip
    return [tabulate(f"Beside the best, same seeds. {describe_test(verdicts, margin)}", head, rows, sortable=True)]


def _head_effect(scale: str) -> list[Content]:
    """Return the titles of an effect and its interval."""
    what = {"excess": "excess, times", "ratio": "cost, times"}.get(scale, "difference")
    return [what, "corrected 95 %: from", "to"]


def _list(rows: Sequence[Row], name: Callable[[Row], str]) -> str:
    return "; ".join(map(name, rows))


def _tell_reached(rated: Sequence[Row], name: Callable[[Row], str]) -> list[str]:
    """State which configurations came within 1 % of central k-means for good, the first, and which never did."""
    first, figure = "method_rounds_to_1pct_of_central", "rounds_to_1pct_of_central"
    came = sorted((row for row in rated if row[first] is not None), key=lambda row: row[first])
    words = []
    if came:
        soon = came[0]
        told = [soon[first], soon[figure], write_share(soon)]
        level = [row for row in came if [row[first], row[figure], write_share(row)] == told]
        who = " and ".join(map(name, level)) if len(level) == 2 else _list(level, name)
        words.append(f"Within 1 % of central k-means first: {who}, after {soon[first]:.3g} "
                     f"round{'s' * (soon[first] != 1)} ({soon[figure]:.3g} with initialization{told[2]}).")  # fmt: skip
    never = [row for row in rated if row["reached_central"] == 0]
    return words + ([f"Never within 1 % of it: {_list(never, name)}."] if never else [])


def _tell_worse(rated: Sequence[Row], name: Callable[[Row], str]) -> list[str]:
    worse = [(row, how) for row in rated if (how := describe_quality_loss(row["group"]))]
    told = "; ".join(f"{name(row)}, {how}" for row, how in worse)
    return [f"Quality got worse before the end of {told}."] if worse else []


def _fault_sentence(told: dict[str, Any]) -> str:
    """State which faults and Byzantine devices all runs had, and which defense they used."""
    options = told.get("base") or {}
    words = [f"--{name.replace('_', '-')} {options[name]}" for name in _STRIKING if options.get(name)]
    return f" All runs with {', '.join(words)}." if words else ""


def _name_failures(bad: Sequence[Row], axes: Sequence[str]) -> Html:
    if not bad:
        return Html("")
    rows = [[name_row(row, axes) or "a run", str(row["error"])] for row in bad]
    return section("Failed runs", tag("div", tabulate(f"{len(bad)} failed", ("run", "error"), rows), class_="bad"))


def _collect_figures(kind: str, folder: Path, table: Sequence[Row]) -> list[Html]:
    """Return the figures: drawn anew of a comparison, of a study those that it keeps, as pictures of their own."""
    if kind == "comparison":
        if not any(row["ratio_mean"] is not None for row in table):
            return []
        draws = {name: Html(draw_inline(partial(plot_quality, table, against=name), name)) for name in _AGAINST}
        return [tag("figure", draws[name], tabindex=0, role="group", aria_label=alt) for name, alt in _AGAINST.items()]
    return [_embed(path) for path in sorted((folder / "figures").glob("*.svg"))]


def _embed(path: Path) -> Html:
    name = path.stem.replace("_", " ")
    text = base64.b64encode(path.read_bytes()).decode()
    return tag(
        "figure",
        tag("img", src=f"data:image/svg+xml;base64,{text}", alt=name),
        tabindex=0,
        role="group",
        aria_label=name,
    )


def _list_means(means: Sequence[Row], axes: Sequence[str]) -> Html:
    names = [name for name in axes if name != "seed"]
    figures = [name for name in keys(ShownIn.MEANS) if any(row[name] is not None for row in means)]
    rows: list[list[Cell]] = [[*(row[name] for name in (*names, "runs")), *(_reached(row, name) for name in figures)]
                              for row in means]  # fmt: skip
    head: list[Content] = [*names, "runs", *map(title_of, figures)]
    return tabulate(
        "Means over seeds (of the worst device the worst); a click on a title sorts",
        head,
        rows,
        sortable=True,
    )


def _reached(row: Row, name: str) -> Cell:
    """Return a mean as a cell; in words where not all runs came within 1 % of central k-means."""
    if never_reached(row, name):
        return "never"
    share = write_share(row) if name.endswith(OF_CENTRAL) and row[name] is not None else ""
    return f"{write(row[name])}{share}" if share else row[name]


def _list_differences(verdicts: Verdicts, told: dict[str, Any]) -> list[Html]:
    """Return the verdicts of a comparison beside its reference."""
    rows: list[list[Cell]] = []
    for one in told.get("differences", ()):
        gap = verdicts.pair(*name_sides(one))
        if gap is not None:
            pair = " – ".join(name_sides(one))
            rows.append([pair, gap.seeds, gap.difference, gap.effect, gap.low, gap.high, format_verdict(gap)])
    if not rows:
        return []
    head: list[Content] = ["pair", "seeds", "mean difference", *_head_effect(verdicts.scale), "verdict"]
    return [tabulate(f"Beside {told['reference']}, same seeds and tests", head, rows, sortable=True)]


def _list_runs(rows: Sequence[Row], axes: Sequence[str]) -> Html:
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in _LEFT_OUT]
    names = [*axes, *(name for name in names if name not in axes)]
    kept = [name for name in names if name in axes or any(row.get(name) is not None for row in rows)]
    cells: list[list[Cell]] = [[_plain(row.get(name)) for name in kept] for row in rows[:_LISTED]]
    left_out = f", the first {_LISTED:,} of {len(rows):,}" if len(rows) > _LISTED else ""
    heads = [title_of(name) for name in kept]
    return fold(f"All runs ({len(rows):,})", tabulate(f"Runs{left_out}", heads, cells, sortable=True))


def _plain(value: Any) -> Cell:
    if isinstance(value, bool) or not isinstance(value, (str, int, float, type(None))):
        return str(value)
    return value


def _repeat(kind: str, folder: Path, told: dict[str, Any]) -> Html:
    """Return the command that does it again: of a comparison from what was asked, of a study from its file."""
    if kind == "comparison":
        words = ["python", "-m", "p2pkm", "compare", "--algorithm", ",".join(told["algorithms"]), "--graph",
                 ",".join(told["graphs"]), "--seeds", ",".join(map(str, told["seeds"]))]  # fmt: skip
        return section("How to repeat it", tag("pre", shlex.join([*words, *_spell(told["base"], told["usual"])])))
    files = sorted(folder.glob("*.toml"))
    if not files:
        return section("How to repeat it", tag("p", "The folder does not hold the file of the study.", class_="note"))
    command = shlex.join(["python", "-m", "p2pkm", "sweep", str(files[0].resolve())])
    return section(
        "How to repeat it", tag("pre", command), fold(files[0].name, tag("pre", files[0].read_text("utf-8")))
    )


def _spell(options: dict[str, Any], usual: dict[str, Any]) -> list[str]:
    """Return options as words of a command line, but for those that are what they would be anyway."""
    words = list[str]()
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if name in _UNSPOKEN or value is None or usual.get(name) == value:
            continue
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            words += [flag, str(value)]
    return words
