"""Methods side by side: the same points, partitions and seeds, the same message layer, and paired differences."""

import csv
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from p2pkm.core.errors import ExperimentError
from p2pkm.core.termination import INTERRUPTED
from p2pkm.core.units import tell_folder
from p2pkm.experiments.config import Experiment, build, parse_graph
from p2pkm.experiments.run import OutputOptions
from p2pkm.experiments.study.run import describe, open_folder, run_study, tell_compilation
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.metrics.milestones import EXPLAINED
from p2pkm.metrics.registry import Table, columns, keys
from p2pkm.network.world import connect
from p2pkm.storage.save import write_bytes, write_json
from p2pkm.storage.study_table import (
    SERVED,
    Row,
    average,
    find_gap,
    interval,
    judge_gap,
    name_run,
    name_sides,
    tell_worse,
)

_FAILED = 4
_MARK = "comparison.json"


def lead_compare(
    base: Experiment, algorithms: Sequence[str], graphs: Sequence[str], seeds: Sequence[int], reference: str | None,
    manner: OutputOptions,
) -> int:  # fmt: skip
    """Run methods on graphs over seeds, print the table, write the folder, and return the exit code.

    Raises
    ------
    ExperimentError
        If a method, the reference or the folder cannot be used; nothing has been computed then.
    """
    reference = reference or algorithms[0]
    if reference not in algorithms:
        raise ExperimentError(f"--reference {reference} is not one of the methods: {', '.join(algorithms)}")
    cells = expand_runs(base, algorithms, graphs, seeds)
    asked = {"base": base.to_mapping(), "algorithms": list(algorithms), "graphs": list(graphs), "seeds": list(seeds)}
    folder = open_folder(base.out, "comparison", _MARK)
    if folder is not None:
        write_json(folder, _MARK, asked)
    world = connect()

    def tell(row: Row, number: int, count: int) -> None:
        if not manner.quiet:
            print(describe(row, number, count), file=sys.stderr, flush=True)

    tell_compilation(quiet=manner.quiet)
    rows = [_without(row, "options") for row in run_study(cells, folder, world, tell)]
    compared = compare(rows, reference)
    errors = [row["error"] for row in rows if row["error"] is not None]
    compared |= {
        "out": None if folder is None else str(folder),
        "failed": len(errors),
        "error": next(iter(errors), None),
    }
    if folder is not None:
        write_folder(folder, rows, compared, plot=base.plot)
    if manner.json:
        print(json.dumps({"rows": [_without(row, "trace") for row in rows], **compared}), flush=True)
    else:
        print(tabulate(compared), flush=True)
    if len(rows) < len(cells):
        return INTERRUPTED
    return _FAILED if compared["failed"] else 0


def expand_runs(
    base: Experiment, algorithms: Sequence[str], graphs: Sequence[str], seeds: Sequence[int]
) -> list[Experiment]:
    """Return the runs: every method on every graph, methods with a server once, as a star; for every seed."""
    cells = []
    for algorithm in algorithms:
        method = build(replace(base, algorithm=algorithm, graph=None), base.draft_k)
        for graph in (None,) if needs_hub(method) else graphs:
            one = replace(base, algorithm=algorithm, graph=graph, devices=base.devices or 16, out=None)
            parse_graph(one, method)
            cells += [replace(one, seed=seed) for seed in seeds]
    return cells


def compare(rows: Sequence[Row], reference: str) -> dict[str, Any]:
    """Return means over seeds for every method and graph, and paired differences to the reference.

    Differences are those of the seeds that both have, on the same graph (a method with a server stands for all
    graphs), with 95 % bootstrap intervals over seeds.
    """
    groups: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        if row["error"] is None:
            groups.setdefault((row["algorithm"], row["graph"]), {})[row["seed"]] = row
    table = [_average(name, graph, list(group.values())) for (name, graph), group in groups.items()]
    ours = {graph: group for (name, graph), group in groups.items() if name == reference}
    differences = []
    for (name, graph), group in groups.items():
        for against, other in ours.items():
            if name != reference and (graph == against or SERVED in (graph, against)):
                sides = {"algorithm": name, "graph": graph, "reference": reference, "reference_graph": against}
                differences.append(sides | _pair(group, other))
    return {"reference": reference, "table": table, "differences": differences}


def _average(name: str, graph: str, group: Sequence[Row]) -> dict[str, Any]:
    """Return the means over seeds of one method on one graph, the worst device of all, and an interval of the ratio."""
    found: dict[str, Any] = {"algorithm": name, "graph": graph, "seeds": len(group)}
    found |= average(group, keys(Table.MEANS))
    ratios = [row["ratio_mean"] for row in group]
    found["ratio_low"], found["ratio_high"] = (None, None) if None in ratios else interval(ratios)
    found["worse"] = tell_worse(group) or None
    found["terminations"] = sorted({row["termination"] for row in group})
    return found


def _pair(group: dict[int, Row], other: dict[int, Row]) -> dict[str, Any]:
    """Return mean differences over the seeds that both have, with intervals."""
    gaps = {name: find_gap(group, other, name) for name in keys(Table.PAIRED)}
    return {"seeds": len(group.keys() & other.keys()), **gaps}


def write_folder(folder: Path, rows: Sequence[Row], compared: dict[str, Any], *, plot: bool) -> None:
    """Write rows.jsonl and rows.csv (one row per run), summary.json and the figure."""
    plain = [_without(row, "trace") for row in rows]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    write_bytes(folder, "rows.jsonl", lambda file: file.write(lines.encode()))
    names = list(dict.fromkeys(name for row in plain for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows(plain)
    write_bytes(folder, "rows.csv", lambda file: file.write(text.getvalue().encode()))
    write_json(folder, "summary.json", compared)
    if plot and any(one["ratio_mean"] is not None for one in compared["table"]):
        from p2pkm.viz import draw_comparison

        draw_comparison(compared["table"], folder / "figures")


def tabulate(compared: dict[str, Any]) -> str:
    """Return the comparison as text."""
    names = [name_run(one["algorithm"], one["graph"]) for one in compared["table"]]
    shown = columns(Table.COMPARISON, compared["table"])
    lines = [["", *(metric.column for metric in shown)]]
    for name, one in zip(names, compared["table"], strict=True):
        cells = [metric.write_mean(one) for metric in shown]
        lines.append([name, *cells])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))] if names else []
    text = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines if names]
    text += [EXPLAINED] if names else []
    text += [f"quality got worse: {name}, {one['worse']}" for name, one in zip(names, compared["table"], strict=True)
             if one["worse"]]  # fmt: skip
    if compared["differences"]:
        text += ["", f"difference to {compared['reference']}, same seeds, with 95 % intervals:"]
    for one in compared["differences"]:
        gap = one["ratio_mean"]
        if gap is not None:
            sides = " - ".join(name_sides(one))
            reach = f"[{gap['low']:+.4f}, {gap['high']:+.4f}]"
            text.append(f"  {sides}: ratio {gap['mean']:+.4f} {reach}, {judge_gap(gap)}")
    if compared["failed"]:
        text.append(f"{compared['failed']} runs failed, the first of them: {compared['error']}")
    return "\n".join([*text, tell_folder(compared["out"])])


def _without(row: Row, unwanted: str) -> Row:
    return {name: value for name, value in row.items() if name != unwanted}
