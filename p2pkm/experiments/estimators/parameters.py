"""Conversion of the parameters of an estimator to the method, graph and seed of `simulate`."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import DataError, ExperimentError, TopologyError
from p2pkm.core.protocols import MethodBase
from p2pkm.core.spec import parameters, parse
from p2pkm.core.validation import as_floats, check_integer, check_magnitude, check_positive, check_scalar
from p2pkm.data.identifiers import identify, is_integer, locate, to_raw
from p2pkm.data.partition.by_column import name_devices
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import build_topology, parse_graph, parse_method
from p2pkm.methods.init.pipelines import graph_error, needs_hub
from p2pkm.methods.init.value import Init
from p2pkm.methods.registry import known
from p2pkm.network.graph import Topology
from p2pkm.network.world import connect

_DEVICES = 16  # default number of devices
# Parameters that are passed to the method, with the default values of the estimator.
_OPTIONS: Mapping[str, Any] = {
    "coupling": None,
    "init": None,
    "groups": False,
    "tol": 1e-3,
}


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


def check(params: Mapping[str, Any], m: int) -> None:
    """Check the ranges of the parameters of an estimator, and that there are at least as many rows as clusters.

    Raises
    ------
    ValueError
        If a parameter is out of range or there are too few rows.
    """
    auto = _is_auto(params)
    if isinstance(params["n_clusters"], str) and not auto:
        n_clusters = params["n_clusters"]
        raise ExperimentError(f"n_clusters is {n_clusters!r}; expected a whole number of at least 1, or 'auto'")
    for name in ("k_max" if auto else "n_clusters", "max_iter"):
        check_integer(params[name], 1, name)
    if params["n_devices"] is not None:
        check_integer(params["n_devices"], 1, "n_devices")
    for name in ("coupling", "groups", "n_clusters"):
        check_scalar(params[name], name)
    if params["coupling"] not in (None, "auto", "rehearsal"):
        check_positive(params["coupling"], "coupling", zero=True)
    check_positive(params["tol"], "tol", zero=True)
    if not auto and m < params["n_clusters"]:
        raise DataError(f"n_samples={m} should be >= n_clusters={params['n_clusters']}.")


def _is_auto(params: Mapping[str, Any]) -> bool:
    """Check whether the devices choose the number of clusters."""
    return isinstance(params["n_clusters"], str) and params["n_clusters"] == "auto"


def split_start(params: Mapping[str, Any], d: int) -> tuple[dict[str, Any], Floats | None]:
    """Separate an `init` array, float64[k, d], from the other parameters; None if `init` is a name.

    Raises
    ------
    ValueError
        If `init` is neither a name nor one centroid for each cluster.
    """
    init = params["init"]
    if init is None or isinstance(init, str | Init):
        return dict(params), None
    if _is_auto(params):
        raise ExperimentError(
            "an init array cannot be combined with n_clusters='auto': it fixes the number of clusters. Set n_clusters "
            "to a number, or init to a name such as 'global'"
        )
    start, shape = as_floats(init, "init"), (params["n_clusters"], d)
    if start.shape != shape:
        raise DataError(
            f"init has shape {start.shape}; expected {shape}, one centroid for each cluster, or a name such as 'global'"
        )
    if not np.isfinite(start).all():
        raise DataError("init contains NaN or infinite numbers; expected finite numbers")
    check_magnitude(start, "init")
    return {**params, "init": None}, start


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
    if not isinstance(method, str):
        return _check_method(method, params)
    kinds = known(method)
    spec = parse(method, kinds, "algorithm")
    keys = parameters(kinds[spec.name])
    options = {
        name: params[name]
        for name, default in _OPTIONS.items()
        # A default is passed on only if the method has this parameter, and the spec does not set it.
        if params[name] != default or (name in keys and name not in spec.options)
    }
    k = 1 if _is_auto(params) else int(params["n_clusters"])
    return parse_method(RunOptions(algorithm=method, **options)).build(k)


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
