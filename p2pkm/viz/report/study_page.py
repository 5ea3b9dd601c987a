"""The page of many runs: a comparison or a study, with its failed runs by name."""

import base64
import json
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from p2pkm.core.errors import DataError
from p2pkm.core.units import count, write_size
from p2pkm.metrics.milestones import OF_CENTRAL, never_reached, write_share
from p2pkm.metrics.registry import Table, keys
from p2pkm.storage.paired_tests import LEVEL, TEST, Standing, compare_pairs, conclude, rank
from p2pkm.storage.study_table import Row, average, find_axes, judge_gap, name_run, name_sides, tell_worse
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
_NAMED = 3  # configurations that a sentence names
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
        asked |= {"base": load_toml(str(study), "study")} if kind == "study" and study.is_file() else {}
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
    means = _average(good, [name for name in axes if name != "seed"])
    groups = {_name(row, [name for name in axes if name != "seed"]): _by_seed(row) for row in means}
    sentence = conclude(groups)
    figures = [*_draw_seeds(good, sentence), *_collect_figures(kind, folder, told.get("table", ()))]
    title = f"{kind.capitalize()} of {count(len(rows), 'run')} over {', '.join(axes) or 'nothing'}"
    body: list[Content] = [
        tag("header", tag("p", f"p2pkm: report of a {kind}", class_="kind"), tag("h1", title)),
        section(
            "Verdict",
            tag("blockquote", tag("p", sentence), class_="quote"),
            tag("p", _judge(means, axes, len(good), len(bad)) + _fault_sentence(told), class_="verdict"),
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
            *_list_standings(rank(groups, "ratio_mean")),
            *_list_differences(told),
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


def _average(rows: Sequence[Row], axes: Sequence[str]) -> list[Row]:
    """Return a row for all runs that differ in their seeds alone: means, the worst device of all, and the runs."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(_tell(row.get(name)) for name in axes), []).append(row)
    found = []
    for names, group in groups.items():
        mean: Row = {**dict(zip(axes, names, strict=True)), "runs": len(group), "seeds": len(group), "group": group}
        found.append(mean | average(group, keys(Table.MEANS)))
    return found


def _tell(value: Any) -> str:
    return "" if value is None else str(value)


def _name(row: Row, axes: Sequence[str]) -> str:
    """Return a run in words: gtvmin on ring, seed 3."""
    rest = [f"{name.replace('_', ' ')} {_tell(row.get(name))}" for name in axes if name not in ("algorithm", "graph")]
    return ", ".join([name_run(_tell(row.get("algorithm")), _tell(row.get("graph"))), *rest])


def _judge(means: Sequence[Row], axes: Sequence[str], good: int, bad: int) -> str:
    """Return what came out: the best, the cheapest nearly as good, the worst, who came near central k-means, and when.

    What a paired test over the seeds does not tell apart is called tied.
    """
    name = partial(_name, axes=[one for one in axes if one != "seed"])
    words = [f"{good} run{'s' * (good != 1)} ended" + (f", {bad} failed." if bad else ", none failed.")]
    rated = sorted((row for row in means if row["ratio_mean"] is not None), key=lambda row: row["ratio_mean"])
    if not rated:
        return " ".join([*words, "None was compared with central k-means."])
    best, worst = rated[0], rated[-1]
    tied = {one.name for one in rank({name(row): _by_seed(row) for row in rated}, "ratio_mean") if one.tied}
    level = [row for row in rated if name(row) in tied]
    behind = [row for row in rated if row is not worst and _is_tied(row, worst)]
    single = min(len(row["group"]) for row in rated) < 2 and len(rated) > 1
    title = "Lowest cost" if single else "Best"
    words.append(f"{title}: {name(best)}, whose centroids cost {tell_ratio(best['ratio_mean'])} central k-means, "
                 f"with {write_size(best['bytes'])} a run.")  # fmt: skip
    if single:
        words.append("With one seed differences cannot be told from chance.")
    elif level:
        words.append(f"Tied with it ({TEST}): {_list(level, name)}.")
    near = [row for row in rated if row["ratio_mean"] <= 1.01 * best["ratio_mean"]]
    thrift = min(near, key=lambda row: row["bytes"])
    if thrift is not best:
        words.append(f"Cheapest within 1 % of it: {name(thrift)} ({tell_ratio(thrift['ratio_mean'])} central "
                     f"k-means) with {write_size(thrift['bytes'])}.")  # fmt: skip
    if worst is not best and worst not in level:
        also = f", tied with {_list(behind, name)}" if behind and not single else ""
        title = "Highest cost" if single else "Last"
        words.append(f"{title}: {name(worst)}, {tell_ratio(worst['ratio_mean'])} central k-means{also}.")
    return " ".join([*words, *_tell_reached(rated, name), *_tell_worse(rated, name)])


def _is_tied(one: Row, other: Row) -> bool:
    """Return whether the seeds that two configurations share do not tell their costs apart."""
    gap = compare_pairs(_by_seed(one), _by_seed(other), "ratio_mean")
    return gap is None or gap.p is None or gap.p >= LEVEL


def _by_seed(mean: Row) -> dict[int, Row]:
    """Return the runs of a configuration by their seeds."""
    return {row["seed"]: row for row in mean["group"]}


def _draw_seeds(rows: Sequence[Row], sentence: str) -> list[Html]:
    """Return small multiples with every run, and the paired differences to the best; nothing without a comparison."""
    rated = [row for row in rows if row.get("ratio_mean") is not None]
    draws: dict[str, tuple[Callable[..., Any], str]] = {}
    if rated:
        draws["seeds"] = (plot_seeds, "Small multiples: the cost of every run above central k-means, a dot per seed")
    if len(find_axes(rated)) > 0:
        draws["differences"] = (plot_differences, f"Paired differences to the best. {sentence}")
    return [
        tag("figure", Html(draw_inline(partial(draw, rated), name)), tabindex=0, role="group", aria_label=alt)
        for name, (draw, alt) in draws.items()
    ]


def _list_standings(standings: Sequence[Standing]) -> list[Html]:
    """Return the configurations against the best: mean differences with 95 % intervals, and which are tied."""
    rows: list[list[Cell]] = []
    for one in standings:
        verdict = {True: "tied", False: "worse", None: "one seed: may be chance"}[one.tied] if one.gap else "best"
        mean, low, high = one.gap[:3] if one.gap else (None, None, None)
        rows.append([one.name, one.mean, mean, low, high, verdict])
    if len(rows) < 2:
        return []
    head: list[Content] = ["configuration", title_of("ratio_mean"), "difference to the best", "95 %: from", "to",
                           "verdict"]  # fmt: skip
    return [tabulate(f"Against the best, same seeds: {TEST}; intervals by Student's t, each without correction", head,
                     rows, sortable=True)]  # fmt: skip


def _list(rows: Sequence[Row], name: Callable[[Row], str]) -> str:
    more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    return "; ".join(map(name, rows[:_NAMED])) + more


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
    worse = [(row, how) for row in rated if (how := tell_worse(row["group"]))]
    more = f" and of {len(worse) - _NAMED} more" if len(worse) > _NAMED else ""
    told = "; ".join(f"{name(row)}, {how}" for row, how in worse[:_NAMED])
    return [f"Quality got worse before the end of {told}{more}."] if worse else []


def _fault_sentence(told: dict[str, Any]) -> str:
    """State which faults and Byzantine devices all runs had, and which defense they used."""
    options = told.get("base") or {}
    words = [f"--{name.replace('_', '-')} {options[name]}" for name in _STRIKING if options.get(name)]
    return f" All runs with {', '.join(words)}." if words else ""


def _name_failures(bad: Sequence[Row], axes: Sequence[str]) -> Html:
    if not bad:
        return Html("")
    rows = [[_name(row, axes) or "a run", str(row["error"])] for row in bad]
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
    figures = [name for name in keys(Table.MEANS) if any(row[name] is not None for row in means)]
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


def _list_differences(told: dict[str, Any]) -> list[Html]:
    """Return the paired differences of a comparison."""
    rows: list[list[Cell]] = []
    for one in told.get("differences", ()):
        gap = one["ratio_mean"]
        if gap is not None:
            pair = " – ".join(name_sides(one))
            rows.append([pair, one["seeds"], gap["mean"], gap["low"], gap["high"], judge_gap(gap)])
    if not rows:
        return []
    gap = title_of("ratio_mean", "difference of ratio")
    head = ("pair", "seeds", gap, "95 %: from", "to", "verdict")
    return [tabulate(f"Differences to {told['reference']}, same seeds; bootstrap intervals, without correction", head,
                     rows, sortable=True)]  # fmt: skip


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
