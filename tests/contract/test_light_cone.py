"""For every method: devices send what they know and nothing else; and a rank without devices plays along."""

from functools import cache

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.messages import SparseMessages
from p2pkm.core.protocols import RunOutline
from p2pkm.engine.build_batch import build_batch
from p2pkm.engine.loop import Start
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference
from p2pkm.methods.init.pipelines import choosing_stage, imputing_stage, needs_hub, scaling_stage, stages
from p2pkm.methods.init.registry import INITS, InitContext
from p2pkm.methods.schedules import make
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork
from p2pkm.network.rank_partition import RankPartition
from p2pkm.testing.laws import compare_light_cones
from tests.support.light_cone import check_light_cone, deal, empty, play_twice
from tests.support.methods import METHODS, build
from tests.support.sampling import thin

RING = topologies.ring(8)
QUIET = {"local"}  # sends nothing
VARIANTS = {
    "gtvmin jacobi": (lambda: p2pkm.GTVMin(3, schedule="jacobi"), RING, {}),
    "gtvmin async": (lambda: p2pkm.GTVMin(3, schedule="async"), RING, {}),
    "gtvmin saturate": (lambda: p2pkm.GTVMin(3, robust="saturate"), RING, {}),
    "gtvmin integers": (lambda: p2pkm.GTVMin(3), RING, {"quantize": "rice"}),
    "gtvmin suppressed": (lambda: p2pkm.GTVMin(3), RING, {"min_cluster_size": 3}),
    "gtvmin noise": (lambda: p2pkm.GTVMin(3), RING, {"noise": 0.1}),
    "gtvmin losses": (lambda: p2pkm.GTVMin(3, relaxation=1.0), RING, {"faults": "loss=0.2,delay=0.2,dropout=0.05"}),
    "gtvmin changing": (lambda: p2pkm.GTVMin(3), topologies.one_peer_exponential(8), {}),
    "consensus losses": (lambda: p2pkm.ConsensusLloyd(3), RING, {"faults": "loss=0.2,delay=0.2"}),
    "pushsum totals": (lambda: p2pkm.PushSumLloyd(3), RING, {"faults": "loss=0.2,delay=0.2"}),
    "tracking totals": (lambda: p2pkm.TrackingLloyd(3), RING, {"faults": "loss=0.2,dropout=0.1"}),
    "consensus changing": (lambda: p2pkm.ConsensusLloyd(3), topologies.random_matchings(8, seed=1), {}),
    "fkm losses": (lambda: p2pkm.FKM(3), None, {"faults": "loss=0.2"}),
}


@cache
def runs(name):
    """Return the two runs of a method."""
    make_method, graph, options = VARIANTS.get(name, (lambda: build(name, 3), RING, {}))
    return play_twice(make_method(), graph, **options)


@pytest.mark.parametrize("name", thin(VARIANTS, 3))
@pytest.mark.sample(3)
def test_whoever_has_received_nothing_of_other_points_sends_the_same_bits(name):
    messages, differing = compare_light_cones(runs(name))
    assert messages and not differing


@pytest.mark.parametrize("name", thin([name for name in (*METHODS, *VARIANTS) if name not in QUIET], 3))
@pytest.mark.sample(5)
def test_other_points_do_reach_others(name):
    """Were taint not to spread, the comparison would fail: it can see what is passed on."""
    assert compare_light_cones(runs(name), spread=False)[1]


@pytest.mark.parametrize("init", thin(INITS, 2))
def test_initializations_send_what_they_know(init):
    check_light_cone(p2pkm.GTVMin(3, init=init), RING, start=None, rounds=0)


def hosts(method, k, kernels):
    """Return the whole batch of a run, its topology, and the network of a second rank that hosts nobody."""
    data = deal(k=k)
    topology = Topology.star(8) if needs_hub(method) else Topology.from_graph(RING)
    shards = p2pkm.Shards.from_list(data)
    shards = shards.with_hub() if topology.hub >= 0 else shards
    devices = build_batch(topology, shards, LocalNetwork(place(topology, 0, 1)), 0, kernels)
    nobody = place(topology, 1, 2, RankPartition("nobody", np.array([0, topology.n, topology.n])))
    return devices, topology, LocalNetwork(nobody)


def walk_through(played, devices, topology, network):
    """Play every stage on no devices."""
    state = None
    for stage in played:
        state = play_stage(stage.algorithm, state, devices, topology, network)
        assert state.centroids.shape[0] == len(state.converged) == 0
        if stage.algorithm.traits.cuts_links:
            devices = devices.with_active_edges(state.edge_active, state.edge_degrees)


def play_stage(algorithm, start, devices, topology, network, rounds=2):
    """Return the state after some rounds."""
    network.open()
    schedule = make(algorithm.schedule, devices, topology.colors)
    state = algorithm.initial_state(devices, start)
    messages = algorithm.message(state, devices.at_stage_start(schedule.opening))
    for t in range(1, rounds + 1):
        for turn, awake in enumerate(schedule.turns(t)):
            sparse = isinstance(messages, SparseMessages)
            assert len(messages.senders if sparse else messages.rows) == 0
            inbox = network.deliver(messages) if sparse else network.exchange(messages)
            now = devices.at_turn(t, turn, awake)
            state = algorithm.update(state, inbox, now)
            messages = algorithm.message(state, now)
    return state


@pytest.mark.parametrize("kernels", [reference, compiled], ids=["plain", "compiled"])
@pytest.mark.parametrize(
    ("name", "options"),
    thin(
        [
            *((name, {}) for name in METHODS),
            *(("gtvmin", {"init": init}) for init in INITS),
            ("gtvmin", {"groups": True}),
            ("gtvmin", {"robust": "saturate"}),
            ("gtvmin", {"coupling": "strong"}),
            ("gtvmin", {"coupling": "links", "shares": True}),
            ("gtvmin", {"coupling": "auto"}),
            ("treelloyd", {"groups": True}),
        ],
        3,
    ),
    ids=str,
)
def test_a_rank_without_devices_plays_every_stage(name, options, kernels):
    method, k = build(name, 3, **options), 3
    whole, topology, network = hosts(method, k, kernels)
    method = method.configure(RunOutline(topology, disturbed="no run", points=whole.total_points))
    at = InitContext(topology, whole.sizes, whole.shared_key, k, whole.d)
    walk_through(stages(method, at, 2, seeded=False), empty(whole), topology, network)
    if not needs_hub(method) and method.traits.init is not None:
        start = Start(np.zeros((0, k, whole.d)), np.zeros(0, np.bool_))
        own = [stage for stage in stages(method, at, 2, seeded=True) if not stage.after][-1]
        state = own.algorithm.initial_state(empty(whole), start)
        assert len(state.converged) == 0


@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_a_rank_without_devices_scales_and_chooses(scale):
    method = p2pkm.TreeLloyd(3)
    whole, topology, network = hosts(method, 3, reference)
    at = InitContext(topology, whole.sizes, whole.shared_key, 3, whole.d)
    for missing in ("mean", "median"):
        walk_through([imputing_stage(missing, at)], empty(whole), topology, network)
    walk_through([scaling_stage(scale, at)], empty(whole), topology, network)
    walk_through([choosing_stage(method, at)], empty(whole), topology, network)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_with_all_rounds_the_end_of_a_run_tells_nothing(name):
    """Two runs that would end by convergence, at different times, have as many exchanges."""
    found = play_twice(build(name, 3), RING, all_rounds=True, rounds=25)
    assert len(found[0]) == len(found[1])
    assert not compare_light_cones(found)[1]


BEFORE = {  # stages before the method
    **{init: ({"init": init}, {}) for init in INITS},
    "several candidates": ({"init": "flooded-summaries:candidates=3"}, {}),
    "few bits": ({"init": "rows:lean=true"}, {}),
    "groups": ({"groups": 2}, {}),
    "saturate": ({"robust": "saturate"}, {}),
    "links": ({"coupling": "links"}, {}),
    "choice of the coupling": ({"coupling": "auto"}, {}),
    "shares": ({"coupling": "bayes", "shares": True}, {}),
    "standard": ({}, {"scale": "standard"}),
    "minmax": ({}, {"scale": "minmax"}),
    "choice of k": ({}, {"clusters": "auto", "k_max": 5}),
    "integers": ({}, {"quantize": "rice"}),
    "suppressed": ({"init": "bounding-box"}, {"min_cluster_size": 9}),
    "losses": ({"init": "flooded-summaries"}, {"faults": "loss=0.1,stages=all"}),
}


def count_exchanges(name, *, all_rounds, changed=0, wide=1.0):
    """Return how many exchanges two runs have whose other points lie closer together, or farther apart."""
    (given, options), data = BEFORE[name], deal()
    data[3] = data[3] * wide
    runs = play_twice(
        p2pkm.GTVMin(3, **given),
        RING,
        changed=changed,
        data=data,
        start=None,
        rounds=2,
        all_rounds=all_rounds,
        **options,
    )
    assert not compare_light_cones(runs, changed=changed)[1]
    return {len(run) for run in runs}


@pytest.mark.parametrize("name", thin(BEFORE, 6))
@pytest.mark.sample(3)
def test_with_all_rounds_the_ends_of_the_stages_before_the_method_tell_nothing(name):
    first = count_exchanges(name, all_rounds=True)
    assert len(first) == 1
    assert first == count_exchanges(name, all_rounds=True, changed=3, wide=10.0)


def test_without_all_rounds_the_end_of_a_stage_before_the_method_tells():
    assert len(count_exchanges("choice of the coupling", all_rounds=False, wide=10.0)) == 2
    assert len(count_exchanges("choice of the coupling", all_rounds=True, wide=10.0)) == 1


def test_without_all_rounds_the_end_of_a_run_tells():
    one, other = play_twice(p2pkm.ConsensusLloyd(3, tol=0.01), RING, rounds=60)
    assert len(one) != len(other)


def test_a_run_of_all_rounds_says_so_and_goes_on_as_one_without_convergence():
    shards, options = p2pkm.Shards.from_list(deal()), {"rounds": 30, "baselines": False}
    ended = p2pkm.simulate(p2pkm.GTVMin(3), RING, shards, **options)
    whole = p2pkm.simulate(p2pkm.GTVMin(3), RING, shards, all_rounds=True, **options)
    never = p2pkm.simulate(p2pkm.GTVMin(3, tol=0.0), RING, shards, **options)
    assert ended.summary["termination"] == "converged" and ended.summary["rounds"] < 30
    assert whole.summary["termination"] == "all-rounds" and whole.summary["rounds"] == 30
    np.testing.assert_allclose(whole.centroids, never.centroids, atol=0.05)
