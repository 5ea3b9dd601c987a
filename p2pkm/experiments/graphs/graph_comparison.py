"""Several graphs side by side: a table of their measures, and a picture."""

from pathlib import Path
from typing import Any

from p2pkm.core.errors import ExperimentError
from p2pkm.experiments.graphs.graph_report import (
    GraphQuery,
    NamedGraph,
    build_graph,
    check_figure_path,
    check_question,
    measure,
    parse_spec,
    save_figure_file,
    write_figure,
)

_LEAST, _ROOM = 9, 118  # width of a column of the table, and of all


def compare_graphs(graphs: tuple[str, ...], question: GraphQuery, out: str | None) -> dict[str, Any]:
    """Measure several graphs and predict GTVMin on each; all are checked and built before the first is measured.

    Parameters
    ----------
    graphs : tuple of str
        Specs, in the order of the table.
    question : GraphQuery
        What to ask of each; graphs that bring their own number of devices keep it.
    out : str or None
        File of the picture; None: there is none.

    Returns
    -------
    dict
        `graphs`: what `describe_graph` returns of each; `figure`: the path of the picture or None.

    Raises
    ------
    P2PKMError
        If a graph or an option cannot be used.
    """
    from topologies import FIXED

    if len(graphs) < 2:
        raise ExperimentError(f"there is {len(graphs)} graph to compare; name two or more, or take topology describe")
    check_figure_path(out)
    check_question(question)
    names = [parse_spec(text, question.seed).name for text in graphs]
    sizes = [None if name in FIXED else question.devices for name in names]
    built = [build_graph(text, size, question.seed) for text, size in zip(graphs, sizes, strict=True)]
    found = [measure(one, question) for one in built]
    return {"graphs": found, "figure": None if out is None else str(_draw(built, found, Path(out)))}


def tabulate(found: dict[str, Any]) -> str:
    """Return what `contrast` found as text: a line per measure, a column per graph; in blocks where these are many."""
    graphs = found["graphs"]
    names = shorten_specs([one["graph"] for one in graphs])
    heads = [_fold(name) for name in names]
    sections = [("", "measures"), ("GTVMin, matched centroids:", "predicted")]
    keys = {part: list(dict.fromkeys(key for one in graphs for key in one[part])) for _, part in sections}
    label = max(len(key) for part in keys.values() for key in part) + 4
    widths = [max(_LEAST, *map(len, head)) for head in heads]
    lines: list[str] = []
    for columns in _fit(widths, _ROOM - label):
        lines += [""] if lines else []
        deep = max(len(heads[i]) for i in columns)
        for row in range(deep):
            cells = [(([""] * (deep - len(heads[i])) + heads[i])[row]).rjust(widths[i]) for i in columns]
            lines.append(" " * label + "  ".join(cells))
        for title, part in sections:
            lines += [title] if title else []
            for key in keys[part]:
                cells = [_cell(graphs[i][part].get(key)).rjust(widths[i]) for i in columns]
                lines.append(f"  {key.replace('_', ' '):{label - 2}}" + "  ".join(cells))
    lines += ["", *_explain(graphs), *([f"drawn: {found['figure']}"] if found["figure"] else [])]
    return "\n".join(line.rstrip() for line in lines)


def shorten_specs(specs: list[str]) -> list[str]:
    """Return the names of the graphs, with those options alone in which they differ from another one of that name."""
    parts = [spec.partition(":") for spec in specs]
    short = []
    for name, _, options in parts:
        others = [set(other.split(",")) for its, _, other in parts if its == name]
        kept = [one for one in options.split(",") if one and not all(one in other for other in others)]
        kept = [options] if name in ("file", "gallery") else kept
        short.append(f"{name}:{','.join(kept)}" if kept else name)
    return short


def _fold(name: str) -> list[str]:
    """Return a name in lines, broken after colon and commas."""
    return name.replace(":", ":\n").replace(",", ",\n").split("\n")


def _fit(widths: list[int], room: int) -> list[list[int]]:
    """Return the columns of each block such that it is at most so wide, if a column is."""
    blocks: list[list[int]] = [[]]
    for i, width in enumerate(widths):
        if blocks[-1] and sum(widths[j] + 2 for j in blocks[-1]) + width > room:
            blocks.append([])
        blocks[-1].append(i)
    return blocks


def _cell(one: dict[str, Any] | None) -> str:
    return "" if one is None else write_figure(one)


def _explain(graphs: list[dict[str, Any]]) -> list[str]:
    """Return what the table leaves open."""
    force = "coupling" if "coupling" in graphs[0] else "strength"
    forces = [f"{one[force]:.4g}" for one in graphs]
    lines = [f"{force}: {forces[0] if len(set(forces)) == 1 else ', '.join(forces)}"]
    figures = [figure for one in graphs for part in ("measures", "predicted") for figure in one[part].values()]
    if not all(figure["exact"] for figure in figures):
        lines.append("~ an estimate; topology describe GRAPH shows how it was computed, and what each figure means")
    else:
        lines.append("topology describe GRAPH explains each figure")
    return lines


def _draw(built: list[NamedGraph], found: list[dict[str, Any]], path: Path) -> Path:
    """Draw the graphs and bars of their measures into one file."""
    from p2pkm.viz.figures.graph_comparison import Panel, plot_graphs
    from topologies import TimeVaryingGraph

    panels = []
    for name, one, told in zip(shorten_specs([str(one.spec) for one in built]), built, found, strict=True):
        active = one.graph.active(0) if isinstance(one.graph, TimeVaryingGraph) else None
        panels.append(Panel(name, one.topology, active, told["measures"] | told["predicted"]))
    return save_figure_file(lambda: plot_graphs(panels), path)
