"""Observation of the values that a method computes and sends in a run, for `check_method`.

Unlike `p2pkm.testing.watch_method.ContractChecker`, these observers repeat no call, so they also watch runs with lost
and late messages.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import Delivery, SparseMessages


class ValueChecker:
    """Checker of the values of all centroids, and of all messages that consist of centroids.

    Parameters
    ----------
    low, high : float64[d]
        Box in which all points and initial centroids lie.
    sends_centroids : bool
        Rows of messages begin with the coordinates of a centroid, after the header.

    Attributes
    ----------
    finding : str
        First value that is neither finite nor absent (+inf), or that is outside of the box; empty if there is none.
    busy : bool
        True during a call of the method. Calls that the method makes to its own functions are not checked.
    """

    def __init__(self, low: Floats, high: Floats, *, sends_centroids: bool) -> None:
        self.finding = ""
        self.busy = False
        # Extrapolation is not excluded, so that centroids may be outside by the size of the box.
        width = (high - low).max()
        self._low, self._high = low - width, high + width
        self._sends_centroids = sends_centroids

    def initial_state(self, call: Callable[..., Any], devices: Devices, start: Any) -> Any:
        """Check the first centroids."""
        state = _call_unobserved(self, call, devices, start)
        self._check("initial_state", state.centroids)
        return state

    def message(self, call: Callable[..., Any], state: Any, devices: Devices) -> Any:
        """Check the centroids that are sent."""
        messages = _call_unobserved(self, call, state, devices)
        if self._sends_centroids:
            first, last = messages.header, messages.header + devices.d
            if isinstance(messages, SparseMessages):
                self._check("message", messages.tables.flat()[None, :, first:last])
            else:
                is_sent = np.arange(messages.values.shape[1]) < messages.rows[:, None]
                self._check("message", np.where(is_sent[:, :, None], messages.values[:, :, first:last], np.inf))
        return messages

    def update(self, call: Callable[..., Any], state: Any, inbox: Any, devices: Devices) -> Any:
        """Check the new centroids."""
        after = _call_unobserved(self, call, state, inbox, devices)
        self._check("update", after.centroids)
        return after

    def report(self, call: Callable[..., Any], clients: Devices, model: Floats) -> Any:
        """Check the local centroids of clients."""
        report = _call_unobserved(self, call, clients, model)
        self._check("report", report.local)
        return report

    def aggregate(self, call: Callable[..., Any], hub: Devices, tables: list[Floats], model: Floats) -> Any:
        """Check the centroids of the server."""
        centroids = _call_unobserved(self, call, hub, tables, model)
        self._check("aggregate", centroids[None])
        return centroids

    def _check(self, function: str, centroids: Floats) -> None:
        """Note the first centroid, float64[n, r, d], that is neither absent nor in the box."""
        is_inside = ((centroids >= self._low) & (centroids <= self._high)).all(axis=2)
        wrong = np.argwhere(~is_inside & ~np.isposinf(centroids).all(axis=2))
        if len(wrong) and not self.finding:
            i, c = wrong[0]
            self.finding = f"{function} returned centroid {c} of device {i} as {centroids[i, c]}"


class HeaderChecker:
    """Checker of the columns that are sent but not counted: they hold ids of devices that the sender has heard of.

    For methods without a server: reports have no header.

    Attributes
    ----------
    finding : str
        First other content; empty if there is none.
    busy : bool
        As in `ValueChecker`.
    """

    def __init__(self) -> None:
        self.finding = ""
        self.busy = False
        # Devices that each device has heard of, bool[n, n]: information can only come along messages.
        self._known: Mask = np.zeros((0, 0), np.bool_)

    def initial_state(self, call: Callable[..., Any], devices: Devices, start: Any) -> Any:
        """Start with the knowledge of each device about itself."""
        # Stages before the method may have told more than the method itself: they are not observed.
        self._known = np.eye(len(devices), dtype=np.bool_)
        return _call_unobserved(self, call, devices, start)

    def message(self, call: Callable[..., Any], state: Any, devices: Devices) -> Any:
        """Check the header of each row that is sent."""
        messages = _call_unobserved(self, call, state, devices)
        if not messages.header:
            return messages
        if isinstance(messages, SparseMessages):
            senders = messages.senders.repeat(messages.tables.rows)
            rows = messages.tables.flat()
        else:
            is_sent = np.arange(messages.values.shape[1]) < messages.rows[:, None]
            senders, rows = np.nonzero(is_sent)[0], messages.values[is_sent]
        self._check(senders, rows[:, : messages.header], devices)
        return messages

    def update(self, call: Callable[..., Any], state: Any, inbox: Any, devices: Devices) -> Any:
        """Note which devices have heard of which."""
        is_dense = not isinstance(inbox, Delivery)
        edges = np.flatnonzero(inbox.fresh & inbox.received) if is_dense else inbox.edges
        known = self._known.copy()
        np.logical_or.at(known, devices.sources[edges], self._known[devices.indices[edges]])
        self._known = known
        return _call_unobserved(self, call, state, inbox, devices)

    def _check(self, senders: Integers, headers: Floats, devices: Devices) -> None:
        """Note the first entry of headers, float64[m, h], that is not the id of a device its sender has heard of."""
        n = len(devices)
        is_id = (headers >= 0) & (headers < n) & (headers == np.floor(headers))
        is_known = is_id & self._known[senders[:, None], np.where(is_id, headers, 0).astype(np.int64)]
        wrong = np.argwhere(~is_known)
        if len(wrong) and not self.finding:
            row, column = wrong[0]
            self.finding = f"device {devices.ids[senders[row]]} sent {headers[row, column]:g} in column {column}"


class PointChanger:
    """Observer that moves all points during the run, as a stream of points does."""

    busy = False
    last_round = 1  # last round with the first points

    def initial_state(self, call: Callable[..., Any], devices: Devices, start: Any) -> Any:
        """Call `initial_state` with the first points."""
        return call(devices, start)

    def message(self, call: Callable[..., Any], state: Any, devices: Devices) -> Any:
        """Call `message` with the points of the round."""
        return call(state, self._change(devices))

    def update(self, call: Callable[..., Any], state: Any, inbox: Any, devices: Devices) -> Any:
        """Call `update` with the points of the round."""
        return call(state, inbox, self._change(devices))

    def report(self, call: Callable[..., Any], clients: Devices, model: Floats) -> Any:
        """Call `report` with the points of the round."""
        return call(self._change(clients), model)

    def aggregate(self, call: Callable[..., Any], hub: Devices, tables: list[Floats], model: Floats) -> Any:
        """Call `aggregate`, which reads no points."""
        return call(hub, tables, model)

    def _change(self, devices: Devices) -> Devices:
        return replace(devices, stored=devices.stored + 1.0) if devices.round > self.last_round else devices


def _call_unobserved(observer: ValueChecker | HeaderChecker, call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the method; the observer does not see the calls that the method makes within it."""
    observer.busy = True
    try:
        return call(*arguments)
    finally:
        observer.busy = False
