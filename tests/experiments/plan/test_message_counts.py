"""Planned messages and bytes against the ledgers of real runs."""

from importlib.util import find_spec
from itertools import product

import networkx as nx
import numpy as np
import pytest

import topologies
from p2pkm.core.expected_messages import NOTHING, MessageVolume
from p2pkm.data.stream import DataStream
from p2pkm.engine.build_run import Rank
from p2pkm.engine.run_job import Observers, play
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.plan.draft import build_plan
from p2pkm.experiments.plan.message_counts import stage_traffic
from p2pkm.experiments.plan.split import count_cut_links
from p2pkm.experiments.plan.volume import count_flood_steps
from p2pkm.methods.init.pipelines import needs_hub, number_stages
from p2pkm.methods.registry import find
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.rank_partition import choose
from p2pkm.network.world import connect
from tests.support.each import each
from tests.support.methods import METHODS, spell
from tests.support.prepare import prepare
from tests.support.sampling import thin

needs_metis = pytest.mark.skipif(find_spec("pymetis") is None, reason="pymetis is not installed")
PEERS = [name for name in METHODS if not needs_hub(find(name)(2))]
SERVED = [name for name in METHODS if name not in PEERS]
ROUNDS = {"rounds": 4}
GRAPHS = {"ring": 6, "tree": 9, "small-world": 20, "complete": 5, "path": 2, "star": 7}
SEEDINGS = (
    "local bounding-box leader d2-sampling d2-sampling:greedy=false,draw=uniform flooded-summaries "
    "flooded-summaries:hops=1 flooded-summaries:candidates=3 tree-summaries tree-summaries:candidates=3 "
    "rows rows:lean=true"
).split()


def compare(**options):
    """Return, for every recorded round, the stage, what was planned for it and what the real run sent in it."""
    experiment = RunOptions(baselines=False, out="none", **options)
    plan = build_plan(experiment, None)
    real = prepare(plan.experiment, None)
    trace = []
    play(Rank(real, connect(), real.points), Observers(on_record=trace.append))
    planned, before, rows = stage_traffic(plan), (0, 0), []
    numbers = number_stages(trace, plan.stages)
    for record, at in zip(trace, numbers, strict=True):
        now = record["messages"], record["bytes"]
        rows.append((planned[at], planned[at].volume(record["round"]), (now[0] - before[0], now[1] - before[1])))
        before = now
        assert planned[at].name == record["stage"]
    assert numbers[-1] == len(planned) - 1
    return rows


def check(rows):
    """Hold what was sent against what was planned; return the share of figures that were planned exactly."""
    exact = 0
    for _, volume, sent in rows:
        for planned, certain, real in zip(volume[:2], volume[2:4], sent, strict=True):
            assert real == planned if certain else real <= planned
            exact += certain
    return exact / (2 * len(rows))


@pytest.mark.parametrize(("name", "graph", "partition"), thin(product(PEERS, GRAPHS, ["iid", "dirichlet"]), 11))
@pytest.mark.sample(5)
def test_a_peer_to_peer_method_sends_what_was_planned(name, graph, partition):
    data, rounds = "blobs:points=60,clusters=4", {} if name == "coreset" else ROUNDS
    rows = compare(
        algorithm=spell(name), graph=graph, devices=GRAPHS[graph], data=data, clusters=3, partition=partition,
        quantize="none", **rounds,
    )  # fmt: skip
    share = check(rows)
    if partition == "iid" and name not in ("coreset", "gtvmin", "private"):  # candidates of a coupling may be left out
        assert share == 1.0  # from the first message of the seeding to the last round
    elif name == "private":  # the number of cells follows from noisy totals
        assert all(volume.exact_messages for _, volume, _ in rows)
    elif name != "coreset":
        assert all(volume.exact_messages and volume.exact_bytes for course, volume, _ in rows if course.name == name)


@pytest.mark.parametrize(("partition", "name"), thin(product(["iid", "dirichlet"], SERVED), 5))
def test_a_method_with_a_server_sends_what_was_planned(name, partition):
    rows = compare(
        algorithm=spell(name), devices=6, data="blobs:points=60,clusters=4", clusters=3, partition=partition, **ROUNDS
    )
    check(rows)
    assert all(volume.exact_messages for course, volume, _ in rows if course.name == name)
    if name in ("central", "cdkm", "local") or (partition == "iid" and name in ("mavg", "ffcm1")):
        assert all(volume.exact_bytes for _, volume, _ in rows)


@pytest.mark.parametrize("name", ["dwfkm", "fkm", "ffcm1", "ffcm2"])
def test_a_share_of_the_clients_sends_what_was_planned(name):
    rows = compare(algorithm=name, devices=9, data="blobs:points=60,clusters=4", clusters=3, partition="iid",
                   client_share="0.4:by=size", **ROUNDS)  # fmt: skip
    check(rows)
    method = [(volume, sent) for course, volume, sent in rows if course.name == name]
    assert all(volume.exact_messages and sent[0] in (4, 8) for volume, sent in method)
    assert name != "ffcm1" or all(volume.exact_bytes for volume, _ in method)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 2.5)])
@pytest.mark.parametrize("name", ["central", "cdkm"])
def test_weights_are_planned_if_they_are_sent(name, weights, tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("x,y,w\n" + "".join(f"{i % 7},{i},{weights[i % 2]}\n" for i in range(30)))
    rows = compare(algorithm=name, data=str(path), weight_column="w", devices=3, clusters=2, partition="iid", rounds=1)
    assert check(rows) == 1.0
    assert rows[0][2] == (3, 30 * (2 + (weights[1] != 1.0)) * 8)


@pytest.mark.parametrize(("seeding", "scale"), thin(product(SEEDINGS, ["none", "standard", "minmax"]), 5))
@pytest.mark.sample(3)
def test_a_seeding_sends_what_was_planned(seeding, scale):
    rows = compare(init=seeding, coupling=30, devices=12, graph="grid", partition="iid", rounds=2, scale=scale)
    share = check(rows)
    assert share == 1.0 or seeding.partition(":")[0] in ("bounding-box", "d2-sampling") or scale == "minmax"


@pytest.mark.parametrize(("shares", "coupling"), thin(product(["false", "true"], ["bayes", "links"]), 3))
@pytest.mark.parametrize(("graph", "devices"), [("tree", 9), ("ring", 6), ("ring", 1), ("complete", 2)])
@pytest.mark.sample(3)
def test_an_estimate_of_the_coupling_sends_what_was_planned(graph, devices, coupling, shares):
    rows = compare(algorithm=f"gtvmin:shares={shares}", coupling=coupling, graph=graph, devices=devices,
                   init="tree-summaries", data="blobs:points=60,clusters=4", **ROUNDS)  # fmt: skip
    check(rows)
    estimates = [(volume, sent) for course, volume, (_, sent) in rows if course.name == "coupling-estimate"]
    assert len(estimates) == 6  # initial exchange and round of each
    for volume, sent in estimates:
        assert volume.exact_messages and volume.exact_bytes and sent == volume.bytes


@pytest.mark.parametrize(("graph", "devices"), [("tree", 9), ("ring", 6), ("ring", 1), ("complete", 2)])
@pytest.mark.parametrize("data", ["blobs:points=60,clusters=4", "device-clusters:class_alpha=0.3"])
@pytest.mark.sample(3)
def test_a_choice_of_the_coupling_sends_at_most_what_was_planned(graph, devices, data):
    rows = compare(algorithm="gtvmin", coupling="auto", graph=graph, devices=devices, init="tree-summaries",
                   data=data, **ROUNDS)  # fmt: skip
    check(rows)
    choices = [(volume, sent) for course, volume, (_, sent) in rows if course.name == "coupling-choice"]
    assert len(choices) in (1, 2)


def test_clients_that_find_fewer_clusters_report_no_more_rows():
    rows = compare(
        algorithm="feca:local_k=2", devices=6, data="blobs:points=60,clusters=4", clusters=3, partition="iid"
    )
    (course, volume, sent), *_ = rows
    assert course.name == "feca" and (volume.messages, volume.bytes) == sent == (6, 6 * 2 * 3 * 8)


@pytest.mark.parametrize("partition", ["iid", "dirichlet"])
@pytest.mark.parametrize("devices", [2, 13])
@pytest.mark.parametrize("scale", ["standard", "minmax"])
def test_scaling_around_a_server_sends_what_was_planned(scale, devices, partition):
    """A row from each client, and one to each."""
    rows = compare(algorithm="fkm", devices=devices, data="blobs:points=60,clusters=4", clusters=3, rounds=2,
                   scale=scale, partition=partition)  # fmt: skip
    check(rows)
    course, volume, sent = rows[0]
    assert course.name == {"standard": "standardization", "minmax": "min-max-scaling"}[scale]
    assert volume.exact_messages and volume.exact_bytes
    # The initial exchange: a row of each client.
    assert sent == volume[:2] == (devices, 8 * devices * (5 if scale == "standard" else 4))


# nothing that a Byzantine device could replace
MUTE = ("coreset", "local", "mufc", "private", "feddp", "treelloyd", "fedlloyd", "ditto")
SPOILED = {
    **{name: {"algorithm": name} for name in (*PEERS, *SERVED) if name not in MUTE},
    **{f"{name} all": {"init": name} for name in SEEDINGS},
    "groups": {"groups": True, "graph": "complete"},
    "async": {"schedule": "async"},
    "events": {"schedule": "async", "link_model": "wan"},
    "scaled": {"scale": "standard", "algorithm": "fkm"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPOILED)
def test_tables_of_the_wrong_shape_stay_below_what_was_planned(name):
    """A table that is none may be a row longer than any that is one."""
    stages = ",stages=all" if name.endswith(" all") else ""
    for seed in range(4):
        rows = compare(data="blobs:points=80,clusters=4", devices=6, clusters=2, partition="iid", rounds=4, seed=seed,
                       byzantine=f"4:kind=nan{stages}", **SPOILED[name])  # fmt: skip
        check(rows)
        assert not any(volume.exact_bytes for _, volume, _ in rows)


def test_walks_on_points_that_change_are_at_most_those_of_the_plan():
    rows = compare(algorithm="treelloyd", stream=DataStream(), data="blobs:points=80,clusters=4", devices=6,
                   clusters=4, partition="iid", **ROUNDS)  # fmt: skip
    check(rows)
    late = [(volume, sent) for course, volume, sent in rows if course.name == "treelloyd"][2:]
    assert not any(volume.exact_messages or volume.exact_bytes for volume, _ in late)
    assert sum(volume.wire_bytes for volume, _ in late) < sum(volume.bytes for volume, _ in late) / 10


@pytest.mark.parametrize("schedule", ["jacobi", "colored", "async"])
def test_schedules_wake_whom_the_plan_says(schedule):
    rows = compare(schedule=schedule, coupling=30, devices=12, graph="grid", partition="iid", rounds=6, seed=3)
    assert check(rows) == 1.0


@pytest.mark.parametrize("graph", ["ring", "star"])
def test_a_round_by_events_has_a_turn_for_each_device(graph):
    rows = compare(schedule="async", link_model="wan", devices=12, graph=graph, partition="iid", rounds=6)
    assert check(rows) >= 0.6 and rows[-1][1].exact_messages == (graph == "ring")


def test_recipe_groups_stays_below_what_was_planned():
    rows = compare(groups=True, devices=12, graph="grid", partition="iid", rounds=3)
    check(rows)
    assert not rows[-1][1].exact_messages


def test_a_coreset_along_a_tree_sends_what_was_planned():
    rows = compare(algorithm="coreset:spread=tree", devices=12, graph="grid", partition="iid")
    assert check(rows) >= 0.75


@pytest.mark.parametrize("graph", ["path", "small-world", "star"])
def test_reduced_messages_along_a_tree_stay_below_what_was_planned(graph):
    rows = compare(init="tree-summaries:candidates=2,rows=60", coupling=30, devices=100, graph=graph,
                   data="blobs:points=300,clusters=3",
                   clusters=3, partition="iid", rounds=2)  # fmt: skip
    assert check(rows) >= 0.9
    assert rows[0][1].exact_bytes and rows[1][1].exact_messages
    planned, (_, sent) = rows[1][1], rows[1][2]
    assert planned.exact_bytes == (graph == "star") and sent <= planned.bytes <= 1.2 * sent


@pytest.mark.parametrize("disturbed", [{}, {"noise": 0.1}])
def test_init_global_is_planned_as_it_is_run(disturbed):
    options = {"devices": 30, "graph": "small-world", "data": "blobs:points=60,clusters=3", "partition": "iid"}
    rows = compare(**options, **disturbed, coupling="strong", rounds=2)
    names = list(dict.fromkeys(course.name for course, _, _ in rows))
    before = ["flooded-summaries", "select-candidate"] if disturbed else ["total-variance", "tree-summaries"]
    assert names == [*before, "gtvmin"]
    assert check(rows) == 1.0 or not disturbed


def test_a_number_of_clusters_that_the_devices_choose_stays_below_what_was_planned():
    assert not check(compare(data="grid16:points=3", devices=2, clusters="auto", rounds=2))


def test_no_bytes_are_promised_where_points_may_be_too_few():
    rows = compare(data="grid16:points=2,sd=0", devices=6, clusters=16, partition="dirichlet", rounds=2)
    check(rows)
    plan = build_plan(RunOptions(data="grid16:points=2,sd=0", devices=6, clusters=17, coupling=10), None)
    assert not stage_traffic(plan)[-1].volume(1).exact_bytes


def test_totals_add_up_the_opening_and_all_rounds():
    plan = build_plan(RunOptions(devices=6, partition="iid", rounds=7, coupling=10), None)
    course = stage_traffic(plan)[-1]
    assert course.total() == sum((course.volume(t) for t in range(8)), NOTHING)
    assert course.total() == MessageVolume(8 * 12, 8 * 12 * 16 * 2 * 8)


@each("graph", [topologies.ring(7), topologies.star(9), topologies.path(1), nx.empty_graph(3),
                                   nx.disjoint_union(nx.path_graph(4), nx.cycle_graph(5)),
                                   topologies.small_world(150, degree=4, rewire=0.2, seed=1)])  # fmt: skip
def test_a_flood_arrives_by_distance(graph):
    topology = Topology.from_graph(graph)
    distances = [nx.single_source_shortest_path_length(graph, node) for node in topologies.sort_nodes(graph)]
    for t, wave in enumerate(count_flood_steps(topology)):
        counts = np.array([sum(hops == t for hops in one.values()) for one in distances])
        assert wave == (topology.degrees[counts > 0].sum(), (topology.degrees * counts).sum())
    assert t == max(max(one.values()) for one in distances)


@pytest.mark.parametrize("wish", ["blocks", pytest.param("metis", marks=needs_metis)])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("name", ["ring", "small-world", "barabasi-albert", "complete"])
def test_partition_statistics_match_the_halo(name, ranks, wish):
    topology = Topology.from_graph(topologies.build(name, 30))
    division = choose(topology, np.full(30, 5), ranks, wish)
    places = [place(topology, rank, ranks, division) for rank in range(ranks)]
    part = count_cut_links(topology, division)
    assert part.partition == division.name
    assert part.devices == max(len(one.ids) for one in places)
    assert part.halo == max(len(one.ghosts) for one in places)
    assert part.cut == sum(len(peer.send_edges) for one in places for peer in one.peers) // 2
