"""Page of a comparison or a study: verdict, failed runs, figures, and tables of all runs."""

import base64
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from p2pkm.analysis.conclusion import BEST, describe_test, format_verdict
from p2pkm.analysis.explanation import TESTS, Explanation, explain
from p2pkm.analysis.paired_tests import (
    COMMON,
    EQUIVALENT,
    MARGIN,
    PERSONAL,
    SEEDS,
    UNDECIDED,
    PairedTest,
    Verdicts,
    check_margin,
    judge_blocks,
    list_standings,
)
from p2pkm.analysis.study_table import (
    Study,
    average,
    describe_quality_loss,
    find_axes,
    name_run,
    name_sides,
    read_margin,
)
from p2pkm.core.errors import DataError
from p2pkm.core.units import count, format_bytes
from p2pkm.metrics.milestones import OF_CENTRAL, never_reached, write_share
from p2pkm.metrics.registry import ShownIn, keys
from p2pkm.storage.study_folder import TABLES, read_table
from p2pkm.storage.study_mark import read_mark
from p2pkm.storage.study_rows import Row
from p2pkm.viz.figures.comparison import plot_quality
from p2pkm.viz.figures.explained import plot_explained
from p2pkm.viz.figures.seeds import plot_differences, plot_seeds
from p2pkm.viz.report.html import Cell, Content, Html, fold, label_column, section, tabulate, tag, write
from p2pkm.viz.report.narrative import describe_ratio
from p2pkm.viz.report.page import render_page
from p2pkm.viz.svg import draw_inline

_ALWAYS = ("algorithm", "graph")  # options that name a run even if they are equal in all runs
# What the costs of the two metrics that rank configurations are compared with.
_REFERENCES = {COMMON: "central k-means", PERSONAL: "a common clustering on test points of the devices"}
_STRIKING = ("faults", "stale_policy", "byzantine", "robust", "min_cluster_size", "noise", "transforms")
# Options of a run that `p2pkm compare` does not accept.
_NOT_IN_COMPARE = ("seed", "graph", "algorithm", "rank_partition", "require_converged", "checkpoint_every")
_LISTED = 1_000  # most runs in the table of all runs
_LEFT_OUT = {"trace", "key", "error", "centroids_sha256"}
_AGAINST = {
    "bytes": "Quality against plain bytes",
    "bytes_busiest": "Quality against plain bytes at the busiest device",
}


def draw_rows(kind: str, folder: Path, defaults: dict[str, Any]) -> str:
    """Render the page of a comparison or a study.

    Parameters
    ----------
    kind : {"comparison", "study"}
    folder : Path
    defaults : dict
        Options of a run with their defaults.

    Raises
    ------
    DataError
        If the comparison or study has not ended, or one of its files cannot be read.
    """
    try:
        rows = read_table(folder)
        settings = {"base": read_mark(folder), "margin": read_margin(folder)} | {"defaults": defaults}
        compared = _read_json(folder / "summary.json")
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} cannot be read: {type(error).__name__}: {error}") from None
    if rows is None:
        raise DataError(
            f"{folder} does not contain {TABLES[0]}: this {kind} has not ended. Run the same command again to complete "
            "it"
        )
    try:
        return _draw(kind, folder, rows, settings | compared)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} cannot be read: {type(error).__name__}: {error}") from None


def _read_json(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def _draw(kind: str, folder: Path, rows: Sequence[Row], settings: dict[str, Any]) -> str:
    good, bad = ([row for row in rows if (row.get("error") is None) is fine] for fine in (True, False))
    axes = _find_axes(rows, settings["defaults"])
    means = average_seeds(good, [name for name in axes if name != "seed"])
    groups = {name_row(row, [name for name in axes if name != "seed"]): runs_by_seed(row) for row in means}
    margin = check_margin(settings.get("margin", MARGIN))
    blocks = judge_blocks(groups, None, margin)
    sentence = Study(list(rows), margin=margin).conclusion()
    explanation = explain(good, find_axes(good), len(bad))
    figures = [
        *_draw_seeds(Study(good, margin=margin), sentence),
        *_collect_figures(kind, folder, settings.get("table", ())),
    ]
    paragraphs = _judge_blocks(means, axes, (len(good), len(bad)), blocks)
    paragraphs[-1] += _describe_faults(settings)
    title = f"{kind.capitalize()} of {count(len(rows), 'run')} over {', '.join(axes) or 'nothing'}"
    body: list[Content] = [
        tag("header", tag("p", f"p2pkm: report of a {kind}", class_="kind"), tag("h1", title)),
        section(
            "Verdict",
            tag("blockquote", tag("p", sentence), class_="quote"),
            *(tag("p", text, class_="verdict") for text in paragraphs),
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
        _explain(explanation, good),
        section(
            "Tables",
            _list_means(means, axes),
            *(table for label, verdicts in blocks.items() for table in _list_standings(verdicts, margin, label)),
            *(table for verdicts in blocks.values() for table in _list_differences(verdicts, settings)),
            _list_runs(good, axes),
        ),
        _repeat(kind, folder, settings),
    ]
    return render_page(title, body, ["tables.js"])


def _explain(explanation: Explanation, rows: Sequence[Row]) -> Html:
    """Build the section on graph measures and outcomes; empty with a single graph."""
    if explanation.graphs < 2:
        return Html("")
    title = "Graph measures and outcomes"
    notes = [tag("p", f"{note[0].upper()}{note[1:]}.", class_="note") for note in explanation.notes]
    if not explanation.correlations:
        return section(title, *notes)
    alt = f"Heat map of rank correlations, a panel per method. {explanation.headline}"
    figure = Html(draw_inline(partial(plot_explained, rows), "explained"))
    return section(
        title,
        tag("p", explanation.headline),
        tag("div", tag("figure", figure, tabindex=0, role="group", aria_label=alt), class_="figures"),
        _list_predictors(explanation),
        tag("p", TESTS, class_="note"),
        *notes,
    )


def _list_predictors(explanation: Explanation) -> Html:
    """Build a table of the best predictors of each outcome, with the strongest correlation."""
    rows: list[list[Cell]] = []
    for strongest, *predictors in explanation.list_best():
        cells: list[Cell] = []
        for predictor in predictors:
            cells += [" + ".join(predictor["measures"]), 100 * predictor["explained"]]
        mark = "" if strongest["significant"] else " (not significant)"
        reach = f"{strongest['correlation']:+.2f} [{strongest['low']:+.2f}, {strongest['high']:+.2f}]{mark}"
        lead: list[Cell] = [strongest["method"], strongest["devices"], strongest["graphs"], strongest["outcome"]]
        rows.append([*lead, strongest["measure"], reach, *cells, *[None] * (4 - len(cells))])
    head: list[Content] = [
        "method", "devices", "graphs", "outcome", "strongest correlation", "value and 95 % interval", "best measure",
        "explained (%)", "best two measures", "explained (%)",
    ]  # fmt: skip
    return tabulate("Measures that go with an outcome and predict it on other graphs", head, rows, sortable=True)


def _find_axes(rows: Sequence[Row], options: dict[str, Any]) -> list[str]:
    """List the options that differ between runs, and always the method and the graph."""
    # The row of a run has the option --rounds as rounds_asked; its "rounds" is a result.
    names = {*options, "rounds_asked"} - {"rounds"}
    values: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, set()).update([] if value is None else [str(value)])
    return [name for name, known in values.items() if name in names and (name in _ALWAYS or len(known) > 1)]


def average_seeds(rows: Sequence[Row], axes: Sequence[str]) -> list[Row]:
    """Average the runs that differ only in their seeds; each row of means has the worst device and lists its runs."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(_write_option(row.get(name)) for name in axes), []).append(row)
    means = []
    for names, group in groups.items():
        mean: Row = {**dict(zip(axes, names, strict=True)), "runs": len(group), "seeds": len(group), "group": group}
        means.append(mean | average(group, keys(ShownIn.MEANS)))
    return means


def _write_option(value: Any) -> str:
    return "" if value is None else str(value)


def name_row(row: Row, axes: Sequence[str]) -> str:
    """Name a run: gtvmin on ring, seed 3."""
    parts = [
        f"{name.replace('_', ' ')} {_write_option(row.get(name))}"
        for name in axes
        if name not in ("algorithm", "graph")
    ]
    return ", ".join([name_run(_write_option(row.get("algorithm")), _write_option(row.get("graph"))), *parts])


def _judge_blocks(
    means: Sequence[Row], axes: Sequence[str], runs: tuple[int, int], blocks: dict[str, Verdicts]
) -> list[str]:  # fmt: skip
    """Summarize the configurations of each block on the same points in a paragraph."""
    name = partial(name_row, axes=[axis for axis in axes if axis != "seed"])
    if len(blocks) < 2:
        return [judge(means, axes, runs, verdicts) for verdicts in blocks.values()]
    return [
        _describe_runs(runs),
        *(
            f"{label}: {judge([row for row in means if name(row) in verdicts.names], axes, None, verdicts)}"
            for label, verdicts in blocks.items()
        ),
    ]


def _describe_runs(runs: tuple[int, int]) -> str:
    good, bad = runs
    return f"{good} run{'s' * (good != 1)} completed" + (f", {bad} failed." if bad else ", none failed.")


def judge(means: Sequence[Row], axes: Sequence[str], runs: tuple[int, int] | None, verdicts: Verdicts) -> str:
    """Summarize a study: the best, the cheapest within 1 % of it, the worst, and the rounds to central k-means.

    Parameters
    ----------
    means : sequence of Row
        See `average_seeds`.
    axes : sequence of str
        Options that differ between runs.
    runs : tuple of int or None
        Numbers of completed and failed runs; None: not shown.
    verdicts : Verdicts
    """
    name = partial(name_row, axes=[axis for axis in axes if axis != "seed"])
    words = [] if runs is None else [_describe_runs(runs)]
    figure = verdicts.figure
    against = _REFERENCES[figure]
    rated = sorted((row for row in means if row[figure] is not None), key=lambda row: row[figure])
    if not rated:
        return " ".join([*words, f"None was compared with {against}."])
    best, worst = rated[0], rated[-1]
    few = len(rated) > 1 and min(len(row["group"]) for row in rated) < SEEDS
    words.append(f"{'Lowest cost' if few else 'Best'}: {name(best)}, whose centroids cost "
                 f"{describe_ratio(best[figure])} {against}, with "
                 f"{format_bytes(best['bytes'])} of plain bytes a run.")  # fmt: skip
    if few:
        words.append(f"With fewer than {SEEDS} seeds, differences cannot be distinguished from chance.")
    else:
        words += _list_similar(verdicts, name(best), "it")
    candidates = [row for row in rated if row[figure] <= 1.01 * best[figure]]
    cheapest = min(candidates, key=lambda row: row["bytes"])
    if cheapest is not best:
        words.append(f"Fewest plain bytes within 1 % of it: {name(cheapest)} ({describe_ratio(cheapest[figure])} "
                     f"{against}) with {format_bytes(cheapest['bytes'])}.")  # fmt: skip
    gap = verdicts.pair(name(worst), name(best))
    if worst is not best and (few or (gap is not None and gap.verdict not in (EQUIVALENT, UNDECIDED))):
        title = "Highest cost" if few else "Worst"
        words.append(f"{title}: {name(worst)}, {describe_ratio(worst[figure])} {against}.")
        words += [] if few else _list_similar(verdicts, name(worst), "the worst")
    return " ".join([*words, *_describe_reached(rated, name), *_describe_worse(rated, name)])


def _list_similar(verdicts: Verdicts, name: str, pronoun: str) -> list[str]:
    """List the configurations that are equivalent to a given one, and those not distinguished from it."""
    similar: dict[str, list[str]] = {EQUIVALENT: [], UNDECIDED: []}
    for other in verdicts.names:
        gap = verdicts.pair(other, name)
        verdict = UNDECIDED if gap is None else gap.verdict
        if other != name and verdict in similar:
            similar[verdict].append(other)
    titles = {EQUIVALENT: f"Equivalent to {pronoun}", UNDECIDED: f"Not distinguished from {pronoun}"}
    return [f"{titles[verdict]}: {'; '.join(names)}." for verdict, names in similar.items() if names]


def runs_by_seed(mean: Row) -> dict[int, Row]:
    """Map the seeds of a configuration to its runs."""
    return {row["seed"]: row for row in mean["group"]}


def _draw_seeds(study: Study, sentence: str) -> list[Html]:
    """Draw small multiples of all runs, and the differences to the best; an empty list without cost ratios."""
    rated = [row for row in study.rows if row.get("ratio_mean") is not None]
    draws: dict[str, tuple[Callable[..., Any], str]] = {}
    if rated:
        draws["seeds"] = (plot_seeds, "Small multiples: the cost of every run above central k-means, a dot per seed")
    if len(find_axes(rated)) > 0:
        draws["differences"] = (plot_differences, f"Configurations relative to the best. {sentence}")
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


def _list_standings(verdicts: Verdicts, margin: float, label: str) -> list[Html]:
    """Build a table of the configurations on the same points relative to the best: effects, intervals and verdicts."""
    rows: list[list[Cell]] = []
    for standing in list_standings(verdicts):
        cells: list[Cell] = [None, None, None]
        if standing.gap is not None:
            cells = _show_effect(standing.gap)
        verdict = format_verdict(standing.gap) if rows else BEST
        rows.append([standing.name, standing.mean, *cells, verdict])
    if len(rows) < 2:
        return []
    head: list[Content] = ["configuration", label_column(verdicts.figure), *_head_effect(verdicts), "verdict"]
    where = f" for {label}" if label else ""
    caption = f"Relative to the best{where}, same seeds. {describe_test(verdicts, margin)}"
    return [tabulate(caption, head, rows, sortable=True)]


def _show_effect(gap: PairedTest) -> list[Cell]:
    """Return the cells of an effect and of the interval on which its verdict is based; a ratio in percent."""
    if gap.scale == "ratio":
        return [None if value is None else 100 * (value - 1) for value in (gap.effect, *gap.interval)]
    return [gap.effect, *gap.interval]


def _head_effect(verdicts: Verdicts) -> list[Content]:
    """Return the titles of the columns of `_show_effect`."""
    effect = "cost difference (%)" if verdicts.scale == "ratio" else "difference"
    return [effect, "interval of the verdict: from", "to"]


def _list(rows: Sequence[Row], name: Callable[[Row], str]) -> str:
    return "; ".join(map(name, rows))


def _describe_reached(rated: Sequence[Row], name: Callable[[Row], str]) -> list[str]:
    """Describe which configurations were first within 1 % of central k-means to the end, and which never were."""
    method_rounds, all_rounds = "method_rounds_to_1pct_of_central", "rounds_to_1pct_of_central"
    reached = sorted((row for row in rated if row[method_rounds] is not None), key=lambda row: row[method_rounds])
    words = []
    if reached:
        first = reached[0]
        share = write_share(first)
        spent = [first[method_rounds], first[all_rounds], share]
        tied = [row for row in reached if [row[method_rounds], row[all_rounds], write_share(row)] == spent]
        names = " and ".join(map(name, tied)) if len(tied) == 2 else _list(tied, name)
        words.append(
            f"Within 1 % of central k-means first: {names}, after {first[method_rounds]:.3g} "
            f"round{'s' * (first[method_rounds] != 1)} ({first[all_rounds]:.3g} with initialization{share})."
        )
    never = [row for row in rated if row["reached_central"] == 0]
    return words + ([f"Never within 1 % of it: {_list(never, name)}."] if never else [])


def _describe_worse(rated: Sequence[Row], name: Callable[[Row], str]) -> list[str]:
    worse = [(row, change) for row in rated if (change := describe_quality_loss(row["group"]))]
    changes = "; ".join(f"{name(row)}, {change}" for row, change in worse)
    return [f"Quality got worse before the end of {changes}."] if worse else []


def _describe_faults(settings: dict[str, Any]) -> str:
    """Describe the faults, Byzantine devices and defenses of all runs by their options."""
    options = settings.get("base") or {}
    words = [f"--{name.replace('_', '-')} {options[name]}" for name in _STRIKING if options.get(name)]
    return f" All runs with {', '.join(words)}." if words else ""


def _name_failures(bad: Sequence[Row], axes: Sequence[str]) -> Html:
    if not bad:
        return Html("")
    rows = [[name_row(row, axes) or "a run", str(row["error"])] for row in bad]
    return section("Failed runs", tag("div", tabulate(f"{len(bad)} failed", ("run", "error"), rows), class_="bad"))


def _collect_figures(kind: str, folder: Path, table: Sequence[Row]) -> list[Html]:
    """Draw the figures of a comparison; embed the figures in the folder of a study as images."""
    if kind == "comparison":
        if not any(row["ratio_mean"] is not None for row in table):
            return []
        draws = {name: Html(draw_inline(partial(plot_quality, table, against=name), name)) for name in _AGAINST}
        return [tag("figure", draws[name], tabindex=0, role="group", aria_label=alt) for name, alt in _AGAINST.items()]
    # The heat map of graph measures is in the section on them.
    return [_embed(path) for path in sorted((folder / "figures").glob("*.svg")) if path.stem != "explained"]


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
    metrics = [name for name in keys(ShownIn.MEANS) if any(row[name] is not None for row in means)]
    rows: list[list[Cell]] = [
        [*(row[name] for name in (*names, "runs")), *(_write_mean(row, name) for name in metrics)] for row in means
    ]
    head: list[Content] = [*names, "runs", *map(label_column, metrics)]
    caption = "Means over seeds (for the worst device: the maximum); click on a title to sort"
    return tabulate(caption, head, rows, sortable=True)


def _write_mean(row: Row, name: str) -> Cell:
    """Return a mean as a cell, with the share of runs within 1 % of central k-means if not all came that close."""
    if never_reached(row, name):
        return "never"
    share = write_share(row) if name.endswith(OF_CENTRAL) and row[name] is not None else ""
    return f"{write(row[name])}{share}" if share else row[name]


def _list_differences(verdicts: Verdicts, settings: dict[str, Any]) -> list[Html]:
    """Build a table of the verdicts of a comparison relative to its reference."""
    rows: list[list[Cell]] = []
    for difference in settings.get("differences", ()):
        gap = verdicts.pair(*name_sides(difference))
        if gap is not None:
            rows.append([" against ".join(name_sides(difference)), gap.seeds, *_show_effect(gap), format_verdict(gap)])
    if not rows:
        return []
    head: list[Content] = ["pair", "seeds", *_head_effect(verdicts), "verdict"]
    return [tabulate(f"Relative to {settings['reference']}, same seeds and tests", head, rows, sortable=True)]


def _list_runs(rows: Sequence[Row], axes: Sequence[str]) -> Html:
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in _LEFT_OUT]
    names = [*axes, *(name for name in names if name not in axes)]
    columns = [name for name in names if name in axes or any(row.get(name) is not None for row in rows)]
    cells: list[list[Cell]] = [[_plain(row.get(name)) for name in columns] for row in rows[:_LISTED]]
    left_out = f", the first {_LISTED:,} of {len(rows):,}" if len(rows) > _LISTED else ""
    heads = [label_column(name) for name in columns]
    return fold(f"All runs ({len(rows):,})", tabulate(f"Runs{left_out}", heads, cells, sortable=True))


def _plain(value: Any) -> Cell:
    if isinstance(value, bool) or not isinstance(value, (str, int, float, type(None))):
        return str(value)
    return value


def _repeat(kind: str, folder: Path, settings: dict[str, Any]) -> Html:
    """Build the command that repeats a comparison, from its options, or a study, from its file."""
    if kind == "comparison":
        asked = settings["base"]
        seeds = asked["seeds"] if isinstance(asked["seeds"], str) else ",".join(map(str, asked["seeds"]))
        words = [
            "python", "-m", "p2pkm", "compare", "--algorithm", ",".join(asked["grid"]["algorithm"]), "--graph",
            ",".join(asked["grid"]["graph"]), "--seeds", seeds,
        ]  # fmt: skip
        options = _write_options(asked, settings["defaults"])
        command = shlex.join([*words, *options])
        return section("How to repeat it", _write_command(command, command))
    files = sorted(folder.glob("*.toml"))
    if not files:
        return section(
            "How to repeat it", tag("p", "The folder does not contain the file of the study.", class_="note")
        )
    command = shlex.join(["python", "-m", "p2pkm", "study", str(files[0].resolve())])
    text = files[0].read_text("utf-8")
    return section("How to repeat it", _write_command(command, text), fold(files[0].name, tag("pre", text)))


def _write_command(command: str, options: str) -> Html:
    """Return the command that repeats a study, or a note if its options refer to objects of a Python program."""
    if "object:" not in options and "(object " not in options:
        return tag("pre", command)
    note = "Options are objects of a Python program: run the program again, with the same folder."
    return tag("p", note, class_="note")


def _write_options(options: dict[str, Any], defaults: dict[str, Any]) -> list[str]:
    """Write options as words of a command line, except those with their default value."""
    words = list[str]()
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if name in _NOT_IN_COMPARE or name not in defaults or defaults[name] == value:
            continue
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            words += [flag, str(value)]
    return words
