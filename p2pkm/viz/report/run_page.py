"""Page of one run: summary, replay, figures, tables, and the commands that repeat the run."""

import json
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from p2pkm.core.errors import DataError
from p2pkm.core.termination import STOPPED
from p2pkm.core.units import count
from p2pkm.methods.building_blocks.number_of_clusters import INDICES
from p2pkm.metrics.closing_table import list_summary_rows
from p2pkm.metrics.registry import find
from p2pkm.metrics.result import Result
from p2pkm.storage.load import load
from p2pkm.viz.all_figures import list_figures
from p2pkm.viz.color_by import cost_per_point
from p2pkm.viz.figures.bytes_per_device import sum_bytes
from p2pkm.viz.figures.convergence import Span, place_rounds
from p2pkm.viz.report.findings import describe
from p2pkm.viz.report.html import Cell, Content, Html, fold, join, label_column, section, tabulate, tag
from p2pkm.viz.report.narrative import describe_network, narrate
from p2pkm.viz.report.page import Page, render_page
from p2pkm.viz.report.replay import show_replay
from p2pkm.viz.svg import draw_inline

_FEATURES = 12  # features in the table of centroids
_COUNTED = 50  # most clusters of a table of points per device and cluster, and its most devices
_LISTED = 10  # devices and links in the tables of the busiest
_OTHER_COLUMNS = ("bytes_busiest",)  # metrics per device that the table shows as bytes sent and bytes received
# Metrics of the last record of each stage, and those of them that are shown only if the run has them.
_AT_END = ("ratio_mean", "test_ratio_common", "gtv", "objective")
_IF_KNOWN = ("test_ratio_common",)


def draw_run(folder: Path) -> tuple[str, bool]:
    """Render the page of a run folder, and return whether it contains a replay.

    Raises
    ------
    DataError
        If the run has not ended, or a file of the folder cannot be read.
    """
    manifest, config = _read_origin(folder)
    result = load(folder)
    return _lay_out(result, repeat(folder, manifest, config, result.summary))


def show_page(result: Result) -> Page:
    """Render the page of a result in memory, which does not contain a command that repeats the run."""
    return Page(_lay_out(result, section("How it was run", _list_facts({}, result.summary)))[0])


def _lay_out(result: Result, repetition: Html) -> tuple[str, bool]:
    """Render the page with a final section on the repetition, and return whether it contains a replay."""
    summary = result.summary
    title = (
        f"{str(summary['algorithm']).split(':')[0]} {describe_network(result)}, {count(summary['devices'], 'device')}"
    )
    full = [f"{name} {summary[name]}" for name in ("algorithm", "graph", "data", "partition", "clusters")
            if summary[name] is not None]  # fmt: skip
    replay, moving = show_replay(result)
    body = [
        tag(
            "header",
            tag("p", "p2pkm: report of a run", class_="kind"),
            tag("h1", title),
            tag("p", " · ".join(full), class_="note"),
        ),
        _warn(summary),
        section("Verdict", tag("p", narrate(result), class_="verdict")),
        replay,
        section("Figures", tag("div", *(_draw(name, result) for name in list_figures(result)), class_="figures")),
        section(
            "Tables",
            _sum_up(result),
            *_list_clusters(result),
            _list_indices(result),
            _list_stages(result),
            _list_devices(result),
            _list_links(result),
        ),
        repetition,
    ]
    return render_page(title, body, ["replay.js", "tables.js"] if moving else ["tables.js"]), moving


def _read_origin(folder: Path) -> tuple[dict[str, Any], str]:
    """Read manifest.json and config.toml; both are empty for a result that a script saved."""
    try:
        manifest, config = folder / "manifest.json", folder / "config.toml"
        origin = json.loads(manifest.read_text("utf-8")) if manifest.is_file() else {}
        return origin, config.read_text("utf-8") if config.is_file() else ""
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} cannot be read: {type(error).__name__}: {error}") from None


def _warn(summary: dict[str, Any]) -> Html:
    if summary["termination"] not in STOPPED:
        return Html("")
    return tag("p", "This run was interrupted: all values are those of the last completed round.", class_="note")


def _draw(name: str, result: Result) -> Html:
    picture = Html(draw_inline(partial(list_figures(result)[name], result), name))
    return tag("figure", picture, tabindex=0, role="group", aria_label=describe(name, result))


def _sum_up(result: Result) -> Html:
    rows = list_summary_rows(result.summary, result.notes)
    return tabulate("Summary", ("metric", "value", "meaning"), rows)


def _list_clusters(result: Result) -> list[Html]:
    """Build tables of the centroids in the units of the data, and of the points per device and cluster."""
    clusters, features = result.clusters, result.feature_names[:_FEATURES]
    pooled = clusters.pool()
    points = clusters.points
    present = [c for c in range(len(pooled)) if np.isfinite(pooled[c]).all()]
    rows: list[list[Cell]] = [
        [str(c), None if points is None else int(points[:, c].sum()), *map(float, pooled[c, : len(features)])]
        for c in present
    ]
    part = "" if len(features) == pooled.shape[1] else f", {len(features)} of {pooled.shape[1]} features"
    head: list[Content] = ["cluster", "points", *features]
    tables = [tabulate(f"Centroids in the units of the data, mean over devices{part}", head, rows)]
    if points is None or len(present) > _COUNTED:
        return tables
    topology = result.topology
    n = min(len(points), _COUNTED)
    counts: list[list[Cell]] = [[topology.label(i), *(int(points[i, c]) for c in present)] for i in range(n)]
    part = "" if n == len(points) else f" ({n} of {len(points):,} devices)"
    head = ["device", *(f"cluster {c}" for c in present)]
    return [*tables, tabulate(f"Points per device and cluster{part}", head, counts, sortable=True)]


def _list_indices(result: Result) -> Html:
    """Build a table with a row for each number of clusters that was considered; empty if the number was given."""
    table, best = result.summary["k_indices"], result.summary["k_preferred"]
    if not table:
        return Html("")
    labels = [f"{index.label} (best at {best[name]})" for name, index in INDICES.items()]
    rows: list[list[Cell]] = [[k, *values] for k, values in enumerate(zip(*table.values(), strict=True), 1)]
    return tabulate("Number of clusters", ["k", "cost", *labels], rows)


def _list_stages(result: Result) -> Html:
    """Build a table with a row per stage: rounds, messages, bytes, and metrics of its last record."""
    places, spans = place_rounds(result.rounds)
    rows: list[list[Cell]] = []
    before = {"messages": 0, "bytes": 0}
    at_end = [
        name
        for name in _AT_END
        if name not in _IF_KNOWN or any(record.get(name) is not None for record in result.rounds)
    ]
    for span in spans:
        last = result.rounds[int(np.searchsorted(places, span.last))]
        spent = [last[name] - before[name] for name in ("messages", "bytes")]
        rows.append([
            span.name,
            _length(span),
            *spent,
            *(last.get(name) for name in at_end),
        ])
        before = last
    ends = (label_column(name, f"{find(name).column} at the end") for name in at_end)
    head: list[Content] = ["stage", "rounds", "messages", "plain bytes", *ends]
    return tabulate("Stages", head, rows)


def _length(span: Span) -> int:
    return int(span.start + span.last - span.first)


def _list_devices(result: Result) -> Html:
    sent, received = sum_bytes(result)
    n = len(result.losses)
    topology = result.topology
    census = result.census
    costs = cost_per_point(result.losses, census.sizes)
    metrics = {name: values for name, values in result.devices.items() if name not in _OTHER_COLUMNS}
    load = sent + received
    top = [int(i) for i in np.argsort(-load, kind="stable")[:_LISTED]]
    rows: list[list[Cell]] = [
        [
            topology.label(i), int(sent[i]), int(received[i]),
            100 * float(load[i]) / max(int(load.sum()), 1), int(topology.degrees[i]),
            int(census.sizes[i]) if i < n else None,
            float(costs[i]) if i < n and np.isfinite(costs[i]) else None,
            *(float(values[i]) if i < len(values) and np.isfinite(values[i]) else None for values in metrics.values()),
        ]
        for i in top
    ]  # fmt: skip
    head: list[Content] = ["device", "plain bytes sent", "plain bytes received", "% of traffic", "neighbors", "points"]
    head += ["cost per point", *map(label_column, metrics)]
    return tabulate(f"Busiest devices ({len(rows)} of {len(load):,})", head, rows, sortable=True)


def _list_links(result: Result) -> Html:
    """Build a table of the links with most bytes, both directions added."""
    ledger = result.ledger
    n = result.topology.n
    label = result.topology.label
    links, place = np.unique(
        np.minimum(ledger.src, ledger.dst) * n + np.maximum(ledger.src, ledger.dst), return_inverse=True
    )
    volume, messages = (np.bincount(place, part).astype(np.int64) for part in (ledger.bytes, ledger.messages))
    gtv = _read_gtv(result, links)
    top = np.argsort(-volume, kind="stable")[:_LISTED]
    rows: list[list[Cell]] = [
        [
            f"{label(int(links[e] // n))} – {label(int(links[e] % n))}",
            int(messages[e]), int(volume[e]), gtv[e],
        ]
        for e in top
    ]  # fmt: skip
    head = ("link", "messages", "plain bytes", "total variation (squared distance)")
    return tabulate(f"Busiest links ({len(rows)} of {len(links):,})", head, rows, sortable=True)


def _read_gtv(result: Result, links: Any) -> list[float | None]:
    """Return the total variation of links, numbered lower end x n + higher end; None where it is unknown."""
    topology = result.topology
    numbers = topology.sources * topology.n + topology.indices
    if not len(numbers):
        return [None] * len(links)
    edges = np.minimum(np.searchsorted(numbers, links), len(numbers) - 1)
    known = (numbers[edges] == links) & np.isfinite(result.gtv[edges])
    return [float(value) if ok else None for value, ok in zip(result.gtv[edges], known, strict=True)]


def repeat(folder: Path, manifest: dict[str, Any], config: str, summary: dict[str, Any]) -> Html:
    """Build the section on repetition: commands, versions, seed, ranks, hashes, and the complete configuration.

    The commands work from any folder: paths are absolute, and they change to the folder in which the run was started,
    because the configuration may name files relative to it.
    """
    facts = _list_facts(manifest, summary)
    if not config:
        return section("How to repeat it", facts)
    start = ["mpirun", "-n", str(summary["ranks"])] if summary["ranks"] > 1 else []
    rerun = shlex.join([*start, "python", "-m", "p2pkm", "--config", str(folder.resolve() / "config.toml")])
    check = shlex.join(["python", "-m", "p2pkm", "verify", str(folder.resolve())])
    change_folder = f"cd {shlex.quote(manifest['cwd'])} && " if "cwd" in manifest else ""
    return section(
        "How to repeat it",
        tag("p", "Run it again, or run it again and compare all bits, from any folder:"),
        tag("pre", f"{change_folder}{rerun}\n{change_folder}{check}"),
        tag("p", "On another machine: save the configuration below as config.toml, and pass it with --config. Start "
                 "the command in the folder to which the file names in the configuration are relative."),
        facts, fold("config.toml", tag("pre", config)),
    )  # fmt: skip


def _list_facts(manifest: dict[str, Any], summary: dict[str, Any]) -> Html:
    """Build a list of the original command, versions, seed, ranks and hashes."""
    facts: list[tuple[str, Content]] = [
        (name, _write(manifest[name])) for name in _FACTS if manifest.get(name) is not None
    ]
    if "command" in manifest:
        facts.insert(0, ("command", tag("code", name_command(manifest["command"]))))
    facts += [(name, _write(summary[name])) for name in ("seed", "ranks", "wall_seconds") if name not in manifest]
    facts += [(name, tag("code", summary[name])) for name in ("centroids_sha256", "chain_sha256") if summary[name]]
    return tag("dl", *(join((tag("dt", name.replace("_", " ")), tag("dd", what))) for name, what in facts))


_FACTS = ("version", "python", "libraries", "mpi", "host", "ranks", "seed", "start", "end")


def name_command(words: Any) -> str:
    """Format the command of a manifest as it is typed in a shell."""
    program, *rest = [str(part) for part in words] or [""]
    start = ["python", "-m", "p2pkm"] if Path(program).name == "__main__.py" else [Path(program).name]
    return shlex.join([*start, *rest])


def _write(value: Any) -> str:
    return ", ".join(f"{name} {entry}" for name, entry in value.items()) if isinstance(value, dict) else str(value)
