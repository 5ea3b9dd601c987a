"""Byzantine devices: who they are, what they say, and that tables which are none are never used."""

import json
from contextlib import nullcontext
from dataclasses import replace
from itertools import product

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

import p2pkm
import topologies
from p2pkm.channel.byzantine import Byzantine, ByzantineMessages, convert_box, select_byzantine
from p2pkm.channel.rejection import Rejection, reject_malformed
from p2pkm.channel.transform import Context
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, SparseMessages, Tables
from p2pkm.core.traits import MessageContent
from p2pkm.methods.building_blocks.flooding import distinct_collections
from p2pkm.methods.init.flooded_summaries import FloodedSummaries
from p2pkm.methods.init.pipelines import Stage, needs_hub
from p2pkm.metrics.summary import note_byzantine
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork
from tests.support.each import each
from tests.support.methods import METHODS, build
from tests.support.play_rounds import arrange
from tests.support.run_cli import here, solve
from tests.support.sampling import thin

KINDS = ("random", "flip", "drift", "nan", "collude")
MUTE = ("local", "coreset", "mufc", "private", "feddp", "treelloyd", "fedlloyd", "ditto")
POINTS = [np.array([[0.0, 0.0], [2.0, 4.0]]), np.array([[1.0, 1.0]]), np.array([[9.0, 3.0], [0.0, 7.0]])]


def deal(n, seed=0, points=12):
    """Return points of n devices around four corners."""
    rng = np.random.default_rng(seed)
    corners = 9.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    y = [rng.integers(0, 4, points) for _ in range(n)]
    return p2pkm.Shards.from_list([corners[one] + rng.normal(size=(points, 2)) for one in y], labels=y)


def lies(kind, *, liars=(1,), says=MessageContent.CENTROIDS, **more):
    """Return the lies of a path of three devices, and the devices."""
    table = arrange(POINTS, [(0, 1), (1, 2)])
    stacked = np.concatenate(POINTS)
    facts = stacked.min(axis=0), stacked.max(axis=0), stacked.mean(axis=0)
    told = ByzantineMessages(
        Byzantine(len(liars), kind=kind),
        np.array(liars),
        p2pkm.GTVMin,
        *facts,
        content=says,
        method_started=True,
        **more,
    )
    return told, table.devices


def send(told, messages, devices, stage=0):
    """Return what is sent in the place of the messages, with what is rejected marked."""
    context = Context(stage, devices, None)
    return Rejection().outgoing(told.outgoing(messages, context), context)


def said(values, **more):
    """Return the messages of three devices that all speak."""
    values = np.asarray(values, float)
    return DenseMessages(values, np.full(len(values), values.shape[1]), **more)


TRUTH = np.arange(12.0).reshape(3, 2, 2)


def test_a_flipped_table_is_mirrored_at_the_mean_and_only_the_liars_is():
    told, devices = lies("flip")
    messages = send(told, said(TRUTH), devices)
    assert_array_equal(messages.values[[0, 2]], TRUTH[[0, 2]])
    assert_allclose(messages.values[1], 2 * np.array([12 / 5, 3.0]) - TRUTH[1])
    assert_array_equal(TRUTH, np.arange(12.0).reshape(3, 2, 2))
    assert messages.malformed is None


def test_columns_beside_the_coordinates_stay_true():
    counted = np.concatenate((TRUTH, np.full((3, 2, 1), 7.0)), axis=2)
    for kind in KINDS[:3]:
        told, devices = lies(kind)
        messages = send(told, said(counted), devices)
        assert_array_equal(messages.values[:, :, 2], counted[:, :, 2])
        assert not np.array_equal(messages.values[1, :, :2], TRUTH[1])


def test_sums_lie_as_the_centroids_they_stand_for_would():
    counts = np.array([[2.0], [0.0]])
    sums = np.concatenate((np.array([[6.0, 8.0], [0.0, 0.0]]), counts), axis=1)
    told, devices = lies("flip", says=MessageContent.SUMS)
    messages = send(told, said(np.tile(sums, (3, 1, 1))), devices)
    assert_allclose(messages.values[1], [[2 * (4.8 - 3.0), 2 * (6.0 - 4.0), 2.0], [0.0, 0.0, 0.0]])


def test_a_drift_grows_along_one_direction_by_a_twentieth_of_the_spans():
    told, devices = lies("drift")
    moves = [
        send(told, said(TRUTH), devices.at_turn(t, 0, devices.active_devices)).values[1] - TRUTH[1] for t in range(4)
    ]
    span = np.array([9.0, 7.0])
    assert_allclose(np.linalg.norm(moves[0] / span, axis=1), 0.05)
    for t, move in enumerate(moves):
        assert_allclose(move, (t + 1) * moves[0], rtol=1e-12)
    told, devices = lies("drift", liars=(0, 1, 2))
    ways = (send(told, said(TRUTH), devices).values - TRUTH)[:, 0]
    assert len(np.unique(ways)) == 6 and len(np.unique(np.sign(ways))) == 2  # each has a way of its own, to any side


def test_what_is_no_table_is_of_four_kinds_and_a_message_without_rows_is_left_alone():
    """Of numbers that are none, infinite or absurd, or of another shape: then it is marked and claims a row more."""
    told, devices = lies("nan", liars=(0, 1))
    kinds = set()
    for t in range(20):
        at = Context(0, devices.at_turn(t, 0, devices.active_devices), None)
        quiet = DenseMessages(TRUTH, np.array([0, -1, 2]))
        assert told.outgoing(quiet, at)._replace(malformed=None) == quiet
        found = told.outgoing(said(TRUTH), at)
        assert_array_equal(found.values[2], TRUTH[2])
        assert_array_equal(found.rows, 2 + found.malformed)
        for i in (0, 1):
            kinds.add("shape" if found.malformed[i] else str(found.values[i, 0, 0]))
            assert found.malformed[i] or len(np.unique(found.values[i])) == 1
        assert_array_equal(Rejection().outgoing(found, at).malformed, [True, True, False])
    assert kinds == {"shape", "nan", "inf", "1e+101"}


def test_before_the_method_devices_are_honest_unless_all_stages_are_asked_for():
    told, devices = lies("flip")
    messages = said(TRUTH)
    for stages in ("method", "all"):
        early = replace(told, method_started=False, spec=Byzantine(1, kind="flip", stages=stages))
        assert (send(early, messages, devices) is messages) == (stages == "method")


def test_box_and_mean_are_those_of_all_points():
    table = arrange(POINTS, [(0, 1), (1, 2)])
    told = ByzantineMessages(Byzantine(1), np.array([1]))
    told.start([Stage("own", p2pkm.GTVMin(2), 1)], table.devices, table.network)
    assert_allclose((told.low, told.high, told.mean), ([0.0, 0.0], [9.0, 7.0], [12 / 5, 3.0]))


def test_the_note_names_the_first_ten():
    topology = p2pkm.Topology.from_graph(topologies.ring(12))
    (one,), (many,) = (note_byzantine(ids, topology) for ids in (np.array([3]), np.arange(12)))
    assert one.startswith("1 device is Byzantine (3)")
    assert many.startswith("12 devices are Byzantine (0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more)")


def test_random_rows_lie_in_the_box_and_change_every_turn_and_colluding_ones_are_one_far_set():
    told, devices = lies("random", liars=(0, 2))
    drawn = [
        send(told, said(TRUTH), devices.at_turn(t, turn, devices.active_devices)).values
        for t, turn in ((0, 0), (1, 0), (1, 1))
    ]
    rows = np.concatenate([one[[0, 2]].reshape(-1, 2) for one in drawn])
    assert ((rows >= 0) & (rows <= [9, 7])).all()
    assert len(np.unique(rows, axis=0)) == len(rows)
    told, devices = lies("collude", liars=(0, 2))
    far = [send(told, said(TRUTH), devices.at_turn(t, 0, devices.active_devices)).values for t in (0, 5)]
    assert_array_equal(far[0][0], far[0][2])
    assert_array_equal(far[0][0], far[1][0])
    assert ((far[0][0] >= [27, 21]) & (far[0][0] <= [36, 28])).all()


def test_what_is_drawn_depends_on_the_device_and_not_on_its_batch():
    told, devices = lies("random", liars=(1, 2))
    whole = send(told, said(TRUTH), devices.at_turn(3, 1, devices.active_devices)).values
    part = replace(devices, ids=devices.ids[1:])
    some = send(told, said(TRUTH[1:]), part.at_turn(3, 1, devices.active_devices[1:])).values
    assert_array_equal(whole[1:], some)


def test_silent_liars_stay_silent_and_letters_and_later_turns_of_an_opening_stay_true():
    told, devices = lies("flip")
    quiet = DenseMessages(TRUTH, np.array([2, -1, 2]))
    found = send(told, quiet, devices)
    assert found.values is TRUTH and found.rows is quiet.rows and found.malformed is None
    sparse = SparseMessages(np.array([1]), Tables(TRUTH[1], np.zeros(1, int), np.ones(1, int)), np.array([1]))
    assert send(told, sparse, devices) is sparse
    once, messages = replace(told, initial_exchange_only=True), said(TRUTH)
    assert send(once, messages, devices.at_turn(1, 0, devices.active_devices)) is messages
    assert send(once, messages, devices) is not messages
    none = replace(once, spec=Byzantine(1, kind="nan"), content=MessageContent.SUMMARIES)  # also of what is flooded
    assert send(none, messages, devices.at_turn(1, 0, devices.active_devices)) is messages


@pytest.mark.parametrize("kind", ["random", "flip", "drift", "collude"])
def test_of_what_is_flooded_a_liar_changes_its_own_rows_alone_whenever_it_sends_them(kind):
    told, devices = lies(kind, says=MessageContent.SUMMARIES, initial_exchange_only=True)
    rows = np.array([[0, 1.0, 2.0, 5.0], [1, 3.0, 4.0, 6.0], [2, 7.0, 8.0, 7.0]])
    for step in (0, 3):
        messages = send(
            told, said(np.stack([rows] * 3), header=1, ragged=True), devices.at_turn(step, 0, devices.active_devices)
        )
        assert_array_equal(messages.values[[0, 2]], [rows, rows])
        assert_array_equal(messages.values[1, [0, 2]], rows[[0, 2]])
        assert_array_equal(messages.values[1, 1, [0, 3]], rows[1, [0, 3]])
        assert (messages.values[1, 1, 1:3] != rows[1, 1:3]).all()


@pytest.mark.slow
def test_a_liar_knows_its_own_summary_and_the_others_hold_the_lie():
    shards, spec = deal(5), "1:kind=collude,stages=all,place=peripheral"
    held = []
    update = FloodedSummaries.update

    def watched(self, state, inbox, devices):
        held.append(update(self, state, inbox, devices))
        return held[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FloodedSummaries, "update", watched)
        result = p2pkm.simulate(p2pkm.GTVMin(4), topologies.path(5), shards, rounds=1, seed=3, byzantine=spec)
    (liar,) = result.byzantine
    flood = held[-1].flood
    tables = [distinct_collections(flood, np.array([i]))[0][0] for i in range(5)]
    assert flood.known.all()
    assert np.abs(tables[liar]).max() < 20
    for i in set(range(5)) - {liar}:
        assert np.abs(tables[i][:, :2]).max() > 20
        assert_array_equal(np.delete(tables[i], slice(4 * liar, 4 * liar + 4), axis=0),
                           np.delete(tables[liar], slice(4 * liar, 4 * liar + 4), axis=0))  # fmt: skip


@given(st.lists(st.sampled_from([0.5, -3.0, np.nan, np.inf, -np.inf, 1e101, -1e101, 1e100]), min_size=12, max_size=12),
       st.lists(st.integers(-1, 2), min_size=3, max_size=3))  # fmt: skip
def test_a_table_is_refused_if_and_only_if_a_row_of_it_is_wild(numbers, rows):
    messages = DenseMessages(np.array(numbers).reshape(3, 2, 2), np.array(rows))
    wild = [any(not abs(x) <= 1e100 for x in messages.values[i, : max(rows[i], 0)].ravel()) for i in range(3)]
    found = reject_malformed(messages)
    assert_array_equal(found.accepted, np.where(wild, -1, rows))
    assert (found is messages) == (not any(wild))


def test_a_refused_table_is_counted_and_the_last_good_one_stays_in_use():
    topology = Topology.from_links(3, np.array([[0, 1, 1.0], [1, 2, 1.0]]))
    network = LocalNetwork(place(topology, 0, 1))
    network.open()
    network.exchange(said(TRUTH))
    bad = TRUTH + 100.0
    bad[1, 0, 0] = np.nan
    inbox = network.exchange(reject_malformed(said(bad)))
    heard = inbox.tables[inbox.slots]  # edges 0-1, 1-0, 1-2, 2-1
    assert_array_equal(heard[0], TRUTH[1])
    assert_array_equal(heard[1], TRUTH[0] + 100.0)
    assert_array_equal(inbox.fresh, [False, True, True, False])
    assert_array_equal(network.ledger.refused, [0, 2, 0])
    assert_array_equal(network.ledger.edges[:, 0], [2, 2, 2, 2])


def test_over_some_edges_only_those_who_hear_a_refused_table_are_counted():
    topology = Topology.from_links(3, np.array([[0, 1, 1.0], [1, 2, 1.0]]))
    network = LocalNetwork(place(topology, 0, 1))
    network.open()
    bad = np.full((3, 1, 1), np.inf)
    inbox = network.exchange(reject_malformed(said(bad, edges=np.array([True, False, True, False]))))
    assert_array_equal(network.ledger.refused, [1, 1, 0])
    assert not inbox.fresh.any()
    assert (inbox.slots < 0).all()


@pytest.mark.parametrize(("kind", "name"), thin(product(KINDS, [name for name in METHODS if name not in MUTE]), 9))
@pytest.mark.sample(5)
def test_every_method_runs_among_liars_and_scores_the_honest(name, kind):
    graph = None if needs_hub(build(name, 4)) else topologies.small_world(9, degree=4, rewire=0.2, seed=1)
    result = p2pkm.simulate(build(name, 4), graph, deal(9), rounds=4, seed=3, byzantine=f"2:kind={kind}")
    assert len(result.byzantine) == 2
    assert result.summary["byzantine"] == f"2:kind={kind},place=random,by=closeness,stages=method"
    assert (result.summary["messages_rejected"] > 0) == (kind == "nan")
    assert not np.isnan(result.centroids).any()
    assert np.isfinite(result.summary["ratio_mean"])
    assert result.summary["descent"] in ("not claimed", None)
    assert result.best not in result.byzantine
    assert any("Byzantine" in note for note in result.notes)


@each("name", MUTE)
def test_a_method_without_rows_to_lie_about_is_refused(name):
    graph = None if needs_hub(build(name, 4)) else topologies.ring(9)
    with pytest.raises(p2pkm.ExperimentError, match="could replace by other centroids"):
        p2pkm.simulate(build(name, 4), graph, deal(9), byzantine="1")


@pytest.mark.parametrize(
    ("kind", "seeding"),
    thin(
        product(
            KINDS,
            [
                "leader",
                "flooded-summaries",
                "flooded-summaries:hops=1,candidates=2",
                "tree-summaries",
                "rows",
                "d2-sampling",
                "bounding-box",
            ],
        ),
        6,
    ),
)
@pytest.mark.sample(3)
def test_every_seeding_lives_with_lies_in_all_stages(seeding, kind):
    # A leader that sends NaN leaves all others without centroids.
    fails = (seeding, kind) == ("leader", "nan")
    with pytest.warns(ConvergenceWarning, match="7 of 7 devices") if fails else nullcontext():
        result = p2pkm.simulate(p2pkm.GTVMin(4, init=seeding), topologies.ring(9), deal(9), rounds=3, seed=3,
                                byzantine=f"2:kind={kind},stages=all")  # fmt: skip
    assert not np.isnan(result.centroids).any()


def test_scores_are_over_the_honest_devices_alone():
    spec = {"byzantine": "2:kind=collude", "rounds": 6, "seed": 3}
    result = p2pkm.simulate(p2pkm.GTVMin(4), topologies.ring(9), deal(9), **spec)
    honest = np.setdiff1d(np.arange(9), result.byzantine)
    shards = deal(9)
    costs = np.array([((shards.points[:, None] - one[None]) ** 2).sum(axis=2).min(axis=1).sum()
                      for one in result.centroids])  # fmt: skip
    ratio = result.summary["ratio_worst"] / costs[honest].max()
    assert_allclose(result.summary["ratio_mean"], ratio * costs[honest].mean())
    assert costs[result.best] == costs[honest].min()


def test_no_liars_is_the_same_run_as_without_the_option():
    plain, none = (p2pkm.simulate(p2pkm.GTVMin(4), topologies.ring(9), deal(9), seed=3, **more).summary
                   for more in ({}, {"byzantine": "0:kind=nan"}))  # fmt: skip
    differing = {key for key in plain if plain[key] != none[key]}
    assert differing <= {"byzantine", "wall_seconds", "compile_seconds"}


def test_the_own_state_of_a_liar_is_what_an_honest_device_would_have():
    """News travel one hop per turn: what a liar says does not change its own centroids at once."""
    start = np.random.default_rng(1).normal(4, 3, (3, 2, 2))
    shards = p2pkm.Shards.from_list(POINTS)
    one, other = (
        p2pkm.simulate(p2pkm.GTVMin(2, schedule="jacobi"), topologies.path(3), shards, rounds=1, start=start, **more)
        for more in ({}, {"byzantine": "1:kind=collude,place=peripheral"})
    )
    assert_array_equal(other.byzantine, [0])
    assert_array_equal(one.centroids[[0, 2]], other.centroids[[0, 2]])
    assert (one.centroids[1] != other.centroids[1]).any()


@given(st.integers(2, 14), st.integers(0, 50))
def test_centrality_is_that_of_networkx(n, seed):
    graph = nx.gnp_random_graph(n, 0.35, seed=seed)
    for name, theirs in (("closeness", nx.closeness_centrality), ("betweenness", nx.betweenness_centrality)):
        expected = np.array([theirs(graph)[i] for i in range(n)])
        assert_allclose(getattr(topologies.measures, name)(graph), expected, atol=1e-12)


def test_central_and_peripheral_liars_stand_where_they_should():
    topology = Topology.from_graph(topologies.path(7))
    assert_array_equal(select_byzantine(Byzantine(3, place="central"), topology, 0), [2, 3, 4])
    assert_array_equal(select_byzantine(Byzantine(3, place="peripheral"), topology, 0), [0, 1, 6])
    assert_array_equal(select_byzantine(Byzantine(1, place="central", by="betweenness"), topology, 0), [3])
    ring = Topology.from_graph(topologies.ring(8))
    assert_array_equal(select_byzantine(Byzantine(2, place="central"), ring, 5), [0, 1])
    assert len({tuple(select_byzantine(Byzantine(2), ring, seed)) for seed in range(20)}) > 5
    star = Topology.star(4)
    assert not [seed for seed in range(10) if 4 in select_byzantine(Byzantine(3), star, seed)]


def test_a_sampled_centrality_finds_the_middle_of_a_large_graph():
    closeness = topologies.measures.closeness(topologies.path(3001))
    assert abs(int(np.argmax(closeness)) - 1500) < 400
    assert topologies.measures.betweenness(topologies.star(2000)).argmax() == 0


@each(("text", "words"), [
    ("two", "expected a number of devices"), ("-1", "expected a number of dev"), ("", "expected a number of dev"),
    ("1:kind=mean", "Known: collude"), ("1:where=here", "unknown key 'where'"), ("1:", "ends with ':'"),
    ("16", "expected at most 15, so that one device is honest"), ("99999", "expected at most 15, so"),
])  # fmt: skip
def test_a_mistake_is_named(text, words):
    ended = here("--byzantine", text, "--out", "none", "--devices", "16", "-q")
    assert ended.code == 2
    assert words in ended.err
    assert "Traceback" not in ended.err


def test_the_spec_is_written_in_full_and_read_back():
    spec = Byzantine.of("3:place=central")
    assert str(spec) == "3:kind=random,place=central,by=closeness,stages=method"
    assert Byzantine.of(str(spec)) == spec
    assert Byzantine.of(None) is None
    assert Byzantine.of(2) == Byzantine(2)


@each(
    ("count", "options", "words"),
    [
        (-1, {}, "byzantine is -1; expected a whole number of at least 0"),
        (1.5, {}, "byzantine is 1.5; expected a whole number"),
        (2, {"kind": "lies"}, "byzantine kind is 'lies'. .*Known: collude, drift, flip, nan, random"),
        (2, {"place": "top"}, "byzantine place is 'top'"),
        (2, {"by": "degree"}, "byzantine by is 'degree'"),
        (2, {"stages": "none"}, "byzantine stages is 'none'"),
    ],
)
def test_a_value_is_checked_as_its_text_is(count, options, words):
    with pytest.raises(ExperimentError, match=words):
        Byzantine(count, **options)


def test_the_command_line_and_the_toml_file_know_the_option(tmp_path):
    by_option = solve("--byzantine", "1:kind=flip")
    (tmp_path / "run.toml").write_text('byzantine = "1:kind=flip"\n')
    by_file = solve("--config", tmp_path / "run.toml")
    assert by_option["byzantine"] == "1:kind=flip,place=random,by=closeness,stages=method"
    assert {key for key in by_file if by_file[key] != by_option[key]} <= {"wall_seconds", "compile_seconds"}
    assert solve()["byzantine"] is None


def test_the_run_folder_keeps_who_lied_and_verify_repeats_it(tmp_path):
    target = tmp_path / "run"
    ended = here("--data", "grid16:points=5", "--devices", "6", "--rounds", "5", "--no-plot", "-q", "--format", "json",
                 "--byzantine", "2:kind=nan", "--out", target)  # fmt: skip
    assert ended.code == 0
    loaded = p2pkm.load(target)
    assert len(loaded.byzantine) == 2
    assert loaded.ledger.refused.sum() == json.loads(ended.out)["messages_rejected"] > 0
    assert np.flatnonzero(loaded.ledger.refused).tolist() == loaded.byzantine.tolist()
    assert here("verify", target).code == 0


@pytest.mark.parametrize("count", [1, 2])
def test_one_byzantine_device_disturbs_a_run(count):
    assert ByzantineMessages.disturbs({"spec": p2pkm.Byzantine(count)})


@pytest.mark.parametrize(
    ("frame", "wanted"),
    [
        ("none", [[0.0, 5.0], [4.0, 10.0], [1.0, 7.0]]),
        ("coordinate", [[0.0, 0.0], [1.0, 1.0], [0.25, 0.4]]),
        ("entries", [[0.0, 0.5], [0.4, 1.0], [0.1, 0.7]]),
    ],
)
def test_boxes_are_converted_to_the_units_of_a_server_method(frame, wanted):
    assert_allclose(convert_box(np.array([[0.0, 5.0], [4.0, 10.0], [1.0, 7.0]]), frame), wanted)
