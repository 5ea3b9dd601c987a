"""Non-interference: what a device sends depends on its own points and on what it has received, on nothing else.

For authors of methods, too: `check_light_cone(method, graph)` plays a method twice, the second time with other points
at one device, and follows who has received anything from there.
"""

from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import p2pkm
from p2pkm.core.batch import Devices
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.engine import run_job
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.network.local import LocalNetwork


class Exchange(NamedTuple):
    """What every device sent, as bytes (None: nothing), and the edges over which something came, (to, from)."""

    sent: list[Any]
    came: Any


def deal(n=8, points=9, k=3, seed=0):
    """Return the points of n devices."""
    rng = np.random.default_rng(seed)
    corners = 6.0 * rng.normal(size=(k, 2))
    return [corners[rng.integers(k, size=points)] + rng.normal(size=(points, 2)) for _ in range(n)]


def play_twice(method, graph, *, changed=0, data=None, k=3, **options):
    """Return the exchanges of two runs that differ in the points of one device, not in their number."""
    data = deal(k=k) if data is None else data
    others = [part.copy() for part in data]
    others[changed] = others[changed][::-1] * 0.7 + 2.5
    start = np.random.default_rng(1).normal(size=(1, k, 2)).repeat(len(data), axis=0) * 6.0
    alone = needs_hub(method) or method.traits.init is None  # it starts from what its devices find
    usual = {
        "start": None if alone else start,
        "seed": 3,
        "rounds": 6,
        "baselines": False,
        "record_every": 10**6,
    } | options
    usual = {name: value for name, value in usual.items() if value is not None}
    found = []
    for points in (data, others):
        with _record() as exchanges:
            p2pkm.simulate(method, None if needs_hub(method) else graph, p2pkm.Shards.from_list(points), **usual)
        found.append(exchanges)
    return found


def compare(runs, *, changed=0, spread=True):
    """Return how many messages devices sent that nothing of the changed points had reached, and which of them differ.

    A device is tainted once it has received anything from a tainted one.

    Parameters
    ----------
    runs : pair of list of Exchange
        From `play_twice`; the shorter one counts.
    spread : bool
        False: only the changed device is tainted, ever, so that messages must differ where anything is passed on.
    """
    tainted, messages, differing = {changed}, 0, []
    for number, (one, other) in enumerate(zip(*runs, strict=False)):
        for v, (said, instead) in enumerate(zip(one.sent, other.sent, strict=True)):
            if v not in tainted:
                messages += said is not None
                differing += [(number, v)] if said != instead else []
        if spread:
            for run in (one, other):
                tainted |= {to for to, by in run.came.tolist() if by in tainted}
    return messages, differing


def check_light_cone(method, graph, **options):
    """Refuse a method of which a device sends something that depends on points it has received nothing of.

    Parameters
    ----------
    method : Algorithm
        With 3 clusters; for example ``MyMethod(3)``.
    graph : networkx.Graph
        Of 8 devices; a method with a server has a star of its own.
    **options
        Of `play_twice` and `p2pkm.simulate`.

    Raises
    ------
    AssertionError
        With the exchanges and devices whose messages differ; or if no message could be compared.
    """
    messages, differing = compare(play_twice(method, graph, **options), changed=options.get("changed", 0))
    assert not differing, f"{method.name}: (exchange, device) sent something else: {differing[:10]}"
    assert messages, f"{method.name}: every message came from a device that the changed points had reached"


@contextmanager
def _record():
    """Note what passes the network; the total variance, which all devices know from the start, is the same always."""
    exchanges = []
    exchange, deliver, build = LocalNetwork.exchange, LocalNetwork.deliver, run_job.build_batch

    def exchange_and_note(network, messages):
        inbox = exchange(network, messages)
        exchanges.append(Exchange(_pack_dense(messages), _edges(network, np.flatnonzero(_came(messages, inbox)))))
        return inbox

    def deliver_and_note(network, messages):
        delivery = deliver(network, messages)
        exchanges.append(Exchange(_pack_sparse(messages, network), _edges(network, delivery.edges)))
        return delivery

    def build_with_known_totals(*given):
        return replace(build(*given), data_std=5.0)

    with (
        mock.patch.object(LocalNetwork, "exchange", exchange_and_note),
        mock.patch.object(LocalNetwork, "deliver", deliver_and_note),
        mock.patch.object(run_job, "build_batch", build_with_known_totals),
    ):
        yield exchanges


def _came(messages: DenseMessages, inbox: Inbox):
    return inbox.fresh & (inbox.slots >= 0)


def _edges(network, edges):
    placement = network.placement
    owners = np.repeat(placement.ids, np.diff(placement.indptr))
    return np.column_stack((owners[edges], placement.indices[edges]))


def _pack_dense(messages: DenseMessages):
    """Return for each device the bytes of its table, over which of its edges, and its length on the wire."""
    found = []
    for v, rows in enumerate(messages.rows):
        wire = None if messages.wire is None else int(messages.wire[v])
        found.append(None if rows < 0 else (int(rows), messages.values[v, :rows].tobytes(), wire))
    return found


def _pack_sparse(messages, network):
    found: list[Any] = [None] * len(network.placement.ids)
    for number, v in enumerate(messages.who):
        table = messages.tables.take(np.array([number])).flat()
        first, last = network.placement.indptr[v : v + 2]
        over = messages.edges[(messages.edges >= first) & (messages.edges < last)] - first
        found[v] = (table.shape, table.tobytes(), over.tobytes())
    return found


def empty(devices: Devices):
    """Return the batch of a rank that hosts no devices of the same system."""
    none = {name: getattr(devices, name)[:0] for name in (
        "ids", "stored", "point_weights", "indices", "mirror", "link_weights", "active_edges", "degrees",
        "neighbor_degrees", "keys", "active_devices",
    )}  # fmt: skip
    return replace(devices, **none, offsets=np.zeros(1, np.int64), indptr=np.zeros(1, np.int64), shares=None)
