"""A server method as an algorithm on a star: clients report, the hub aggregates."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, Pattern
from p2pkm.core.messages import DenseMessages, Inbox, pack
from p2pkm.core.protocols import OnGraph, Report, ServerMethod
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits

_CONSTANT = 2.0**-20  # span of a coordinate that is constant, as a share of the largest one


@register("star")
class StarState(NamedTuple):
    """The state of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        What each client last received from the hub; at the hub, what it last sent. Absent rows are +inf.
    converged : bool[n]
    values, rows : float64[n, r, w], int64[n]
        What each client sends next; rows -1: nothing.
    local : float64[n, q, d]
        The centroids that each client clustered its own points by.
    held : int64[n]
        At the hub: the rows that it last aggregated; elsewhere 0.
    shift, span : float64[n, d]
        Units of the method: (points - shift) / span.
    induced : bool[n]
        Whether points are labeled by way of the nearest local centroid, see `MethodTraits.induced_labels`.
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
    """Run a server method on the message layer; the hub is a device without points.

    A round has two turns: the hub aggregates the clients' last tables and sends its centroids, if any client has sent
    a new table; then every client that received new centroids takes them over and reports, unless the method is
    one-shot. The opening is the clients'. So R rounds on n clients cost n (R + 1) messages up and n R down; a one-shot
    method n up and n down. Where messages may be lost, the hub continues with the reports that it has, and a client
    that receives nothing reports again.
    """

    method: ServerMethod
    schedule: str = "star"

    @property
    def name(self) -> str:
        """Return the method's name on the command line."""
        return self.method.name

    @property
    def traits(self) -> MethodTraits:
        """Return what the method is; on the star it is no server method any more."""
        return replace(self.method.traits, is_server_method=False)

    def expected_messages(self, known: Known) -> Pattern | None:
        """Return what clients report."""
        return self.method.expected_messages(known)

    def initial_state(self, devices: Devices, start: Any) -> StarState:
        """Let the clients prepare their first report; `start` is the state of a box stage if units are to be scaled."""
        n, shape = len(devices), (len(devices), devices.d)
        shift, span = self._units(shape, start)
        model = np.full((n, self.k, devices.d), np.inf)
        empty = Report(np.zeros((n, 1, 1)), np.full(n, -1), model)
        asleep = np.zeros(n, np.bool_)
        induced = np.full(n, self.method.traits.induced_labels)
        state = StarState(model, asleep, *empty, np.zeros(n, np.int64), shift, span, induced)
        return self._report(state, devices.at_stage_start(devices.ids != devices.server))

    def message(self, state: StarState, devices: Devices) -> DenseMessages:
        """Send the centroids in the hub's turn, the reports in the clients'."""
        if _is_hubs(devices):
            values, rows = pack(state.centroids)
            return DenseMessages(values, np.where(devices.active_devices & (state.held >= 0), rows, -1))
        return DenseMessages(
            state.values, np.where(devices.active_devices, state.rows, -1), ragged=True
        )  # all points, for example

    def update(self, state: StarState, inbox: Inbox, devices: Devices) -> StarState:
        """Aggregate at the hub; take over and report at the clients."""
        received = np.zeros(len(devices), np.bool_)
        np.logical_or.at(received, devices.sources, inbox.fresh)
        if devices.late and _is_hubs(devices):  # reports may be lost: the hub goes on with those that it has
            np.logical_or.at(received, devices.sources, inbox.received)
        acts = devices.active_devices & received
        if _is_hubs(devices):
            return self._aggregate(state, inbox, devices, acts)
        centroids = state.centroids.copy()
        if acts.any():
            edges = devices.indptr[:-1][acts]  # a client has one link, to the hub
            real = np.arange(self.k) < inbox.rows_of(edges)[:, None]
            centroids[acts] = np.where(real[:, :, None], inbox.tables_of(edges, self.k, devices.d), np.inf)
        state = self._take(state, centroids, acts)
        sending = self._sends(state, devices, acts)
        if self.method.traits.one_shot > sending.any() or not devices.active_devices.any():
            return state._replace(rows=np.full(len(devices), -1))
        return self._report(state, replace(devices, active_devices=sending))

    def _sends(self, state: StarState, devices: Devices, acts: Mask) -> Mask:
        """Return which clients report; with losses also those that receive nothing: one-shot until answered."""
        if self.method.traits.one_shot:
            return devices.active_devices & devices.late & np.isposinf(state.centroids[:, 0, 0])
        return devices.active_devices if devices.late else acts

    def _aggregate(self, state: StarState, inbox: Inbox, devices: Devices, acts: Mask) -> StarState:
        """Return the state after the hub's turn; held -1: it has nothing to send."""
        held, centroids = np.where(devices.active_devices, -1, 0), state.centroids.copy()
        for i in np.flatnonzero(acts):
            edges = np.arange(devices.indptr[i], devices.indptr[i + 1])
            rows, width = np.maximum(inbox.rows_of(edges), 0), state.values.shape[2]
            tables = [inbox.tables_of(e, r, width) for e, r in zip(edges, rows, strict=True)]
            model = (centroids[i] - state.shift[i]) / state.span[i]
            found = self.method.aggregate(devices, tables, model)
            centroids[i] = np.inf
            centroids[i, : len(found)] = found * state.span[i] + state.shift[i]
            held[i] = rows.sum()
        return self._take(state, centroids, acts)._replace(held=held)

    def _take(self, state: StarState, centroids: Floats, acts: Mask) -> StarState:
        """Take over new centroids; who sees them stand still, in the units of the method, is converged."""
        with np.errstate(invalid="ignore"):
            moves = (centroids - state.centroids) / state.span[:, None]
        moves[np.isinf(centroids) & np.isinf(state.centroids)] = 0.0
        still = np.sqrt((moves * moves).sum(axis=(1, 2))) < self.method.tol
        return state._replace(centroids=centroids, converged=np.where(acts, still, state.converged))

    def _report(self, state: StarState, devices: Devices) -> StarState:
        """Let the active devices report; the method counts in its own units, the state in those of the data."""
        shift, span = state.shift[:, None], state.span[:, None]
        scaled = devices
        if self.method.traits.normalization != "none":
            owner = np.repeat(np.arange(len(devices)), devices.sizes)
            scaled = replace(devices, stored=(devices.stored - state.shift[owner]) / state.span[owner])
        model = (state.centroids - shift) / span
        values, rows, local = self.method.report(scaled, model)
        unheard = devices.active_devices & np.isposinf(model[:, 0, 0])
        if devices.late and devices.round and unheard.any():  # they repeat their report of the opening
            first = self.method.report(scaled.at_stage_start(devices.active_devices), model)
            values, local = choose_tables(unheard, first.values, values), choose_tables(unheard, first.local, local)
            rows = np.where(unheard, first.rows, rows)
        return state._replace(
            values=values, rows=np.where(devices.active_devices, rows, -1), local=local * span + shift
        )

    def _units(self, shape: tuple[int, int], start: Any) -> tuple[Floats, Floats]:
        """Return shift and span of the method's frame; `start`: the box stage, if any.

        A coordinate that is constant has a span far below the others, so that draws within bins leave it as it is.
        """
        frame = self.method.traits.normalization
        if frame == "none":
            return np.zeros(shape), np.ones(shape)
        if isinstance(frame, tuple):
            return np.full(shape, frame[0]), np.full(shape, frame[1] - frame[0])
        shift, span = start.scaling
        if frame == "entries":
            low = shift.min(axis=1, keepdims=True)
            width = (shift + span).max(axis=1, keepdims=True) - low
            shift, span = np.broadcast_to(low, shift.shape).copy(), np.broadcast_to(width, span.shape).copy()
        largest = span.max(axis=1, keepdims=True)
        largest = np.where(largest > 0.0, largest, np.abs(shift).max(axis=1, keepdims=True))
        return shift, np.where(span > 0.0, span, _CONSTANT * np.where(largest > 0.0, largest, 1.0))


def choose_tables(which: Mask, these: Floats, others: Floats) -> Floats:
    """Merge tables [n, a, w] and [n, b, w] into [n, max(a, b), w]: of `these` where `which` holds, else of `others`."""
    n, width = len(which), these.shape[2]
    chosen = np.full((n, max(these.shape[1], others.shape[1]), width), np.inf)
    chosen[~which, : others.shape[1]], chosen[which, : these.shape[1]] = others[~which], these[which]
    return chosen


def _is_hubs(devices: Devices) -> bool:
    """Return whether this is the hub's turn; the opening is the clients'."""
    return devices.round > 0 and devices.turn == 0
