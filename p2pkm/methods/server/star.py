"""Server methods on a star graph: clients send reports, the server aggregates them."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, Pattern
from p2pkm.core.messages import DenseMessages, Inbox, pack
from p2pkm.core.protocols import OnGraph, Report, ServerMethod
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits

# Span of a constant coordinate, relative to the largest span. It is far below the others, so that draws within bins
# leave the coordinate unchanged.
_CONSTANT = 2.0**-20


@register("star")
class StarState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Centroids that each client received last; at the server, those that it sent last. Absent rows are +inf.
    converged : bool[n]
    values, rows : float64[n, r, w], int64[n]
        Report that each client sends next; rows -1: none.
    local : float64[n, q, d]
        Local centroids of each client.
    held : int64[n]
        At the server: number of rows in the last aggregation, -1 if it has nothing to send; at clients 0.
    shift, span : float64[n, d]
        Units of the method: (points - shift) / span.
    induced : bool[n]
        Whether points are labeled through the nearest local centroid, see `ServerMethodBase.labels_by_local_rows`.
    """

    centroids: Floats
    converged: Mask
    values: Floats
    rows: Integers
    local: Floats
    held: Integers
    shift: Floats
    span: Floats
    induced: Mask


@dataclass(frozen=True)
class Star(OnGraph):
    """Server method on the message layer; the server is a device without points.

    A round has two turns. In the first the server aggregates the last tables of the clients and sends its centroids, if
    any client has sent a new table. In the second every client that received new centroids stores them and sends a
    report, unless the method is one-shot. In the initial exchange clients send reports. So R rounds with n clients cost
    n (R + 1) messages up and n R down; a one-shot method costs n up and n down. If messages may be lost, the server
    continues with the reports that it has, and a client that receives nothing sends its report again. A client without
    an active link is not asked in this round: it neither computes nor sends.
    """

    method: ServerMethod
    schedule: str = "star"

    @property
    def name(self) -> str:
        """Name of the method on the command line."""
        return self.method.name

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, which on the star runs like a method without a server."""
        return replace(self.method.traits, is_server_method=False)

    def expected_messages(self, known: Known) -> Pattern | None:
        """Count the reports of the clients."""
        return self.method.expected_messages(known)

    def initial_state(self, devices: Devices, start: Any) -> StarState:
        """Prepare the first reports; `start` is the state of the bounding-box stage if points are scaled."""
        n = len(devices)
        shape = (len(devices), devices.d)
        shift, span = self._units(shape, start)
        model = np.full((n, self.k, devices.d), np.inf)
        empty = Report(np.zeros((n, 1, 1)), np.full(n, -1), model)
        converged = np.zeros(n, np.bool_)
        induced = np.full(n, self.method.labels_by_local_rows)
        state = StarState(model, converged, *empty, np.zeros(n, np.int64), shift, span, induced)
        return self._report(state, devices.at_stage_start((devices.ids != devices.server) & _find_linked(devices)))

    def message(self, state: StarState, devices: Devices) -> DenseMessages:
        """Send the centroids in the turn of the server, the reports in the turn of the clients."""
        if _is_server_turn(devices):
            values, rows = pack(state.centroids)
            return DenseMessages(values, np.where(devices.active_devices & (state.held >= 0), rows, -1))
        # Ragged, because reports of different length would waste memory: with `central` they contain all points.
        return DenseMessages(state.values, np.where(devices.active_devices, state.rows, -1), ragged=True)

    def update(self, state: StarState, inbox: Inbox, devices: Devices) -> StarState:
        """Aggregate at the server; store centroids and prepare reports at the clients."""
        received = np.zeros(len(devices), np.bool_)
        np.logical_or.at(received, devices.sources, inbox.fresh)
        if devices.has_stale_links and _is_server_turn(devices):
            # Reports may be lost, so the server continues with those that it has.
            np.logical_or.at(received, devices.sources, inbox.received)
        acts = devices.active_devices & received
        if _is_server_turn(devices):
            return self._aggregate(state, inbox, devices, acts)
        centroids = state.centroids.copy()
        if acts.any():
            # A client has one link, to the server, so its first edge is the only one.
            edges = devices.indptr[:-1][acts]
            present = np.arange(self.k) < inbox.rows_of(edges)[:, None]
            centroids[acts] = np.where(present[:, :, None], inbox.tables_of(edges, self.k, devices.d), np.inf)
        state = self._store_centroids(state, centroids, acts, devices)
        sending = self._find_reporting(state, devices, acts)
        if (self.method.traits.one_shot and not sending.any()) or not devices.active_devices.any():
            return state._replace(rows=np.full(len(devices), -1))
        return self._report(state, replace(devices, active_devices=sending))

    def _find_reporting(self, state: StarState, devices: Devices, acts: Mask) -> Mask:
        """Find the clients that report; with losses also those without a reply, in one-shot methods only these."""
        if self.method.traits.one_shot:
            return devices.active_devices & devices.has_stale_links & np.isposinf(state.centroids[:, 0, 0])
        return devices.active_devices & _find_linked(devices) if devices.has_stale_links else acts

    def _aggregate(self, state: StarState, inbox: Inbox, devices: Devices, acts: Mask) -> StarState:
        """Aggregate the reports at the server; held is -1 if it has nothing to send."""
        held = np.where(devices.active_devices, -1, 0)
        centroids = state.centroids.copy()
        for i in np.flatnonzero(acts):
            edges = np.arange(devices.indptr[i], devices.indptr[i + 1])
            rows, width = np.maximum(inbox.rows_of(edges), 0), state.values.shape[2]
            tables = [inbox.tables_of(e, r, width) for e, r in zip(edges, rows, strict=True)]
            model = (centroids[i] - state.shift[i]) / state.span[i]
            aggregated = self.method.aggregate(devices, tables, model)
            centroids[i] = np.inf
            centroids[i, : len(aggregated)] = aggregated * state.span[i] + state.shift[i]
            held[i] = rows.sum()
        return self._store_centroids(state, centroids, acts, devices)._replace(held=held)

    def _store_centroids(self, state: StarState, centroids: Floats, acts: Mask, devices: Devices) -> StarState:
        """Store new centroids; the method decides from the last two tables whether a device has converged."""
        is_still = self.method.has_settled(centroids, state.centroids, state.span[:, None], devices)
        return state._replace(centroids=centroids, converged=np.where(acts, is_still, state.converged))

    def _report(self, state: StarState, devices: Devices) -> StarState:
        """Prepare the reports of the active devices, in the units of the method; the state is in units of the data."""
        shift, span = state.shift[:, None], state.span[:, None]
        scaled = devices
        if self.method.traits.normalization != "none":
            owner = np.repeat(np.arange(len(devices)), devices.sizes)
            scaled = replace(devices, stored=(devices.stored - state.shift[owner]) / state.span[owner])
        model = (state.centroids - shift) / span
        values, rows, local = self.method.report(scaled, model)
        without_reply = devices.active_devices & np.isposinf(model[:, 0, 0])
        if devices.has_stale_or_varying_links and devices.round and without_reply.any():
            # They repeat the report of the initial exchange, so the method is called as in round 0.
            first = self.method.report(scaled.at_stage_start(devices.active_devices), model)
            values = choose_tables(without_reply, first.values, values)
            local = choose_tables(without_reply, first.local, local)
            rows = np.where(without_reply, first.rows, rows)
        return state._replace(
            values=values, rows=np.where(devices.active_devices, rows, -1), local=local * span + shift
        )

    def _units(self, shape: tuple[int, int], start: Any) -> tuple[Floats, Floats]:
        """Compute shift and span of the units of the method; `start` is the state of the bounding-box stage, if any."""
        normalization = self.method.traits.normalization
        if normalization == "none":
            return np.zeros(shape), np.ones(shape)
        if isinstance(normalization, tuple):
            low, high = normalization
            return np.full(shape, low), np.full(shape, high - low)
        shift, span = start.scaling
        if normalization == "entries":
            low = shift.min(axis=1, keepdims=True)
            width = (shift + span).max(axis=1, keepdims=True) - low
            shift, span = np.broadcast_to(low, shift.shape).copy(), np.broadcast_to(width, span.shape).copy()
        largest = span.max(axis=1, keepdims=True)
        largest = np.where(largest > 0.0, largest, np.abs(shift).max(axis=1, keepdims=True))
        return shift, np.where(span > 0.0, span, _CONSTANT * np.where(largest > 0.0, largest, 1.0))


def choose_tables(mask: Mask, if_true: Floats, if_false: Floats) -> Floats:
    """Merge tables [n, a, w] and [n, b, w] into [n, max(a, b), w], by a mask of the devices bool[n]."""
    n, width = len(mask), if_true.shape[2]
    chosen = np.full((n, max(if_true.shape[1], if_false.shape[1]), width), np.inf)
    chosen[~mask, : if_false.shape[1]] = if_false[~mask]
    chosen[mask, : if_true.shape[1]] = if_true[mask]
    return chosen


def _find_linked(devices: Devices) -> Mask:
    """Find the devices with an active link, bool[n]."""
    linked: Mask = np.bincount(devices.sources[devices.active_edges], minlength=len(devices)) > 0
    return linked


def _is_server_turn(devices: Devices) -> bool:
    """Tell whether this is the turn of the server; the initial exchange belongs to the clients."""
    return devices.round > 0 and devices.turn == 0
