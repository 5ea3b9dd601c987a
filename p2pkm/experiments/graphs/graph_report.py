"""Graph reports: measures of a graph, predictions for GTVMin on it, and its figure."""

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from p2pkm.core.errors import ExperimentError, TopologyError
from p2pkm.core.plugins import families, summarize
from p2pkm.core.spec import Spec, complete, parameters, parse, show
from p2pkm.experiments.console import print_note

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from p2pkm.network.graph import Topology
    from topologies.measures import Measure, SharedResults

_DEVICES = 16  # default number of devices
_KINDS = ("png", "svg", "pdf", "pgf")
# Explanation of each measure in the report.
_MEANINGS = {
    "devices": "",
    "links": "",
    "degree_min": "fewest links of a device",
    "degree_mean": "mean links of a device",
    "degree_max": "most links of a device",
    "diameter": "most hops between two devices",
    "mean_path": "mean hops between two devices",
    "clustering": "share of pairs of neighbors that are linked, mean over devices",
    "algebraic_connectivity": "second smallest eigenvalue of the Laplacian",
    "effective_resistance": "mean over pairs of devices, with links as resistors of 1",
    "edge_connectivity": "fewest links whose loss separates devices",
    "vertex_connectivity": "fewest devices whose loss separates others",
    "hub_load": "share of all messages that begin or end at the busiest device",
    "path_load": "share of shortest paths between two others through the busiest device",
    "spectral_gap": "1 - second largest |eigenvalue| of the Metropolis matrix; 1: averaging takes one round",
    "effective_neighbors": "number of devices over which the noise of a device is averaged (Vogels et al. 2022)",
    "period": "rounds after which the links repeat",
    "active_degree": "mean links of a device in use in a round",
    "colors": "colors of the greedy coloring: turns per round of schedule colored",
    "contraction": "asymptotic contraction factor per round, schedule jacobi",
    "rounds": "rounds of jacobi to reduce the distance to 0.1 %, at this rate",
    "contraction_colored": "asymptotic contraction factor per round, schedule colored, default relaxation",
    "rounds_colored": "rounds of colored, likewise; fewer for good initial centroids or with --tol",
    "disagreement": "remaining part of the most persistent difference between devices",
    "residual_noise": "excess of the cost ratio from noise, labels fixed, times points per device and cluster",
    "excess": "excess of the cost ratio from sampling noise, labels fixed",
    "coupling_strong": "coupling=strong for this graph and number of points",
    "excess_strong": "excess with this coupling, from sampling noise, labels fixed",
}  # fmt: skip


class GraphQuery(NamedTuple):
    """Graph to describe, and link strength for the predictions of GTVMin.

    Attributes
    ----------
    graph : str
        Spec.
    devices : int or None
        None: 16, or the number of nodes of a graph of fixed size.
    seed : int
    decay : float
        Decay factor of the effective number of neighbors, 0 <= decay < 1.
    coupling, alpha : float or None
        Link strength; None: the default coupling of GTVMin.
    points, clusters : int or None
        Number of points of all devices and of clusters: required with `alpha`, and to predict the excess of the cost
        ratio.
    """

    graph: str
    devices: int | None = None
    seed: int = 0
    decay: float = 0.95
    coupling: float | None = None
    alpha: float | None = None
    points: int | None = None
    clusters: int | None = None


def list_graphs() -> list[dict[str, Any]]:
    """List name, summary, and options with defaults of each family of graphs."""
    graphs = []
    for name in families(None):
        family = summarize(name, lambda key: families(key)[key])
        if isinstance(family, str):
            # The family could not be loaded; the text says why.
            graphs.append({"name": name, "summary": family, "options": {}})
            continue
        defaults = inspect.signature(family).parameters
        options = {key: defaults[key].default for key in parameters(family) if key not in {"path", "recipe", "seed"}}
        summary = inspect.cleandoc(family.__doc__ or "").split("\n")[0]
        graphs.append({"name": name, "summary": summary, "options": options})
    return graphs


def format_graph_list() -> str:
    """Format the families of graphs as text."""
    rows = []
    for graph in list_graphs():
        options = ",".join(f"{key}={'' if value is None else show(value)}" for key, value in graph["options"].items())
        suffix = f":{options}" if options else ""
        if graph["name"] == "file":
            suffix = ":PATH,directed=,isolated=,parallel=,loops="
        rows.append((graph["name"] + suffix, graph["summary"]))
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:{width}}  {summary}" for name, summary in rows]
    return "\n".join([
        *lines,
        "",
        "Measures of a graph: p2pkm topology describe GRAPH --devices N; its figure: p2pkm topology draw GRAPH",
    ])


class NamedGraph(NamedTuple):
    """Graph to describe.

    Attributes
    ----------
    spec : Spec
        Complete spec.
    graph : networkx.Graph, CSRGraph or TimeVaryingGraph
    topology : Topology
        All links that are ever in use, as arrays.
    """

    spec: Spec
    graph: Any
    topology: "Topology"


def describe_graph(query: GraphQuery) -> dict[str, Any]:
    """Measure a graph and predict GTVMin on it.

    Returns
    -------
    dict
        ``graph``, ``coupling`` or ``strength``; in ``measures`` and ``predicted``, for each name: ``value`` (None if
        infinite), ``exact`` and ``how`` it was computed.

    Raises
    ------
    P2PKMError
        If the graph or an option cannot be used.
    """
    check_query(query)
    return measure(build_graph(query.graph, query.devices, query.seed), query)


def measure(built: NamedGraph, query: GraphQuery) -> dict[str, Any]:
    """Measure a built graph; see `describe_graph`."""
    from p2pkm.methods.peer.gtvmin import GTVMin
    from topologies import GraphError, measures

    spec, graph, topology = built
    strength = _choose_strength(query, topology)
    try:
        shared = _explore(graph, strength, query)
        measured = measures.describe(graph, decay=query.decay, seed=query.seed, known=shared)
    except GraphError as error:
        raise ExperimentError(str(error)) from None
    measured["colors"] = measures.Measure(int(topology.colors.max()) + 1)
    theta = GTVMin(1).effective_relaxation()
    predicted = measures.predict(
        graph, **strength, seed=query.seed, colors=topology.colors, theta=theta, coupled=shared and shared.coupled
    )._asdict()
    predicted |= _predict_excess(query, topology, predicted["residual_noise"])
    return {
        "graph": str(spec),
        **strength,
        "measures": {name: _to_json(measure) for name, measure in measured.items()},
        "predicted": {name: _to_json(measure) for name, measure in predicted.items()},
    }


def _explore(graph: Any, strength: dict[str, float], query: GraphQuery) -> "SharedResults | None":
    """Compute results that several measures of a very large graph share; None for other graphs."""
    from p2pkm.kernels import compiles, load
    from topologies import CSRGraph, measures

    if not isinstance(graph, CSRGraph) or len(graph) <= measures.LARGE or not compiles():
        return None
    kernels: Any = load()
    return measures.explore(graph, kernels, **strength, decay=query.decay, seed=query.seed)


def _predict_excess(query: GraphQuery, topology: "Topology", noise: "Measure") -> dict[str, "Measure"]:
    """Predict the excess of the cost ratio, and that with coupling "strong", if the number of points is given."""
    from p2pkm.methods.building_blocks.coupling_choice import choose_coupling, predict_excess
    from topologies.measures import Measure

    if query.points is None or query.clusters is None or noise.value is None:
        return {}
    coupling = choose_coupling(topology, query.points, query.clusters)
    excess_strong = predict_excess(topology, coupling, query.points, query.clusters)
    excess = noise.value * topology.n * query.clusters / query.points
    return {
        "excess": noise._replace(value=excess),
        "coupling_strong": Measure(coupling),
        "excess_strong": noise._replace(value=excess_strong),
    }


def format_graph_report(report: dict[str, Any]) -> str:
    """Format the result of `describe_graph` as text; ~ marks estimates."""
    strength = next(f"{key} {show(report[key])}" for key in ("coupling", "strength") if key in report)
    sections = {"": report["measures"], f"GTVMin, matched centroids, at {strength}:": report["predicted"]}
    width = max(map(len, _MEANINGS))
    lines = [report["graph"]]
    for title, measures in sections.items():
        lines += ["", title] if title else []
        for name, measure in measures.items():
            value = format_measure(measure)
            how = f"({measure['how']})" if measure["how"] else ""
            lines.append(f"  {name.replace('_', ' '):{width}}  {value:>10}  {_MEANINGS[name]} {how}".rstrip())
    return "\n".join(lines)


def draw_graph(graph: str, devices: int | None, seed: int, out: str | None) -> Path:
    """Draw a graph into a file, by default NAME-DEVICES.png, and return its path.

    Raises
    ------
    P2PKMError
        If the graph or an option cannot be used, or the file cannot be written.
    """
    from p2pkm.viz import plot_topology

    check_figure_path(out)
    spec, _, topology = build_graph(graph, devices, seed)
    # A graph of a file is called by the file, without its folder and suffixes.
    name = Path(str(spec.options.get("path", spec.name))).name.partition(".")[0]
    path = Path(f"{name}-{topology.n}.png" if out is None else out)
    return save_figure_file(lambda: plot_topology(topology, str(spec)), path)


def check_figure_path(out: str | None) -> None:
    """Check the format of a figure file before anything is computed."""
    if out is None:
        return
    if Path(out).suffix[1:].lower() not in _KINDS:
        raise ExperimentError(f"--out is {out!r}; expected a file name that ends in .png, .svg, .pdf or .pgf")
    if Path(out).suffix.lower() == ".pgf":
        from p2pkm.viz.save_figure import read_kinds

        read_kinds("pgf")


def save_figure_file(draw: Callable[[], "Figure"], path: Path) -> Path:
    """Write a figure into a file and return its path."""
    from p2pkm.viz.save_figure import save_figure

    try:
        return save_figure(draw, path.parent, path.stem, (path.suffix[1:].lower(),))[0]
    except OSError as error:
        raise ExperimentError(f"{path} cannot be written: {error.strerror}. Use another --out") from None


def check_query(query: GraphQuery) -> None:
    """Check the options for conflicts before a graph is built."""
    sizes = (query.points, query.clusters)
    if query.alpha is not None and query.coupling is not None:
        raise ExperimentError("--alpha and --coupling cannot be combined: both set the link strength. Remove one")
    if None in sizes and (query.alpha is not None or sizes != (None, None)):
        raise ExperimentError(
            "--points and --clusters must be used together, and --alpha requires both. Add --points and --clusters"
        )
    for name, least in (("alpha", 0), ("coupling", 0), ("points", 1), ("clusters", 1), ("decay", 0)):
        value = getattr(query, name)
        if value is not None and not least <= value < math.inf:
            raise ExperimentError(f"{name} is {value}; expected a number of at least {least}")


def _choose_strength(query: GraphQuery, topology: "Topology") -> dict[str, float]:
    """Return the link strength as keyword argument of `topologies.measures.predict`."""
    from p2pkm.methods.peer.gtvmin import GTVMin

    if query.alpha is not None and query.points is not None and query.clusters is not None:
        return {"strength": query.alpha * topology.n * query.clusters / query.points}
    coupling = GTVMin(1, coupling=query.coupling).effective_coupling(topology.n, topology.hops)
    return {"coupling": float(coupling or 0.0)}


def parse_spec(text: str, seed: int) -> Spec:
    """Parse the spec of a graph and complete it with the seed."""
    kinds = families(text)
    return complete(parse(text, kinds, "graph"), kinds, seed)


def build_graph(text: str, n: int | None, seed: int) -> NamedGraph:
    """Build a graph from its spec.

    Raises
    ------
    P2PKMError
        If the spec is invalid or the graph cannot be built.
    """
    import topologies
    from p2pkm.network.graph import Topology
    from topologies.measures import read

    spec = parse_spec(text, seed)
    default = None if spec.name in topologies.FIXED else _DEVICES
    try:
        graph: Any = topologies.build(spec.name, n or default, **spec.options)
        is_array = isinstance(graph, topologies.CSRGraph | topologies.TimeVaryingGraph)
        # Nodes of a graph file have names, which only the original graph has.
        topology = Topology.from_graph(read(graph) if is_array else graph)
    except topologies.GraphError as error:
        raise TopologyError(f"graph {spec}: {error}") from None
    if spec.name == "file":
        print_note(graph.graph[topologies.FILE_SUMMARY])
    return NamedGraph(spec, graph, topology)


def format_measure(measure: dict[str, Any]) -> str:
    """Format a measure as text; ~ marks estimates."""
    if measure["value"] is None:
        return "-"
    return f"{'' if measure['exact'] else '~'}{_format_number(measure['value'])}"


def _to_json(measure: "Measure") -> dict[str, Any]:
    """Convert a measure to JSON, which cannot represent infinite numbers."""
    is_finite = measure.value is not None and math.isfinite(measure.value)
    return measure._asdict() | {"value": measure.value if is_finite else None}


def _format_number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
