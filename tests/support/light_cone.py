"""Non-interference checks with options and points beyond those of `p2pkm.check_method`."""

from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np

import p2pkm
from p2pkm.core.batch import Devices
from p2pkm.engine import preliminaries, run_job
from p2pkm.engine.build_batch import build_batch
from p2pkm.experiments import simulate
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.testing.laws import compare_light_cones
from p2pkm.testing.recording import RecordingWorld


def deal(n=8, points=9, k=3, seed=0):
    """Generate the points of n devices."""
    rng = np.random.default_rng(seed)
    corners = 6.0 * rng.normal(size=(k, 2))
    return [corners[rng.integers(k, size=points)] + rng.normal(size=(points, 2)) for _ in range(n)]


def play_twice(method, graph, *, changed=0, data=None, k=3, **options):
    """Return the exchanges of two runs that differ in the points of one device, not in their number."""
    data = deal(k=k) if data is None else data
    others = [part.copy() for part in data]
    others[changed] = others[changed][::-1] * 0.7 + 2.5
    start = np.random.default_rng(1).normal(size=(1, k, 2)).repeat(len(data), axis=0) * 6.0
    # Such methods compute their initial centroids themselves.
    without_start = needs_hub(method) or method.traits.init is None
    usual = {
        "start": None if without_start else start,
        "seed": 3,
        "rounds": 6,
        "baselines": False,
        "record_every": 10**6,
    } | options
    usual = {name: value for name, value in usual.items() if value is not None}
    graph = None if needs_hub(method) else graph
    return [
        record(partial(p2pkm.simulate, method, graph, p2pkm.Shards.from_list(points), **usual))
        for points in (data, others)
    ]


def record(call):
    """Return the exchanges of a call of `p2pkm.simulate`, in which all devices know the same total variance."""
    world = RecordingWorld()
    with (
        mock.patch.object(simulate, "connect", lambda: world),
        mock.patch.object(run_job, "build_batch", build_with_known_totals),
        mock.patch.object(preliminaries, "build_batch", build_with_known_totals),
    ):
        call()
    return world.exchanges


def build_with_known_totals(*given):
    """Build a batch with a fixed total variance, which is assumed to be public."""
    return replace(build_batch(*given), data_std=5.0)


def check_light_cone(method, graph, **options):
    """Check that messages of a device do not depend on points of which it has received no information.

    Parameters
    ----------
    method : Algorithm
        Method with 3 clusters, for example ``MyMethod(3)``.
    graph : networkx.Graph
        Graph of 8 nodes; server methods use their star.
    **options
        Options of `play_twice` and `p2pkm.simulate`.

    Raises
    ------
    AssertionError
        If messages differ (the text lists exchanges and devices), or no message could be compared.
    """
    runs = play_twice(method, graph, **options)
    messages, differing = compare_light_cones(runs, changed=options.get("changed", 0))
    assert not differing, f"{method.name}: (exchange, device) sent something else: {differing[:10]}"
    assert messages, f"{method.name}: every message came from a device that the changed points had reached"


def empty(devices: Devices):
    """Build the batch of a rank that hosts no devices of the same system."""
    none = {name: getattr(devices, name)[:0] for name in (
        "ids", "stored", "point_weights", "indices", "mirror", "link_weights", "active_edges", "degrees",
        "neighbor_degrees", "keys", "active_devices",
    )}  # fmt: skip
    return replace(devices, **none, offsets=np.zeros(1, np.int64), indptr=np.zeros(1, np.int64), averaging_weights=None,
                   neighbor_mean_weights=None)  # fmt: skip
