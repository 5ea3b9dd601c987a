"""Seeds from the flooded summaries of all devices (or of those within some hops)."""

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
from p2pkm.methods.building_blocks.flooding import Flood, begin, group, receive, send
from p2pkm.methods.building_blocks.small_clusters import publish

_LIMIT = 100  # Lloyd steps on the pairs
_STARTS, _STARTS_EACH = 20, 10  # seedings of the only clustering, of each of several candidates
_MORE = 50  # further seedings, one at a time, where candidates are alike


@register("flooded-summaries")
class FloodedSummariesState(NamedTuple):
    """centroids: float64[n, k, d]; converged: bool[n], has clustered; candidates: float64[n, q, k, d]; flood."""

    centroids: Floats
    converged: Mask
    candidates: Floats
    flood: Flood


def summarize(devices: Devices, k: int) -> Floats:
    """Return the pairs (centroid, count) of every device's own k-means, float64[n, k, d + 1]; absent ones are +inf."""
    centroids, counts, _ = devices.kmeans(k, Stream.SUMMARY, starts=3)
    centroids = publish(devices, centroids)
    pairs = np.concatenate((centroids, counts[:, :, None]), axis=2)
    pairs[(counts == 0.0) | np.isinf(centroids[:, :, 0])] = np.inf
    return pairs


@dataclass(frozen=True)
class FloodedSummaries(MethodBase):
    """Flood the pairs (centroid, count) of every device's own k-means; cluster the pairs that arrive.

    Each device runs k-means (greedy seeds, best of 3) on its own points and sends its at most k pairs; they travel
    ``hops`` links far. When a round brings nothing new, a device clusters the pairs that it holds, ordered by origin,
    into k by weighted greedy k-means++ (best of 20, or best of 10 for each of several candidates; at most 100 Lloyd
    steps). Candidates that are the same set as one before give way to what up to 50 further single seedings find. The
    seed is shared, so devices that hold the same pairs end with the same rows.

    Message: every pair once over every link and direction, d + 1 columns; the id of the origin travels uncounted.

    Attributes
    ----------
    k : int
    hops : int or None
        How far the pairs travel; None: to every device.
    candidates : int
        How many clusterings to compute, for `SelectCandidate`.
    """

    name: ClassVar[str] = "flooded-summaries"
    k: int
    hops: int | None = None
    candidates: int = 1
    schedule: str = "jacobi"

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.SUMMARIES,
            hops=self.hops,
            ends_under_faults=True,
            common_centroids=self.hops is None,
        )

    def expected_messages(self, known: Known) -> Flooding:
        """Return the pairs of every device."""
        return Flooding(self.k, known.features + 1, known.fills(self.k), self.hops)

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return whether every device has k centroids in the end, for sure."""
        return known.pools(self.k) if self.hops is None else known.fills(self.k)

    def initial_state(self, devices: Devices, start: Any) -> FloodedSummariesState:
        """Summarize the own points."""
        pairs, rows = pack(summarize(devices, self.k))
        candidates = np.full((len(devices), self.candidates, self.k, devices.d), np.inf)
        asleep = np.zeros(len(devices), np.bool_)
        return FloodedSummariesState(candidates[:, 0].copy(), asleep, candidates, begin(devices, pairs, rows))

    def message(self, state: FloodedSummariesState, devices: Devices) -> DenseMessages:
        """Forward the pairs that are news."""
        return send(state.flood, devices)

    def update(self, state: FloodedSummariesState, inbox: Inbox, devices: Devices) -> FloodedSummariesState:
        """Take in pairs; cluster them if there was nothing new, or if they have come far enough."""
        flood = receive(state.flood, inbox, devices)
        far = devices.round == self.hops
        quiet = np.logical_not(flood.news.any(axis=1))
        ready = far | quiet
        members = np.flatnonzero(ready & ~(state.converged & quiet))
        if far:
            flood = flood._replace(news=np.zeros_like(flood.news))
        candidates = state.candidates
        if len(members):
            candidates = candidates.copy()
            candidates[members] = cluster_pairs(devices, flood, members, candidates.shape[1:3])
        return FloodedSummariesState(candidates[:, 0].copy(), ready, candidates, flood)


def cluster_pairs(devices: Devices, flood: Flood, members: Integers, shape: tuple[int, int]) -> Floats:
    """Return what the given devices find among the pairs that they hold, float64[members, q, k, d]; shape: (q, k)."""
    collections, which = group(flood, members)
    return cluster_collections(devices, collections, shape)[which]


def cluster_collections(devices: Devices, collections: Sequence[Floats], shape: tuple[int, int]) -> Floats:
    """Return q clusterings of each collection of pairs into k, float64[collections, q, k, d]; shape: (q, k).

    They are different sets, unless all the seedings find fewer; then those that repeat one before are last.
    """
    candidates, k = shape
    found = np.empty((len(collections), candidates, k, devices.d))
    starts = _STARTS if candidates == 1 else _STARTS_EACH
    for q in range(candidates if len(collections) else 0):
        found[:, q] = devices.pooled_kmeans(
            collections, k, Stream.CLUSTER, starts=starts, limit=_LIMIT, first=q * starts
        )
    known: list[dict[bytes, Floats]] = [{} for _ in collections]
    for place, first in enumerate(found):
        for one in first:
            known[place].setdefault(_name(one), one)
    for number in range(candidates * starts, candidates * starts + _MORE):
        short = [place for place, sets in enumerate(known) if len(sets) < candidates]
        if not short:
            break
        some = [collections[place] for place in short]
        more = devices.pooled_kmeans(some, k, Stream.CLUSTER, starts=1, limit=_LIMIT, first=number)
        for place, one in zip(short, more, strict=True):
            known[place].setdefault(_name(one), one)
    for place, sets in enumerate(known):
        found[place, : len(sets)] = list(sets.values())
        found[place, len(sets) :] = found[place, 0]
    return found


def _name(centroids: Floats) -> bytes:
    """Return what names a set of centroids, float64[k, d], whatever their order."""
    return np.ascontiguousarray(centroids[np.lexsort(centroids.T)]).tobytes()
