"""Conversion of the parameters of an estimator to the method, graph and seed of `simulate`."""

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.card import DEFAULTS
from p2pkm.core.errors import DataError, ExperimentError, TopologyError
from p2pkm.core.protocols import MethodBase
from p2pkm.core.spec import parameters, parse
from p2pkm.core.validation import as_floats, check_choice, check_integer, check_magnitude, check_positive, check_scalar
from p2pkm.data.identifiers import FILLING, identify, is_integer, locate, to_raw
from p2pkm.data.partition.by_column import name_devices
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import build_topology, parse_graph, parse_method
from p2pkm.experiments.warn_once import warn
from p2pkm.methods.building_blocks.coupling_choice import check_coupling
from p2pkm.methods.init.pipelines import graph_error, needs_hub
from p2pkm.methods.init.value import Init
from p2pkm.methods.registry import known
from p2pkm.network.graph import Topology
from p2pkm.network.world import connect

_DEVICES = 16  # default number of devices
_RUNS = 10  # of n_init="auto" for initial centroids drawn at random, as in KMeans
# Initializations by the names that they have in KMeans.
_KMEANS_INITS = {"k-means++": Init.d2_sampling(), "random": Init.d2_sampling(greedy=False, draw="uniform")}

InitialCentroids = Floats | Callable[..., Any]  # other values of `init` than names
# Parameters that are passed to the method, with the default values of the estimator.
_OPTIONS: Mapping[str, Any] = {
    "coupling": None,
    "init": None,
    "groups": False,
    "tol": 1e-3,
}
# Default methods. For one clustering: of the best methods of the benchmark without a server, which are not
# distinguished from each other, the one with the fewest bytes; where links change, the other one of these two.
_COMMON, _COMMON_OF_CHANGING_LINKS, _OF_DEVICES = "treelloyd", "tracking", "gtvmin"


class ResolvedParameters(NamedTuple):
    """Resolved parameters of an estimator.

    Attributes
    ----------
    method : Algorithm or ServerMethod
    graph : Topology or None
        None: the star of a server method.
    devices : int
    seed : int
        Seed of all random draws.
    """

    method: Any
    graph: Topology | None
    devices: int
    seed: int


def check(params: Mapping[str, Any]) -> None:
    """Check the ranges of the parameters of an estimator.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.
    """
    auto = _is_auto(params)
    if isinstance(params["n_clusters"], str) and not auto:
        n_clusters = params["n_clusters"]
        raise ExperimentError(f"n_clusters is {n_clusters!r}; expected a whole number of at least 1, or 'auto'")
    for name in ("k_max" if auto else "n_clusters", "max_iter"):
        check_integer(params[name], 1, name)
    if params["n_devices"] is not None:
        check_integer(params["n_devices"], 1, "n_devices")
    for name in ("coupling", "groups", "n_clusters", "n_init", "missing", "verbose"):
        check_scalar(params[name], name)
    if params["n_init"] != "auto":
        check_integer(params["n_init"], 1, "n_init")
    if not isinstance(params["personalized"], (bool, np.bool_)):
        raise ExperimentError(f"personalized is {params['personalized']!r}; expected True or False")
    check_choice(params["missing"], ("refuse", *FILLING), "missing")
    if params["coupling"] is not None:
        check_coupling(params["coupling"])
    check_positive(params["tol"], "tol", zero=True)
    RunOptions(test_share=params["test_share"])


def _is_auto(params: Mapping[str, Any]) -> bool:
    """Check whether the devices choose the number of clusters."""
    return isinstance(params["n_clusters"], str) and params["n_clusters"] == "auto"


def check_size(params: Mapping[str, Any], m: int, weighted: int) -> None:
    """Check that the weighted rows among m rows are at least as many as the clusters.

    Raises
    ------
    DataError
        If there are too few rows.
    """
    if not _is_auto(params) and weighted < params["n_clusters"]:
        rows = f"{m}" if m < params["n_clusters"] else f"{weighted} of weight above 0"
        raise DataError(f"n_samples={rows} should be >= n_clusters={params['n_clusters']}.")


def split_init(params: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Separate initial centroids, an array or a callable, from the other parameters; None if `init` is a name.

    Raises
    ------
    ExperimentError
        If centroids or a callable are given for an open number of clusters, or a callable with missing values.
    """
    init = params["init"]
    if init is None or isinstance(init, str | Init):
        return {**params, "init": _KMEANS_INITS.get(init, str(init)) if isinstance(init, str) else init}, None
    if _is_auto(params):
        raise ExperimentError(
            "an init array cannot be combined with n_clusters='auto': it fixes the number of clusters. Set n_clusters "
            "to a number, or init to a name such as 'global'"
        )
    if callable(init) and params["missing"] != "refuse":
        raise ExperimentError(
            f"missing={params['missing']!r} cannot be combined with a callable init: the run fills in missing values, "
            "and starts after it. Use an initialization such as init='global', or fill in the values before"
        )
    return {**params, "init": None}, init


def count_runs(params: Mapping[str, Any]) -> int:
    """Return the number of runs that `fit` compares, as in KMeans: 1 for an array of centroids."""
    init, runs = params["init"], params["n_init"]
    drawn = callable(init) or (isinstance(init, str) and init == "random")
    if runs == "auto":
        return _RUNS if drawn else 1
    if runs > 1 and not (drawn or init is None or isinstance(init, str | Init)):
        text = "Explicit initial center position passed: performing only one init in P2PKMeans instead of"
        warn(f"{text} n_init={runs}.", RuntimeWarning, "n_init")
        return 1
    return int(runs)


def derive_seeds(seed: int, runs: int) -> list[int]:
    """Derive the seeds of several runs; the first is the seed itself."""
    return [seed, *(int(np.random.default_rng((seed, j)).integers(2**63)) for j in range(1, runs))]


def make_start(centroids: InitialCentroids, points: NDArray[Any], k: int, seed: int) -> Floats:
    """Build initial centroids, float64[k, d], from an array or a callable.

    Raises
    ------
    DataError
        If there is not one centroid of finite numbers for each cluster.
    """
    what = "init"
    if callable(centroids):
        generator = np.random.RandomState(seed % 2**32)
        centroids, what = centroids(points, k, random_state=generator), "the array that init returns"
    start = as_floats(centroids, what)
    for axis, (expected, name) in enumerate(((k, "clusters"), (points.shape[1], "features of the data"))):
        if start.ndim != 2 or start.shape[axis] != expected:
            raise DataError(
                f"The shape of the initial centers {start.shape} does not match the number of {name} {expected}; "
                f"expected {(k, points.shape[1])}. Use one row per cluster, or a name such as init='global'"
            )
    if not np.isfinite(start).all():
        raise DataError(f"{what} contains NaN or infinite numbers; expected finite numbers")
    return np.array(check_magnitude(start, what))


def find_k_max(params: Mapping[str, Any], m: int) -> int | None:
    """Return the largest number of clusters that the devices may choose, at most m; None if the number is given."""
    return min(int(params["k_max"]), m) if _is_auto(params) else None


def arrange(
    params: Mapping[str, Any], m: int, devices: NDArray[Any] | None
) -> tuple[ResolvedParameters, Integers | None, tuple[str, ...] | None]:
    """Build method and graph from checked parameters of an estimator, and number the devices.

    Parameters
    ----------
    params : mapping
        Parameters of `P2PKMeans`.
    m : int
        Number of rows of positive weight.
    devices : int64[rows], object[rows] or None
        Identifier of the device of each row, including rows of weight 0; None: rows are assigned at random.

    Returns
    -------
    parameters : ResolvedParameters
    owner : int64[rows] or None
        Number of the device of each row.
    names : tuple of str or None
        Names of the devices. If the nodes of the graph have names, these are equal.

    Raises
    ------
    DataError
        If the number of different `devices` does not fit.
    ExperimentError
        If an option is unknown or out of range.
    TopologyError
        If the graph cannot be used.
    """
    n_devices, is_spec = params["n_devices"], isinstance(params["graph"], str)
    given_graph = None if is_spec else Topology.from_graph(params["graph"])
    owner, default, names = None, min(_DEVICES, m), None
    if devices is not None:
        owner, default, names = _number(devices, n_devices, given_graph)
    seed = _draw_seed(params["random_state"])
    experiment = RunOptions(graph=params["graph"] if is_spec else None, devices=n_devices, seed=seed)
    method = _build_method(params)
    if needs_hub(method):
        # "ring" is the default of the estimator, so it stands for no graph.
        if not is_spec or params["graph"] not in {"ring", "star"}:
            raise graph_error(method, repr(params["graph"]), "Remove graph")
        return ResolvedParameters(method, None, n_devices or default, seed), owner, names
    if given_graph is None:
        topology = build_topology(parse_graph(experiment, method), n_devices, default, names)
    else:
        topology = given_graph.call(names)
    # Nodes without rows are devices, too.
    names = names and (topology.names or names)
    components = int(topology.components.max()) + 1
    if components > 1:
        raise TopologyError(f"the graph has {components} connected components; expected 1. Add links")
    if n_devices is not None and topology.n != n_devices:
        raise TopologyError(
            f"n_devices is {n_devices}; expected {topology.n}, the number of nodes of the graph. Remove n_devices"
        )
    if names is not None and topology.n != len(names):
        raise DataError(
            f"devices has {len(names)} different names; expected {topology.n}, the number of nodes of the graph. Use "
            f"a graph with {len(names)} nodes, or number the devices from 0"
        )
    return ResolvedParameters(method, topology, topology.n, seed), owner, names


def _number(
    devices: NDArray[Any], n_devices: int | None, graph: Topology | None
) -> tuple[Integers, int, tuple[str, ...] | None]:
    """Return the device number of each row, the number of devices, and their names; None for numbered devices.

    `graph` is a graph given as an object: its nodes may be devices without rows.
    """
    codes, kinds = identify(devices)
    nodes = () if graph is None else graph.names or ()
    if nodes and kinds.dtype.kind == "i" and all(map(is_integer, nodes)):
        ids = identify(to_raw(nodes, "nodes")).kinds
        owner = locate(devices, ids)
        if (owner < 0).any():
            raise DataError(
                f"devices contains {devices[owner.argmin()]}, which is not a node of the graph. Add the node"
            )
        return owner, len(ids), name_devices(ids)
    n = n_devices if n_devices is not None or graph is None else graph.n
    if n is not None and name_devices(kinds, n) is None:
        return devices, n, None
    if n_devices not in (None, len(kinds)):
        raise DataError(
            f"devices has {len(kinds)} different values; expected {n_devices}, as n_devices. Remove n_devices, or use "
            f"numbers from 0 to {n_devices - 1}"
        )
    return codes, len(kinds), name_devices(kinds)


def _build_method(params: Mapping[str, Any]) -> Any:
    """Build the method from its spec and the parameters of the estimator, or return the method object."""
    method = params["algorithm"]
    if method is None:
        asks_gtvmin = params["personalized"] or any(params[name] != _OPTIONS[name] for name in ("coupling", "groups"))
        if asks_gtvmin:
            method = _OF_DEVICES
        elif _has_changing_links(params["graph"]):
            method = _COMMON_OF_CHANGING_LINKS
        else:
            method = _COMMON
    if not isinstance(method, str):
        return _check_method(method, params)
    kinds = known(method)
    spec = parse(method, kinds, "algorithm")
    keys = parameters(kinds[spec.name])
    options = {
        name: params[name]
        for name, default in _OPTIONS.items()
        # A default is passed on only if the method has this parameter, and the spec sets neither it nor all defaults.
        if params[name] != default or (name in keys and not {name, DEFAULTS} & {*spec.options})
    }
    k = 1 if _is_auto(params) else int(params["n_clusters"])
    return parse_method(RunOptions(algorithm=method, **options)).build(k)


def _has_changing_links(graph: Any) -> bool:
    """Tell whether a graph, or the family that a spec names, has links that change."""
    import topologies

    if isinstance(graph, str):
        return graph.partition(":")[0].replace("_", "-") in topologies.TIME_VARYING
    return isinstance(graph, topologies.TimeVaryingGraph)


def _check_method(method: Any, params: Mapping[str, Any]) -> Any:
    """Return a method object, after checking that the parameters of the estimator do not contradict it."""
    if not isinstance(method, MethodBase):
        raise ExperimentError(f"algorithm is {method!r}; expected a name, or a method such as p2pkm.GTVMin(8)")
    if not _is_auto(params) and method.k != params["n_clusters"]:
        raise ExperimentError(
            f"n_clusters is {params['n_clusters']}; expected {method.k}, the number of clusters of algorithm. Use "
            f"n_clusters={method.k}"
        )
    for name, default in _OPTIONS.items():
        if params[name] != default:
            raise ExperimentError(
                f"{name} is {params[name]!r}, but algorithm is a method object, whose parameters are already set. "
                f"Remove {name}, or set it in {type(method).__name__}(...)"
            )
    return method


def _draw_seed(state: Any) -> int:
    """Convert `random_state` to a seed, equal on all ranks; a generator or None is drawn from on rank 0."""
    if isinstance(state, Integral):
        seed = int(state)
    elif isinstance(state, np.random.Generator):
        seed = int(state.integers(2**63))
    else:
        from sklearn.utils import check_random_state

        seed = int(check_random_state(state).randint(2**31 - 1))
    if not 0 <= seed < 2**63:
        raise ExperimentError(f"random_state is {seed}; expected a whole number of at least 0 and below 2^63")
    world = connect()
    return int(world.broadcast({"seed": np.array(seed)} if world.rank == 0 else None)["seed"])
