"""Exposure of devices, number of other devices whose rows reached each device, and disclosed points."""

from dataclasses import replace
from typing import Any

import numpy as np

from p2pkm.core.batch import Integers
from p2pkm.core.sorting import sum_by
from p2pkm.metrics.result import Disclosed, Exposure, Result
from p2pkm.network.graph import Topology
from p2pkm.network.ledger import Traffic

# Note of runs that only count the disclosed points.
UNRECORDED = "disclosed.csv is not written: there are more than 1 million pairs of a point and a neighbor of its device"
# Smallest --min-cluster-size that keeps single points out of messages.
_SUPPRESSED = 2
# Largest number of devices that the note names.
_NAMED = 3


def count_exposure(traffic: Traffic, topology: Topology, hops: int | None) -> Exposure:
    """Count the devices whose tables each device received, directly from neighbors or forwarded unchanged.

    Parameters
    ----------
    traffic : Traffic
        Ledger of the run.
    topology : Topology
        Graph of the run.
    hops : int or None
        Number of hops over which tables were forwarded unchanged; None: to all connected devices.
    """
    n = topology.n
    sending = (traffic.edge_rows > 0) & (traffic.src != topology.hub)
    seen = sum_by(traffic.dst, sending, n).astype(np.int64)
    if hops is None:
        sizes = np.bincount(topology.components)
        seen = np.maximum(seen, np.where(seen > 0, sizes[topology.components] - 1, 0))
    elif hops > 1:
        from topologies import CSRGraph, measures

        seen = np.maximum(seen, measures.count_within(CSRGraph(topology.indptr, topology.indices), hops))
    return Exposure(seen, sum_by(traffic.dst, traffic.edge_rows, n).astype(np.int64))


def add_disclosed(result: Result, arrays: dict[str, Any] | None, *, suppressible: bool) -> Result:
    """Add the disclosed points to a result, with a note that names their devices.

    Parameters
    ----------
    result : Result
    arrays : dict or None
        Arrays of `Disclosed` by name; None if they were not recorded.
    suppressible : bool
        Whether the method supports ``--min-cluster-size``.
    """
    if arrays is None:
        return replace(result, notes=[*result.notes, *[UNRECORDED] * bool(result.summary["raw_points_disclosed"])])
    topology, sizes = result.topology, result.census.sizes
    disclosed = Disclosed(**arrays, names=name_devices(topology))
    if not len(disclosed.device):
        return replace(result, disclosed=disclosed)
    advice = ""
    if suppressible and (result.summary["min_cluster_size"] or 0) < _SUPPRESSED:
        advice = f"; --min-cluster-size {_SUPPRESSED} suppresses clusters of one point"
    note = f"disclosed points: {_name_disclosing(disclosed, topology, sizes)}; disclosed.csv names all rows{advice}"
    return replace(result, disclosed=disclosed, notes=[*result.notes, note])


def name_devices(topology: Topology) -> tuple[str, ...]:
    """Return the names or numbers of all devices and, at the end, of the server."""
    return tuple(topology.label(i) for i in range(topology.n))


def _name_disclosing(disclosed: Disclosed, topology: Topology, sizes: Integers) -> str:
    """Name up to three devices with disclosed points, most first; sizes: points of each device, int64[n]."""
    # Entries of a point are next to each other.
    is_first = np.ones(len(disclosed.row), np.bool_)
    is_first[1:] = (disclosed.row[1:] != disclosed.row[:-1]) | (disclosed.device[1:] != disclosed.device[:-1])
    counts = np.bincount(disclosed.device[is_first], minlength=len(sizes))
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist()
    prefix = "" if topology.names else "device "
    parts = [f"{counts[i]:,} of {sizes[i]:,} of {prefix}{topology.label(i)}" for i in order[:_NAMED]]
    return ", ".join(parts) + (f", and of {len(order) - _NAMED:,} more" if len(order) > _NAMED else "")
