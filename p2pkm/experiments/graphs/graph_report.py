"""A graph before anything runs on it: its measures in words, what theory predicts, and its picture."""

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from p2pkm.core.errors import ExperimentError, TopologyError
from p2pkm.core.plugins import families, summarize
from p2pkm.core.spec import Spec, complete, parameters, parse, show
from p2pkm.experiments.console import tell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from p2pkm.network.graph import Topology
    from topologies.measures import Measure, SharedResults

_USUAL = 16  # devices
_KINDS = ("png", "svg", "pdf", "pgf")
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
    "spectral_gap": "1 - second largest |eigenvalue| of the Metropolis matrix; 1 averages in one round",
    "effective_neighbors": "devices whose noise a device averages out (Vogels et al. 2022)",
    "period": "rounds after which the links repeat",
    "active_degree": "mean links of a device in use in a round",
    "colors": "of the greedy coloring: turns of a round of the schedule colored",
    "contraction": "asymptotic factor per round towards the end, schedule jacobi",
    "rounds": "of jacobi until a thousandth of the distance is left, at that rate",
    "contraction_colored": "asymptotic factor per round, schedule colored with its default relaxation",
    "rounds_colored": "the same of colored; a run that starts near its end or stops at --tol takes fewer",
    "disagreement": "what is left of the longest-lived difference between devices",
    "residual_noise": "excess of the cost ratio from noise, labels fixed, times the points of a device per cluster",
    "excess": "of the cost ratio over 1, from noise of the devices' points alone, labels fixed",
    "coupling_auto": "what coupling auto takes on this graph with so many points",
    "excess_auto": "the excess with it, from noise alone, labels fixed",
}  # fmt: skip


class GraphQuery(NamedTuple):
    """Which graph to describe, and at which strength to predict GTVMin on it.

    Attributes
    ----------
    graph : str
    devices : int or None
        None: 16, or what the graph itself says.
    seed : int
    decay : float
        Of the effective number of neighbors.
    coupling, alpha : float or None
        None: the default coupling of GTVMin.
    points, clusters : int or None
        In all; with alpha, or to predict the excess of the cost ratio.
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
    """Return what is known of every family of graphs: name, summary, options with their defaults."""
    found = []
    for name in families(None):
        family = summarize(name, lambda one: families(one)[one])
        if isinstance(family, str):
            found.append({"name": name, "summary": family, "options": {}})
            continue
        defaults = inspect.signature(family).parameters
        options = {key: defaults[key].default for key in parameters(family) if key not in {"path", "recipe", "seed"}}
        summary = inspect.cleandoc(family.__doc__ or "").split("\n")[0]
        found.append({"name": name, "summary": summary, "options": options})
    return found


def format_graph_list() -> str:
    """Return the same as text."""
    rows = []
    for one in list_graphs():
        options = ",".join(f"{key}={'' if value is None else show(value)}" for key, value in one["options"].items())
        colon = ":PATH" if one["name"] == "file" else f":{options}" if options else ""
        rows.append((one["name"] + colon, one["summary"]))
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:{width}}  {summary}" for name, summary in rows]
    return "\n".join([
        *lines,
        "",
        "One in full: p2pkm topology describe GRAPH --devices N; as a picture: topology draw",
    ])


class NamedGraph(NamedTuple):
    """A graph that is described: its spec in full, the graph, and as arrays all links that are ever in use."""

    spec: Spec
    graph: Any
    topology: "Topology"


def describe_graph(question: GraphQuery) -> dict[str, Any]:
    """Measure a graph and predict GTVMin on it.

    Returns
    -------
    dict
        `graph`, `coupling` or `strength`, `measures` and `predicted`: by name `value`, `exact` and `how`.
        Infinities are None.

    Raises
    ------
    P2PKMError
        If the graph or an option cannot be used.
    """
    check_question(question)
    return measure(build_graph(question.graph, question.devices, question.seed), question)


def measure(built: NamedGraph, question: GraphQuery) -> dict[str, Any]:
    """Return what `describe_graph` does of a graph that is built."""
    from p2pkm.methods.peer.gtvmin import GTVMin
    from topologies import GraphError, measures

    spec, graph, topology = built
    force = _choose_force(question, topology)
    try:
        known = _explore(graph, force, question)
        found = measures.describe(graph, decay=question.decay, seed=question.seed, known=known)
    except GraphError as error:
        raise ExperimentError(str(error)) from None
    found["colors"] = measures.Measure(int(topology.colors.max()) + 1)
    theta = GTVMin(1).effective_relaxation()
    predicted = measures.predict(
        graph, **force, seed=question.seed, colors=topology.colors, theta=theta, coupled=known and known.coupled
    )._asdict()
    predicted |= _predict_excess(question, topology, predicted["residual_noise"])
    return {
        "graph": str(spec), **force,
        "measures": {name: _plain(measure) for name, measure in found.items()},
        "predicted": {name: _plain(measure) for name, measure in predicted.items()},
    }  # fmt: skip


def _explore(graph: Any, force: dict[str, float], question: GraphQuery) -> "SharedResults | None":
    """Return what all measures of a very large graph have in common; None of others, where it takes no time."""
    from p2pkm.kernels import compiles, load
    from topologies import CSRGraph, measures

    if not isinstance(graph, CSRGraph) or len(graph) <= measures.LARGE or not compiles():
        return None
    kernels: Any = load()
    return measures.explore(graph, kernels, **force, decay=question.decay, seed=question.seed)


def _predict_excess(question: GraphQuery, topology: "Topology", noise: "Measure") -> dict[str, "Measure"]:
    """Return the expected excess of the cost ratio, here and with coupling auto, where the points are counted."""
    from p2pkm.methods.building_blocks.coupling_choice import choose_coupling, predict_excess
    from topologies.measures import Measure

    if question.points is None or question.clusters is None or noise.value is None:
        return {}
    best = choose_coupling(topology, question.points, question.clusters)
    least = predict_excess(topology, best, question.points, question.clusters)
    excess = noise.value * topology.n * question.clusters / question.points
    return {"excess": noise._replace(value=excess), "coupling_auto": Measure(best),
            "excess_auto": noise._replace(value=least)}  # fmt: skip


def format_graph_report(found: dict[str, Any]) -> str:
    """Return what `describe_graph` found as text; ~ marks estimates."""
    force = next(f"{key} {show(found[key])}" for key in ("coupling", "strength") if key in found)
    parts = {"": found["measures"], f"GTVMin, matched centroids, at {force}:": found["predicted"]}
    width = max(map(len, _MEANINGS))
    lines = [found["graph"]]
    for title, figures in parts.items():
        lines += ["", title] if title else []
        for name, one in figures.items():
            value = write_figure(one)
            how = f"({one['how']})" if one["how"] else ""
            lines.append(f"  {name.replace('_', ' '):{width}}  {value:>10}  {_MEANINGS[name]} {how}".rstrip())
    return "\n".join(lines)


def draw_graph(graph: str, devices: int | None, seed: int, out: str | None) -> Path:
    """Draw a graph into one file, by default NAME-DEVICES.png.

    Raises
    ------
    P2PKMError
        If the graph or an option cannot be used, or the file not be written.
    """
    from p2pkm.viz import plot_topology

    check_figure_path(out)
    spec, _, topology = build_graph(graph, devices, seed)
    path = Path(f"{spec.name}-{topology.n}.png" if out is None else out)
    return save_figure_file(lambda: plot_topology(topology, str(spec)), path)


def check_figure_path(out: str | None) -> None:
    """Refuse a file of a kind that is not drawn, before any work."""
    if out is None:
        return
    if Path(out).suffix[1:].lower() not in _KINDS:
        raise ExperimentError(f"--out is {out!r}; expected a file that ends in .png, .svg, .pdf or .pgf")
    if Path(out).suffix.lower() == ".pgf":
        from p2pkm.viz.save_figure import read_kinds

        read_kinds("pgf")


def save_figure_file(draw: Callable[[], "Figure"], path: Path) -> Path:
    """Write a figure into one file."""
    from p2pkm.viz.save_figure import save_figure

    try:
        return save_figure(draw, path.parent, path.stem, (path.suffix[1:].lower(),))[0]
    except OSError as error:
        raise ExperimentError(f"{path} cannot be written: {error.strerror}; choose another --out") from None


def check_question(question: GraphQuery) -> None:
    """Refuse options that contradict each other, before a graph is built."""
    of_alpha = (question.points, question.clusters)
    if question.alpha is not None and question.coupling is not None:
        raise ExperimentError(f"alpha {question.alpha} and coupling {question.coupling} are both given; give one")
    if None in of_alpha and (question.alpha is not None or of_alpha != (None, None)):
        raise ExperimentError("--points and --clusters belong together, and --alpha needs both: give both, or neither")
    for name, least in (("alpha", 0), ("coupling", 0), ("points", 1), ("clusters", 1), ("decay", 0)):
        value = getattr(question, name)
        if value is not None and not least <= value < math.inf:
            raise ExperimentError(f"{name} is {value}; expected a number of at least {least}")


def _choose_force(question: GraphQuery, topology: "Topology") -> dict[str, float]:
    """Return how strong the links are, as `topologies.measures.predict` takes it."""
    from p2pkm.methods.peer.gtvmin import GTVMin

    if question.alpha is not None and question.points is not None and question.clusters is not None:
        return {"strength": question.alpha * topology.n * question.clusters / question.points}
    coupling = GTVMin(1, coupling=question.coupling).effective_coupling(topology.n, topology.hops)
    return {"coupling": float(coupling or 0.0)}


def parse_spec(text: str, seed: int) -> Spec:
    """Read the spec of a graph of any kind, and complete it with the seed."""
    kinds = families(text)
    return complete(parse(text, kinds, "graph"), kinds, seed)


def build_graph(text: str, n: int | None, seed: int) -> NamedGraph:
    """Build a graph from its spec.

    Raises
    ------
    P2PKMError
        If it cannot be.
    """
    import topologies
    from p2pkm.network.graph import Topology
    from topologies.measures import read

    spec = parse_spec(text, seed)
    usual = None if spec.name in topologies.FIXED else _USUAL
    try:
        graph: Any = topologies.build(spec.name, n or usual, **spec.options)
        plain = isinstance(graph, topologies.CSRGraph | topologies.TimeVaryingGraph)
        topology = Topology.from_graph(read(graph) if plain else graph)  # nodes of a file have names
    except topologies.GraphError as error:
        raise TopologyError(f"graph {spec}: {error}") from None
    if spec.name == "file":
        tell(graph.graph[topologies.FILE_SUMMARY])
    return NamedGraph(spec, graph, topology)


def write_figure(one: dict[str, Any]) -> str:
    """Return a figure as text; ~ marks estimates."""
    return "-" if one["value"] is None else f"{'' if one['exact'] else '~'}{_write(one['value'])}"


def _plain(measure: "Measure") -> dict[str, Any]:
    """Return a measure as JSON holds it."""
    finite = measure.value is not None and math.isfinite(measure.value)
    return measure._asdict() | {"value": measure.value if finite else None}


def _write(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
