"""Page of a benchmark: advice, figures, the ranking, and a section for each task and each method."""

from collections import Counter
from functools import partial

from p2pkm.analysis.bench_advice import RULE
from p2pkm.analysis.bench_blocks import DONE, check_rows, read_blocks
from p2pkm.analysis.bench_statistics import BenchEntry, BenchSummary, summarize
from p2pkm.analysis.bench_text import describe_rules, describe_verdict, write_excess, write_percent, write_ratio
from p2pkm.analysis.paired_tests import EQUIVALENT
from p2pkm.core.units import count
from p2pkm.viz.figures.bench_fronts import plot_bench_fronts
from p2pkm.viz.figures.bench_map import average_tasks, plot_bench_map
from p2pkm.viz.figures.bench_profiles import plot_bench_profiles
from p2pkm.viz.report.html import Cell, Content, Html, Number, fold, section, tabulate, tag
from p2pkm.viz.report.page import render_page
from p2pkm.viz.svg import draw_inline

# Excess above which a method fails on a task.
_FAILS = 0.05
# Tasks in each map on a phone.
_TOGETHER = 5
_ALTS = {
    "map": "Map of the excess of every method on every task",
    "profiles": "Performance profiles: share of runs within each excess, by class of trust",
    "fronts": "Excess against encoded bytes, with the Pareto front of each class of trust",
}
_WIDE = ("map", "profiles")  # figures that are as wide as the page
_LAST = 1e300  # value by which a run without a result is sorted
_REASONS = 5  # reasons that the section of a method lists


def draw_page(summary: BenchSummary) -> str:
    """Render the page of a benchmark.

    Parameters
    ----------
    summary : BenchSummary
    """
    suites = dict.fromkeys(f"{row['suite']} {row.get('suite_version', '')}".strip()
                           for row in summary.rows if row.get("suite"))  # fmt: skip
    title = f"Benchmark {', '.join(suites)}".strip()
    tasks = {
        task: summarize([row for row in summary.rows if row["task"] == task], margin=summary.margin)
        for task in sorted({row["task"] for row in summary.rows})
    }
    body: list[Content] = [
        tag("header", tag("p", "p2pkm: report of a benchmark", class_="kind"),
            tag("h1", f"{title}: {count(len(summary.main), 'method')}, {count(summary.tasks, 'task')}")),
        section("Summary", tag("blockquote", tag("p", summary.conclusion()), class_="quote"),
                tag("p", describe_rules(summary), class_="note")),
        section("Advice", tag("ul", *(tag("li", advice.sentence) for advice in summary.advice())),
                tag("p", RULE, class_="note")),
        section("Figures", tag("div", *_draw_figures(summary), class_="figures")),
        section("Ranking", _list_entries(summary)),
        section("Tasks", *(_describe_task(task, ranking) for task, ranking in tasks.items())),
        section("Methods", tag("p", f"A method wins on a task if it is the best or equivalent to it. It fails if a run "
                                    f"has no result or its excess is above {100 * _FAILS:g} %.", class_="note"),
                *_describe_methods(summary, tasks)),
    ]  # fmt: skip
    return render_page(title, body, ["tables.js"])


def _draw_figures(summary: BenchSummary) -> list[Html]:
    """Draw the figures for wide pages, and narrow ones for phones, with the map in parts."""
    order = average_tasks(read_blocks(check_rows(summary.rows), ()), [entry.entry for entry in summary.main])[0]
    parts_of_map = [order[first : first + _TOGETHER] for first in range(0, len(order), _TOGETHER)]
    draws = {
        "map": [partial(plot_bench_map, summary, tasks=part) for part in parts_of_map],
        "profiles": [partial(plot_bench_profiles, summary)],
        "fronts": [partial(plot_bench_fronts, summary)],
    }
    complete = {"map": partial(plot_bench_map, summary), **{name: draws[name][0] for name in ("profiles", "fronts")}}
    figures = []
    for name, parts in draws.items():
        figures.append(_frame(Html(draw_inline(complete[name], name)), name, "wide" if name in _WIDE else "desk"))
        figures += [
            _frame(
                Html(draw_inline(draw, f"{name}-phone-{number}", None if name == "map" else "column")), name, "phone"
            )
            for number, draw in enumerate(parts)
        ]
    return figures


def _frame(drawn: Html, name: str, kind: str) -> Html:
    return tag("figure", drawn, tabindex=0, role="group", aria_label=_ALTS[name], class_=kind)


def _list_entries(summary: BenchSummary) -> Html:
    """Build the table of all entries."""
    head = [
        "entry", "place", "trust", "excess (%)", "95 % interval", "rank", "worst 10 %", "no result (%)",
        "encoded bytes / raw bytes", "verdict",
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [entry.entry, entry.place, entry.trust, *_show_excess(entry), *_show_rank(entry),
         Number(_LAST if entry.worst_decile is None else entry.worst_decile, write_excess(entry.worst_decile)),
         *_show_costs(entry), describe_verdict(entry)]
        for entry in summary.entries
    ]  # fmt: skip
    caption = "Main entries by place, then their variants and baselines; click on a title to sort"
    return tabulate(caption, head, rows, sortable=True)


def _show_excess(entry: BenchEntry) -> list[Cell]:
    reach = f"{write_excess(entry.low)} to {write_excess(entry.high)}"
    return [Number(entry.excess, write_excess(entry.excess)), reach]


def _show_rank(entry: BenchEntry) -> list[Cell]:
    return [None if entry.rank is None else Number(entry.rank, f"{entry.rank:.1f}")]


def _show_costs(entry: BenchEntry) -> list[Cell]:
    """Return the cells of the share of runs without a result and of the bytes."""
    size = entry.bytes_over_raw
    bytes_cell = None if size is None else Number(size, write_ratio(size))
    return [Number(entry.no_result, write_percent(entry.no_result)), bytes_cell]


def _describe_task(task: str, ranking: BenchSummary) -> Html:
    """Build the section of a task: the best entries, and a table of all."""
    head = ["entry", "excess (%)", "95 % interval", "rank", "no result (%)", "encoded bytes / raw bytes", "verdict"]
    rows: list[list[Cell]] = [
        [entry.entry, *_show_excess(entry), *_show_rank(entry), *_show_costs(entry), describe_verdict(entry)]
        for entry in ranking.entries
    ]
    best = ranking.main[0].entry if ranking.main else "no method"
    return fold(f"{task}: {best}", tag("p", ranking.conclusion()), tabulate(task, head, rows))


def _describe_methods(summary: BenchSummary, tasks: dict[str, BenchSummary]) -> list[Html]:
    """Build a section per main entry: the tasks on which it wins and fails, and the reasons of missing results."""
    return [_describe_method(entry, summary, tasks) for entry in summary.main]


def _describe_method(entry: BenchEntry, summary: BenchSummary, tasks: dict[str, BenchSummary]) -> Html:
    on_tasks = {
        task: next(other for other in ranking.entries if other.entry == entry.entry)
        for task, ranking in tasks.items()
        if any(other.entry == entry.entry for other in ranking.entries)
    }
    wins = [task for task, on_task in on_tasks.items() if on_task.place == 1 or on_task.verdict == EQUIVALENT]
    fails = {
        task: on_task for task, on_task in on_tasks.items() if on_task.no_result > 0 or on_task.excess > _FAILS
    }  # fmt: skip
    worst = sorted(fails, key=lambda task: -fails[task].excess)
    lines: list[Content] = [
        tag("p", f"Place {entry.place} of {len(summary.main)}, {entry.trust}, excess {write_excess(entry.excess)} % "
                 f"({write_excess(entry.low)} to {write_excess(entry.high)} %); {describe_verdict(entry)}."),
        tag("p", tag("b", "Wins: "), ", ".join(wins) + "." if wins else "on none of the tasks."),
        tag("p", tag("b", "Fails: "), ", ".join(f"{task} ({_describe_failure(fails[task])})" for task in worst) + "."
            if worst else "on none of the tasks."),
    ]  # fmt: skip
    reasons = Counter(
        str(row.get("reason") or row["status"])
        for row in summary.rows
        if row["entry"] == entry.entry and row["status"] != DONE
    )
    if reasons:
        listed = [tag("li", f"{reason} ({count(number, 'run')})") for reason, number in reasons.most_common(_REASONS)]
        rest = len(reasons) - len(listed)
        lines += [tag("p", tag("b", "Reasons of runs without a result:")), tag("ul", *listed)]
        lines += [tag("p", f"and {count(rest, 'other reason')}", class_="note")] if rest else []
    variants = [
        other for other in summary.entries
        if other.place is None and other.reference == entry.entry and other.method == entry.method
    ]  # fmt: skip
    lines += [
        tag("p", f"{other.entry}: excess {write_excess(other.excess)} %, {write_ratio(other.bytes_over_raw)} encoded "
                 f"bytes per raw byte; {describe_verdict(other)}.") for other in variants
    ]  # fmt: skip
    return fold(f"{entry.place}. {entry.entry}", *lines)


def _describe_failure(entry: BenchEntry) -> str:
    """Describe the excess of an entry on a task, and the share of runs without a result."""
    if entry.runs == 0:
        return "no result"
    missing = f", {write_percent(entry.no_result)} % of the runs without a result" if entry.no_result else ""
    return f"{write_excess(entry.excess)} %{missing}"
