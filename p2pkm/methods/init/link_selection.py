"""The gate: which links lead to devices whose points look alike."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, UntilQuiet
from p2pkm.core.messages import DenseMessages, Inbox, pack
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.building_blocks.total_variation import heard, lower_quartile, summary_distance
from p2pkm.methods.init.flooded_summaries import summarize

_LENIENT = 2.0  # times the larger quartile: what a link may be unlike


@register("link-selection")
class LinkSelectionState(NamedTuple):
    """The state of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Those of the stage before, else absent.
    converged : bool[n]
    pairs : float64[n, k, d + 1]
        Summary of the own points; absent pairs are +inf.
    quartile : float64[n]
        Lower quartile q_i of the own links; nan where there is none to judge.
    edge_contrast : float64[e]
        g_ij; nan where one end has no points.
    edge_active : bool[e]
        Links that are kept.
    edge_degrees : int64[e]
        Links that the neighbor keeps.
    """

    centroids: Floats
    converged: Mask
    pairs: Floats
    quartile: Floats
    edge_contrast: Floats
    edge_active: Mask
    edge_degrees: Integers


@dataclass(frozen=True)
class LinkSelection(MethodBase):
    """Keep the links ``g_ij <= 2 max(q_i, q_j)``, with the neighbor's summary compared with the own one.

    Each device summarizes its points by k-means (greedy seeds, best of 3); g_ij is the count-weighted mean squared
    distance of i's pairs to j's nearest row plus the reverse, q_i the lower quartile (linear interpolation) over i's
    links. Both ends come to the same verdict. The best link of a device always stays: its g is at most q_i. A link to
    a device without points stays, too, and counts for no quartile: no quartile excludes it.

    Message: at most k pairs of d + 1 columns, then one row with q_i, then, over the links that stay, one row with
    their number, which the strength of links depends on. The links that were cut are out of use from then on.

    Privacy: neighbors see the centroids and counts of the own points.
    """

    name: ClassVar[str] = "link-selection"
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.OPENING_CENTROIDS,
        suppresses_small_clusters=True,
        needs_honest_messages=True,
        cuts_links=True,
    )
    k: int
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> UntilQuiet:
        """Return the pairs, then less."""
        return UntilQuiet(self.k, known.features + 1)

    def initial_state(self, devices: Devices, start: Any) -> LinkSelectionState:
        """Summarize the own points."""
        n, e = len(devices), len(devices.indices)
        centroids = np.full((n, self.k, devices.d), np.inf) if start is None else start.centroids
        pairs, unknown = summarize(devices, self.k), np.full(e, np.nan)
        edges = devices.active_edges, devices.neighbor_degrees
        return LinkSelectionState(centroids, np.zeros(n, np.bool_), pairs, np.full(n, np.nan), unknown, *edges)

    def message(self, state: LinkSelectionState, devices: Devices) -> DenseMessages:
        """Send the pairs, then the quartile, then the number of links that stay."""
        if devices.round == 0:
            return DenseMessages(*pack(state.pairs))
        if devices.round == 1:
            return DenseMessages(state.quartile[:, None, None], (state.quartile >= 0.0).astype(np.int64))
        return send_degrees(devices, state.edge_active)

    def update(self, state: LinkSelectionState, inbox: Inbox, devices: Devices) -> LinkSelectionState:
        """Compare summaries, then cut, then learn how many links each neighbor keeps."""
        if devices.round == 1:
            edges, values = heard(inbox, devices.active_edges), np.full(len(devices.indices), np.nan)
            values[edges] = summary_distance(devices, state.pairs, inbox, edges)
            judged = np.flatnonzero(values >= 0.0)
            return state._replace(edge_contrast=values, quartile=lower_quartile(devices, values[judged], judged))
        fresh = np.flatnonzero(inbox.fresh & (inbox.rows[inbox.slots] == 1))
        said = inbox.tables[inbox.slots[fresh], 0, 0]
        if devices.round == 2:
            largest = state.quartile[devices.sources]
            largest[fresh] = np.fmax(largest[fresh], said)
            return state._replace(edge_active=devices.active_edges & ~(state.edge_contrast > _LENIENT * largest))
        kept = state.edge_active & inbox.fresh  # what the other end cuts, it sends nothing over
        return state._replace(
            edge_active=kept, edge_degrees=learn_degrees(inbox), converged=np.ones(len(devices), np.bool_)
        )


def send_degrees(devices: Devices, kept: Mask) -> DenseMessages:
    """Send once, in the second round, how many own edges of the mask are kept, over these."""
    degrees = np.bincount(devices.sources[kept], minlength=len(devices)).astype(np.float64)
    return DenseMessages(degrees[:, None, None], np.full(len(devices), 1 if devices.round == 2 else -1), edges=kept)


def learn_degrees(inbox: Inbox) -> Integers:
    """Return what `send_degrees` sent over each own edge, int64[e]; 0 where nothing came."""
    degrees, fresh = np.zeros(len(inbox.fresh), np.int64), np.flatnonzero(inbox.fresh)
    degrees[fresh] = np.rint(inbox.tables[inbox.slots[fresh], 0, 0])
    return degrees
