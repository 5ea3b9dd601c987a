"""What one device does reaches its neighbors in one round, and nobody else; for every peer-to-peer method."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
from p2pkm.methods.peer.admm import ADMM
from p2pkm.methods.peer.consensus import ConsensusLloyd
from p2pkm.methods.peer.gossip import GossipMatching
from p2pkm.methods.peer.pushsum import PushSumLloyd
from p2pkm.methods.peer.tracking import TrackingLloyd
from p2pkm.methods.schedules import make
from tests.support.play_rounds import arrange, play

N, K, D, DISTURBED = 9, 3, 2, 4
LINKS = [(i, (i + 1) % N) for i in range(N)]
NEARBY = [3, 4, 5]
RING = arrange([np.ones((1, 1))] * N, LINKS).topology

# Every peer-to-peer method, as a function of the schedule: given centroids to start from, at a raw strength of links.
METHODS = {
    "gtvmin": lambda schedule: p2pkm.GTVMin(K, alpha=1.0, schedule=schedule),
    "gtvmin as printed": lambda schedule: p2pkm.GTVMin(K, alpha=0.5, schedule=schedule, update="as-printed"),
    "gtvmin without star": lambda schedule: p2pkm.GTVMin(
        K, alpha=2.0, schedule=schedule, star_term=False, local_steps=2
    ),
}
methods = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())

# Those that bring a schedule of their own: everybody in every turn.
IN_STEP = {
    "consensus": ConsensusLloyd(K, gossips=2),
    "pushsum": PushSumLloyd(K, gossips=2),
    "tracking": TrackingLloyd(K, gossips=1),
    "admm": ADMM(K),
    "gossip": GossipMatching(K).on(RING),
    "dgc": p2pkm.DGC(K),
    "gossip-sum": p2pkm.GossipSum(K, sends=2),
    "epidemic": p2pkm.Epidemic(K, cycles=2).on(RING),
}


def both(algorithm, rounds=1, *, data_too=False):
    """Return the history of a run and of the same run with one device disturbed, and the turns' masks."""
    rng = np.random.default_rng(0)
    data, start = [rng.normal(0, 3, (6, D)) for _ in range(N)], rng.normal(0, 3, (N, K, D))
    tables = [arrange(data, LINKS)]
    disturbed = start.copy()
    if data_too:
        data[DISTURBED] = data[DISTURBED] + rng.normal(0, 2, (6, D))
    else:
        disturbed[DISTURBED] += rng.normal(0, 2, (K, D))
    tables.append(arrange(data, LINKS))
    histories = [play(algorithm, table, one, rounds)[0] for table, one in zip(tables, (start, disturbed), strict=True)]
    schedule = make(algorithm.schedule, tables[0].devices, tables[0].topology.colors)
    return *histories, [awake for t in range(1, rounds + 1) for awake in schedule.turns(t)]


def changed(one, other):
    """Return which devices differ."""
    return np.flatnonzero((one != other).any(axis=(1, 2)))


@methods
def test_after_one_jacobi_turn_only_the_neighbors_know(method):
    calm, stirred, _ = both(method("jacobi"), rounds=2)
    assert_array_equal(changed(calm[0], stirred[0]), [DISTURBED])
    after = changed(calm[1], stirred[1])
    assert set(after) <= set(NEARBY)
    assert set(after) & {3, 5}
    assert set(changed(calm[2], stirred[2])) <= set(range(2, 7))
    assert set(changed(calm[2], stirred[2])) - set(NEARBY)


@methods
def test_other_points_change_their_own_device_first(method):
    calm, stirred, _ = both(method("jacobi"), rounds=2, data_too=True)
    assert_array_equal(changed(calm[1], stirred[1]), [DISTURBED])
    assert set(changed(calm[2], stirred[2])) <= set(NEARBY)
    assert set(changed(calm[2], stirred[2])) & {3, 5}


@methods
@pytest.mark.parametrize("schedule", ["colored", "async"])
def test_after_one_turn_only_awake_neighbors_have_changed(method, schedule):
    calm, stirred, masks = both(method(schedule), rounds=1 if schedule == "colored" else 8)
    reached = {DISTURBED}
    for turn, awake in enumerate(masks):
        before, after = set(changed(calm[turn], stirred[turn])), set(changed(calm[turn + 1], stirred[turn + 1]))
        near = {(i + step) % N for i in reached for step in (-1, 0, 1)}
        assert after - before <= near & set(np.flatnonzero(awake))
        assert before - after <= set(np.flatnonzero(awake))
        reached |= after
    assert reached & {3, 5}


@pytest.mark.parametrize("algorithm", IN_STEP.values(), ids=IN_STEP.keys())
@pytest.mark.parametrize("data_too", [False, True], ids=["start", "data"])
def test_news_travel_one_hop_per_turn(algorithm, data_too):
    calm, stirred, masks = both(algorithm, rounds=8, data_too=data_too)
    assert len(calm) == len(masks) + 1
    found = [changed(one, other) for one, other in zip(calm, stirred, strict=True)]
    for turn, devices in enumerate(found):
        assert not [i for i in devices if not min(abs(i - DISTURBED), N - abs(i - DISTURBED)) <= turn]
    assert len(found[-1]) > 2


def test_a_turn_at_one_device_is_the_same_whoever_else_is_in_the_batch():
    rng = np.random.default_rng(3)
    data, start = [rng.normal(0, 3, (6, D)) for _ in range(N)], rng.normal(0, 3, (N, K, D))
    whole, _ = play(METHODS["gtvmin"]("jacobi"), arrange(data, LINKS), start, 1)
    part, _ = play(METHODS["gtvmin"]("jacobi"), arrange(data[:3], [(0, 1), (1, 2)]), start[:3], 1)
    assert_array_equal(whole[1][1], part[1][1])
