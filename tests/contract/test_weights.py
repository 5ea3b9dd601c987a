"""Weights of points matter relative to each other alone: no method has a constant that meets their absolute size."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.traits import Condition
from p2pkm.methods.init.flooded_summaries import summarize
from p2pkm.methods.init.local_kmeanspp import LocalKMeansPP
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.methods.init.registry import INITS
from tests.support.methods import METHODS, build
from tests.support.play_rounds import arrange
from tests.support.sampling import thin

FACTORS = (2.0**-61, 2.0**60)  # one odd, whose root is rounded
WEIGHED = [name for name in METHODS if Condition.POINT_WEIGHTS not in build(name, 3).traits.incompatible_with]
SETTINGS = (
    *[(name, {}, {}) for name in WEIGHED],
    *[("gtvmin", {"init": seeding}, {}) for seeding in (*INITS, "d2-sampling:draw=centroids",
                                                            "flooded-summaries:candidates=3",
                                                            "tree-summaries:rows=60,candidates=2",
                                                            "flooded-summaries:hops=1")],
    ("gtvmin", {"groups": True}, {}),
    ("gtvmin", {"schedule": "jacobi", "coupling": 2.0}, {}),
    ("gtvmin", {"matching": "optimal", "normalize_losses": True}, {}),
    ("gtvmin", {"schedule": "jacobi", "local_steps": 3, "safeguard": True}, {}),
    ("gtvmin", {"update": "as-printed"}, {}),
    ("gtvmin", {"update": "as-printed", "init": "local"}, {"min_cluster_size": 3}),
    ("gtvmin", {"swaps": True, "schedule": "async"}, {}),
    ("gtvmin", {"robust": "saturate"}, {"byzantine": "1:kind=flip"}),
    ("gtvmin", {"robust": "clip"}, {"byzantine": "1:kind=random"}),
    ("gtvmin", {}, {"min_cluster_size": 3}),
    ("gtvmin", {"init": "local"}, {"min_cluster_size": 3}),
    ("pushsum", {}, {"faults": "loss=0.2,dropout=0.1"}),
    ("tracking", {}, {"faults": "loss=0.2,dropout=0.1"}),
    ("coreset", {"size": 20, "spread": "tree"}, {}),
    ("fkm", {"seeding": "random", "keep_empty": True, "robust": "trim"}, {}),
    ("feca", {"seeding": "random", "variant": "theoretical"}, {}),
    ("kfed", {"local_k": 2}, {}),
    ("mufc", {"local_lloyd": True}, {}),
)  # fmt: skip


def deal(mass, d=4, devices=24):
    """Return 10 points of each device around 3 corners, with weights from `mass`, a function of a generator."""
    rng = np.random.default_rng(3)
    corners = 8.0 * np.eye(3, d)
    own = [corners[rng.integers(0, 3, 10)] + rng.normal(size=(10, d)) for _ in range(devices)]
    return p2pkm.Shards.from_list(own, weights=[mass(rng, len(part)) for part in own])


def run(name, options, manner, shards):
    method = build(name, 3, **options)
    graph = None if needs_hub(method) else topologies.ring(shards.n)
    return p2pkm.simulate(method, graph, shards, rounds=8, seed=1, **manner)


@pytest.mark.parametrize(("name", "options", "manner"), thin(SETTINGS, 11), ids=str)
@pytest.mark.sample(3)
def test_a_common_power_of_two_changes_no_bit(name, options, manner):
    found = []
    for factor in (1.0, *FACTORS):
        shards = deal(lambda rng, m, factor=factor: factor * rng.uniform(0.1, 5.0, m))
        found.append(run(name, options, manner, shards))
    for other in found[1:]:
        counts = ("messages", "bytes", "raw_points_disclosed")
        for key in ("centroids_sha256", "chain_sha256", *counts, "ratio_mean", "descent"):
            assert found[0].summary[key] == other.summary[key], key
    assert np.isfinite(found[0].centroids).any()


@pytest.mark.parametrize("update", ["exact", "as-printed"])
def test_a_raw_strength_is_in_the_unit_of_the_weights(update):
    whole = deal(lambda rng, m: rng.uniform(0.1, 5.0, m))
    found = set()
    for factor in (1.0, *FACTORS):
        shards = replace(whole, weights=factor * whole.weights)
        found.add(run("gtvmin", {"alpha": 1.5 * factor, "update": update}, {}, shards).summary["centroids_sha256"])
    assert len(found) == 1


@cache
def run_unweighted(name):
    return run(name, {}, {}, deal(lambda rng, m: np.ones(m)))


@pytest.mark.parametrize(("name", "weight"), thin(product(WEIGHED, [1 / 240, 0.2, 100.0]), 10))
@pytest.mark.sample(3)
def test_equal_weights_are_no_weights(name, weight):
    one, other = run_unweighted(name), run(name, {}, {}, deal(lambda rng, m: np.full(m, weight)))
    # Weights other than 1 are sent with the points, 8 bytes each.
    sent = 8 * 240 if name in ("central", "cdkm") else 0
    assert other.summary["bytes"] == one.summary["bytes"] + sent
    # Tree Lloyd encodes weights as they are.
    if name not in ("treelloyd", "fedlloyd", "ditto", "central", "cdkm"):
        assert other.summary["wire_bytes"] == one.summary["wire_bytes"]
    np.testing.assert_allclose(one.centroids, other.centroids, rtol=1e-6, atol=1e-6)


def test_weights_that_add_up_to_one_leave_no_centroid_out():
    X, _ = p2pkm.blobs(clusters=4, points=50, seed=0)
    plain, weighted = (
        p2pkm.P2PKMeans(4, random_state=0).fit(X, sample_weight=mass) for mass in (None, np.full(len(X), 1 / len(X)))
    )
    assert weighted.cluster_centers_.shape == (4, 2)
    np.testing.assert_allclose(weighted.cluster_centers_, plain.cluster_centers_, rtol=1e-6)
    assert weighted.inertia_ * len(X) == pytest.approx(plain.inertia_)


@pytest.mark.parametrize("weight", [0.1, 5.0])
def test_rows_are_left_out_by_their_points(weight):
    rng, least = np.random.default_rng(0), 4
    sizes = [(least, least), (least, least - 1), (least - 1, 1)]
    own = [np.repeat([[0.0], [9.0]], pair, axis=0) + 0.1 * rng.normal(size=(sum(pair), 1)) for pair in sizes]
    devices = arrange(own, [(0, 1), (1, 2)], weights=np.full(sum(map(sum, sizes)), weight)).devices
    asked = replace(devices, min_count=least)
    method = p2pkm.FKM(2, min_count=least, seeding="lloyd", local_steps=9)
    for found in (summarize(asked, 2), LocalKMeansPP(2).initial_state(asked, None).centroids):
        assert np.isfinite(found[:, :, 0]).sum(axis=1).tolist() == [2, 1, 0]
    report = method.report(devices, np.full((3, 2, 1), np.inf))
    assert report.rows.tolist() == [2, 1, 0]
    np.testing.assert_allclose(report.values[0, :, 1], weight * least)  # what is sent is the weight
