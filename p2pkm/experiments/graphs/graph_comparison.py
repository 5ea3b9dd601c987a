"""Comparison of several graphs: a table of their measures, and a figure."""

from pathlib import Path
from typing import Any

from p2pkm.core.errors import ExperimentError
from p2pkm.experiments.graphs.graph_report import (
    GraphQuery,
    NamedGraph,
    build_graph,
    check_figure_path,
    check_query,
    format_measure,
    measure,
    parse_spec,
    save_figure_file,
)

_MIN_WIDTH, _MAX_WIDTH = 9, 118  # characters of a column, and of the table


def compare_graphs(graphs: tuple[str, ...], query: GraphQuery, out: str | None) -> dict[str, Any]:
    """Measure several graphs and predict GTVMin on each; all are checked and built before the first is measured.

    Parameters
    ----------
    graphs : tuple of str
        Specs, in the order of the table.
    query : GraphQuery
        Options for all graphs; the number of devices does not apply to graphs of fixed size.
    out : str or None
        File of the figure; None: no figure.

    Returns
    -------
    dict
        ``graphs``: result of `describe_graph` for each graph; ``figure``: path of the figure or None.

    Raises
    ------
    P2PKMError
        If a graph or an option cannot be used.
    """
    from topologies import FIXED

    if len(graphs) < 2:
        raise ExperimentError(
            f"topology compare has {len(graphs)} graph; expected two or more. Add a graph, or use topology describe"
        )
    check_figure_path(out)
    check_query(query)
    names = [parse_spec(text, query.seed).name for text in graphs]
    sizes = [None if name in FIXED else query.devices for name in names]
    built = [build_graph(text, size, query.seed) for text, size in zip(graphs, sizes, strict=True)]
    reports = [measure(graph, query) for graph in built]
    return {"graphs": reports, "figure": None if out is None else str(_draw(built, reports, Path(out)))}


def tabulate(comparison: dict[str, Any]) -> str:
    """Format the result of `compare_graphs`: a line per measure, a column per graph, in blocks if there are many."""
    graphs = comparison["graphs"]
    heads = [_fold(name) for name in shorten_specs([graph["graph"] for graph in graphs])]
    sections = [("", "measures"), ("GTVMin, matched centroids:", "predicted")]
    keys = {part: list(dict.fromkeys(key for graph in graphs for key in graph[part])) for _, part in sections}
    label_width = max(len(key) for part in keys.values() for key in part) + 4
    widths = [max(_MIN_WIDTH, *map(len, head)) for head in heads]
    lines: list[str] = []
    for columns in _fit(widths, _MAX_WIDTH - label_width):
        lines += [""] if lines else []
        height = max(len(heads[i]) for i in columns)
        for row in range(height):
            # Shorter heads are aligned at the bottom.
            cells = [(([""] * (height - len(heads[i])) + heads[i])[row]).rjust(widths[i]) for i in columns]
            lines.append(" " * label_width + "  ".join(cells))
        for title, part in sections:
            lines += [title] if title else []
            for key in keys[part]:
                cells = [_format_cell(graphs[i][part].get(key)).rjust(widths[i]) for i in columns]
                lines.append(f"  {key.replace('_', ' '):{label_width - 2}}" + "  ".join(cells))
    lines += ["", *_explain(graphs)]
    if comparison["figure"]:
        lines.append(f"drawn: {comparison['figure']}")
    return "\n".join(line.rstrip() for line in lines)


def shorten_specs(specs: list[str]) -> list[str]:
    """Shorten specs to the options in which graphs of the same family differ."""
    parts = [spec.partition(":") for spec in specs]
    short = []
    for name, _, options in parts:
        same_family = [set(other.split(",")) for other_name, _, other in parts if other_name == name]
        differing = [
            option for option in options.split(",") if option and not all(option in other for other in same_family)
        ]
        # Without its path or recipe, such a spec is meaningless.
        differing = [options] if name in ("file", "gallery") else differing
        short.append(f"{name}:{','.join(differing)}" if differing else name)
    return short


def _fold(name: str) -> list[str]:
    """Break a spec into lines after colon and commas."""
    return name.replace(":", ":\n").replace(",", ",\n").split("\n")


def _fit(widths: list[int], room: int) -> list[list[int]]:
    """Divide columns into blocks of at most this width; a wider column is a block by itself."""
    blocks: list[list[int]] = [[]]
    for i, width in enumerate(widths):
        if blocks[-1] and sum(widths[j] + 2 for j in blocks[-1]) + width > room:
            blocks.append([])
        blocks[-1].append(i)
    return blocks


def _format_cell(measure: dict[str, Any] | None) -> str:
    return "" if measure is None else format_measure(measure)


def _explain(graphs: list[dict[str, Any]]) -> list[str]:
    """Write the notes below the table."""
    key = "coupling" if "coupling" in graphs[0] else "strength"
    strengths = [f"{graph[key]:.4g}" for graph in graphs]
    lines = [f"{key}: {strengths[0] if len(set(strengths)) == 1 else ', '.join(strengths)}"]
    measures = [measure for graph in graphs for part in ("measures", "predicted") for measure in graph[part].values()]
    if all(measure["exact"] for measure in measures):
        lines.append("topology describe GRAPH explains each measure")
    else:
        lines.append("~ estimate; topology describe GRAPH explains each measure and its estimate")
    return lines


def _draw(built: list[NamedGraph], reports: list[dict[str, Any]], path: Path) -> Path:
    """Draw the graphs, and bars of their measures, into one file."""
    from p2pkm.viz.figures.graph_comparison import Panel, plot_graphs
    from topologies import TimeVaryingGraph

    panels = []
    for name, named, report in zip(shorten_specs([str(graph.spec) for graph in built]), built, reports, strict=True):
        active = named.graph.active(0) if isinstance(named.graph, TimeVaryingGraph) else None
        panels.append(Panel(name, named.topology, active, report["measures"] | report["predicted"]))
    return save_figure_file(lambda: plot_graphs(panels), path)
