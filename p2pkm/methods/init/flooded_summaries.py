"""Initialization by clustering the local centroids of all devices, or of those within some hops, sent by flooding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask, Stream
from p2pkm.core.expected_messages import Flooding, Known
from p2pkm.core.messages import DenseMessages, Inbox, pack
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.building_blocks.flooding import Flood, begin, distinct_collections, receive, send
from p2pkm.methods.building_blocks.small_clusters import suppressed_means

# Largest number of Lloyd steps on the summary rows.
_LIMIT = 100
# k-means++ seedings of a single clustering, and of each of several candidates.
_STARTS = 20
_STARTS_EACH = 10
# Further single seedings to replace candidates that equal another one.
_EXTRA_STARTS = 50


@register("flooded-summaries")
class FloodedSummariesState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        First candidate; +inf until the device has clustered its rows.
    converged : bool[n]
        Devices that have clustered their rows.
    candidates : float64[n, q, k, d]
    flood : Flood
    """

    centroids: Floats
    converged: Mask
    candidates: Floats
    flood: Flood


def summarize(devices: Devices, k: int) -> Floats:
    """Run k-means on every device: rows (centroid, count), float64[n, k, d + 1]; absent rows are +inf."""
    centroids, counts, _ = devices.kmeans(k, Stream.SUMMARY, starts=3)
    centroids = suppressed_means(devices, centroids)
    rows = np.concatenate((centroids, counts[:, :, None]), axis=2)
    rows[(counts == 0.0) | np.isinf(centroids[:, :, 0])] = np.inf
    return rows


@dataclass(frozen=True)
class FloodedSummaries(MethodBase):
    """Initialization by flooding summary rows (centroid, count) and clustering them on every device.

    Attributes
    ----------
    k : int
        Number of clusters.
    hops : int or None
        Number of links that rows travel; None: they reach every device.
    candidates : int, default=1
        Number of clusterings to compute. `SelectCandidate` chooses one.

    Notes
    -----
    **Update.**

    1. Each device runs k-means on its local points (greedy k-means++, best of 3) and sends the at most k rows.
    2. Rows are forwarded over every link, `hops` links far.
    3. After a round without new rows, a device clusters its rows, ordered by origin, into k: weighted greedy k-means++,
       best of 20 (best of 10 for each of several candidates), at most 100 Lloyd steps. Candidates that equal another
       one are replaced by the results of up to 50 further seedings.

    The random stream is shared, so devices that hold the same rows end with the same centroids.

    **Messages.** Every row once over every link in each direction, d + 1 columns. The id of the origin is not counted.

    **Privacy.** No guarantee. All devices within `hops` links receive the local centroids and counts of a device; a
    centroid of one point is that point. With a `min_cluster_size` p centroids of fewer than p points are not sent.

    **Faults.** If messages are lost, devices may end with different centroids. `MinIdAgreement` follows then.
    """

    name: ClassVar[str] = "flooded-summaries"
    k: int
    hops: int | None = None
    candidates: int = 1
    schedule: str = "jacobi"

    @property
    def traits(self) -> MethodTraits:
        """Traits of the stage, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.SUMMARIES,
            hops=self.hops,
            ends_under_faults=True,
            common_centroids=self.hops is None,
        )

    def expected_messages(self, known: Known) -> Flooding:
        """Count the rows of every device."""
        return Flooding(self.k, known.features + 1, known.fills(self.k), self.hops)

    def finds_all(self, known: Known, before: bool) -> bool:
        """Check whether every device is certain to end with k centroids."""
        return known.pools(self.k) if self.hops is None else known.fills(self.k)

    def initial_state(self, devices: Devices, start: Any) -> FloodedSummariesState:
        """Summarize the local points."""
        values, rows = pack(summarize(devices, self.k))
        candidates = np.full((len(devices), self.candidates, self.k, devices.d), np.inf)
        converged = np.zeros(len(devices), np.bool_)
        return FloodedSummariesState(candidates[:, 0].copy(), converged, candidates, begin(devices, values, rows))

    def message(self, state: FloodedSummariesState, devices: Devices) -> DenseMessages:
        """Forward the rows received in the last turn."""
        return send(state.flood, devices)

    def update(self, state: FloodedSummariesState, inbox: Inbox, devices: Devices) -> FloodedSummariesState:
        """Store received rows; cluster them if none was new, or if they have travelled `hops` links."""
        flood = receive(state.flood, inbox, devices)
        is_last_hop = devices.round == self.hops
        quiet = np.logical_not(flood.new_origins.any(axis=1))
        ready = is_last_hop | quiet
        # With faults a device may receive rows after it has clustered. It clusters again then.
        members = np.flatnonzero(ready & ~(state.converged & quiet))
        if is_last_hop:
            flood = flood._replace(new_origins=np.zeros_like(flood.new_origins))
        candidates = state.candidates
        if len(members):
            candidates = candidates.copy()
            candidates[members] = cluster_held_rows(devices, flood, members, candidates.shape[1:3])
        return FloodedSummariesState(candidates[:, 0].copy(), ready, candidates, flood)


def cluster_held_rows(devices: Devices, flood: Flood, members: Integers, shape: tuple[int, int]) -> Floats:
    """Cluster the rows that some devices hold, float64[members, q, k, d]; `shape` is (q, k)."""
    collections, numbers = distinct_collections(flood, members)
    return cluster_collections(devices, collections, shape)[numbers]


def cluster_collections(devices: Devices, collections: Sequence[Floats], shape: tuple[int, int]) -> Floats:
    """Compute q clusterings of each collection of rows into k, float64[collections, q, k, d]; `shape` is (q, k).

    The clusterings of a collection differ from each other. If all seedings together find fewer, the first one is
    repeated at the end.
    """
    candidates, k = shape
    clusterings = np.empty((len(collections), candidates, k, devices.d))
    starts = _STARTS if candidates == 1 else _STARTS_EACH
    if not len(collections):
        return clusterings
    search = devices.prepare_kmeans(collections, k, Stream.CLUSTER, _LIMIT)
    for q in range(candidates):
        clusterings[:, q] = search(starts, q * starts)
    distinct: list[dict[bytes, Floats]] = [{} for _ in collections]
    for index, results in enumerate(clusterings):
        for centroids in results:
            distinct[index].setdefault(_set_key(centroids), centroids)
    searched = list(range(len(collections)))
    for number in range(candidates * starts, candidates * starts + _EXTRA_STARTS):
        incomplete = [index for index, sets in enumerate(distinct) if len(sets) < candidates]
        if not incomplete:
            break
        if incomplete != searched:
            searched = incomplete
            search = devices.prepare_kmeans([collections[i] for i in incomplete], k, Stream.CLUSTER, _LIMIT)
        for index, centroids in zip(incomplete, search(1, number), strict=True):
            distinct[index].setdefault(_set_key(centroids), centroids)
    for index, sets in enumerate(distinct):
        clusterings[index, : len(sets)] = list(sets.values())
        clusterings[index, len(sets) :] = clusterings[index, 0]
    return clusterings


def _set_key(centroids: Floats) -> bytes:
    """Compute a key of a set of centroids, float64[k, d], that does not depend on their order."""
    return np.ascontiguousarray(centroids[np.lexsort(centroids.T)]).tobytes()
