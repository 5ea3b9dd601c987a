"""From what the estimator was given to a method, a graph and a seed that `simulate` takes."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import DataError, ExperimentError, TopologyError
from p2pkm.core.protocols import MethodBase
from p2pkm.core.spec import parameters, parse
from p2pkm.core.validation import bounded, numeric, positive, single, whole
from p2pkm.data.identifiers import identify, is_integer, locate, to_raw
from p2pkm.data.partition.by_column import name_devices
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import build_topology, parse_graph, parse_method
from p2pkm.methods.init.pipelines import needs_hub, refuse_graph
from p2pkm.methods.init.value import Init
from p2pkm.methods.registry import known
from p2pkm.network.graph import Topology
from p2pkm.network.world import connect

_DEVICES = 16  # unless somebody says how many
_OPTIONS: Mapping[str, Any] = {
    "coupling": None,
    "init": None,
    "groups": False,
    "tol": 1e-3,
}  # of the method, and their defaults


class ResolvedParameters(NamedTuple):
    """A method, its graph (None: the star of a server), the number of devices, and the seed of all draws."""

    method: Any
    graph: Topology | None
    devices: int
    seed: int


def check(given: Mapping[str, Any], m: int) -> None:
    """Refuse parameters of the estimator that are out of range, and fewer rows than clusters."""
    auto = _is_auto(given)
    if isinstance(given["n_clusters"], str) and not auto:
        number = given["n_clusters"]
        raise ExperimentError(f"n_clusters is {number!r}; expected a whole number of at least 1, or 'auto'")
    for name in ("k_max" if auto else "n_clusters", "max_iter"):
        whole(given[name], 1, name)
    if given["n_devices"] is not None:
        whole(given["n_devices"], 1, "n_devices")
    for name in ("coupling", "groups", "n_clusters"):
        single(given[name], name)
    if given["coupling"] not in (None, "auto", "rehearsal"):
        positive(given["coupling"], "coupling", zero=True)
    positive(given["tol"], "tol", zero=True)
    if not auto and m < given["n_clusters"]:
        raise DataError(f"n_samples={m} should be >= n_clusters={given['n_clusters']}.")


def _is_auto(given: Mapping[str, Any]) -> bool:
    """Return whether the devices are to choose the number of clusters."""
    return isinstance(given["n_clusters"], str) and given["n_clusters"] == "auto"


def split_start(given: Mapping[str, Any], d: int) -> tuple[dict[str, Any], Floats | None]:
    """Return the parameters without centroids to start from, and these, float64[k, d]; None if `init` is a name.

    Raises
    ------
    ValueError
        If `init` is neither a name nor a centroid for each cluster.
    """
    init = given["init"]
    if init is None or isinstance(init, str | Init):
        return dict(given), None
    if _is_auto(given):
        raise ExperimentError("init is an array with n_clusters='auto'; expected a name, such as 'global', or a number")
    start, shape = numeric(init, "init"), (given["n_clusters"], d)
    if start.shape != shape:
        raise DataError(
            f"init has shape {start.shape}; expected {shape}, a centroid for each cluster, or a name, such as 'global'"
        )
    if not np.isfinite(start).all():
        raise DataError("init has NaN or infinite numbers; expected finite ones")
    bounded(start, "init")
    return {**given, "init": None}, start


def find_k_max(given: Mapping[str, Any], m: int) -> int | None:
    """Return up to which number of clusters the devices choose, at most m, None if the number is given."""
    return min(int(given["k_max"]), m) if _is_auto(given) else None


def arrange(
    given: Mapping[str, Any], m: int, devices: NDArray[Any] | None
) -> tuple[ResolvedParameters, Integers | None, tuple[str, ...] | None]:
    """Build method and graph from checked parameters of the estimator, and number the devices.

    Parameters
    ----------
    given : mapping
        The parameters of `P2PKMeans`.
    m : int
        Number of rows that count.
    devices : int64[rows], object[rows] or None
        Identifiers of the devices of all rows, if they are known, those of rows that do not count among them.

    Returns
    -------
    parameters : ResolvedParameters
    owner : int64[rows] or None
        Number of the device of each row.
    names : tuple of str or None
        Names of the devices; a graph whose nodes have names must have the same ones.

    Raises
    ------
    DataError
        If `devices` name another number of devices than there are.
    ExperimentError
        If an option does not exist or is out of range.
    TopologyError
        If the graph cannot be used.
    """
    wanted, text = given["n_devices"], isinstance(given["graph"], str)
    found = None if text else Topology.from_graph(given["graph"])
    owner, usual, names = None, min(_DEVICES, m), None
    if devices is not None:
        owner, usual, names = _number(devices, wanted, found)
    seed = _draw_seed(given["random_state"])
    experiment = RunOptions(graph=given["graph"] if text else None, devices=wanted, seed=seed)
    method = _find_method(given)
    if needs_hub(method):
        if not text or given["graph"] not in {"ring", "star"}:
            raise refuse_graph(method, repr(given["graph"]), "Remove graph")
        return ResolvedParameters(method, None, wanted or usual, seed), owner, names
    if found is None:
        topology = build_topology(parse_graph(experiment, method), wanted, usual, names)
    else:
        topology = found.call(names)
    count = int(topology.components.max()) + 1
    if count > 1:
        raise TopologyError(f"the graph is disconnected: it has {count} components, which can never agree; add links")
    if wanted is not None and topology.n != wanted:
        raise TopologyError(f"the graph has {topology.n} nodes, but n_devices is {wanted}; leave n_devices out")
    if names is not None and topology.n != len(names):
        raise DataError(
            f"devices name {len(names)} devices, but the graph has {topology.n} nodes; make them equal, or number the "
            "devices from 0"
        )
    return ResolvedParameters(method, topology, topology.n, seed), owner, names


def _number(
    devices: NDArray[Any], wanted: int | None, graph: Topology | None
) -> tuple[Integers, int, tuple[str, ...] | None]:
    """Return the number of the device of each row, how many devices there are, and their names, None of numbers.

    graph: if it was given as an object; its nodes may be devices without rows.
    """
    codes, kinds = identify(devices)
    nodes = () if graph is None else graph.names or ()
    if nodes and kinds.dtype.kind == "i" and all(map(is_integer, nodes)):
        ids = identify(to_raw(nodes, "nodes")).kinds
        owner = locate(devices, ids)
        if (owner < 0).any():
            raise DataError(f"devices name {devices[owner.argmin()]}, which the graph has no node for; add it")
        return owner, len(ids), name_devices(ids)
    n = wanted if wanted is not None or graph is None else graph.n
    if n is not None and name_devices(kinds, n) is None:
        return devices, n, None
    if wanted not in (None, len(kinds)):
        raise DataError(
            f"devices name {len(kinds)} devices, but n_devices is {wanted}; leave n_devices out, or give numbers "
            f"from 0 to {wanted - 1}"
        )
    return codes, len(kinds), name_devices(kinds)


def _find_method(given: Mapping[str, Any]) -> Any:
    """Return the method that was named, with its options, or the one that was given."""
    method = given["algorithm"]
    if not isinstance(method, str):
        return _check_method(method, given)
    kinds = known(method)
    spec = parse(method, kinds, "algorithm")
    keys = parameters(kinds[spec.name])
    options = {
        name: given[name]
        for name, usual in _OPTIONS.items()
        if given[name] != usual or (name in keys and name not in spec.options)
    }
    return parse_method(RunOptions(algorithm=method, **options)).build(
        1 if _is_auto(given) else int(given["n_clusters"])
    )


def _check_method(method: Any, given: Mapping[str, Any]) -> Any:
    """Return a method that was given as an object, unless the estimator's parameters say something else."""
    if not isinstance(method, MethodBase):
        raise ExperimentError(f"algorithm is {method!r}; expected a name, or a method such as p2pkm.GTVMin(8)")
    if not _is_auto(given) and method.k != given["n_clusters"]:
        raise ExperimentError(
            f"n_clusters is {given['n_clusters']}, but the algorithm has {method.k} clusters; make them equal"
        )
    for name, usual in _OPTIONS.items():
        if given[name] != usual:
            raise ExperimentError(
                f"{name} is {given[name]!r}, but algorithm is an object, which brings its own; leave {name} out"
            )
    return method


def _draw_seed(state: Any) -> int:
    """Return a whole number, the same on every rank: what was given, or a draw from it."""
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
