"""Rules against liars: exact small cases, naive twins, and what they are worth."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, pack
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.methods.building_blocks.robust_neighbors import RULES, robust_filter
from p2pkm.methods.building_blocks.robust_server import drop_outliers, robust_aggregate
from tests.support.play_rounds import arrange, play
from tests.support.run_cli import here, solve

rules = pytest.mark.parametrize("rule", RULES)


def hear(own, others, rule, *, awake=None):
    """Return what a device with the own rows takes as heard of each neighbor, a list of arrays."""
    k, d = np.shape(own)
    table = arrange([np.zeros((1, d))] * (1 + len(others)), [(0, j) for j in range(1, 1 + len(others))])
    centroids = np.full((1 + len(others), k, d), np.inf)
    for i, rows in enumerate((own, *others)):
        centroids[i, : len(rows)] = np.reshape(rows, (-1, d))
    inbox = table.network.exchange(DenseMessages(*pack(centroids)))
    said = np.arange(k)[:, None] < inbox.rows[:, None, None]
    inbox = inbox._replace(tables=np.where(said, inbox.tables, 0.0))  # what lies behind the last row says nothing
    devices = table.devices if awake is None else table.devices.at_stage_start(awake)
    found = robust_filter(rule, centroids, inbox, devices)
    edges = range(len(others))
    return [found.tables[found.slots[e], : found.rows[found.slots[e]]] if found.slots[e] >= 0 else None for e in edges]


def naive(own, others, rule):
    """Return the same by the definition, one centroid and one coordinate after the other."""
    own = np.asarray(own, float)
    apart = np.array([[rows[np.argmin(((rows - c) ** 2).sum(axis=1))] - c for c in own] for rows in others])
    g = len(others)
    for c in range(len(own)):
        if rule == "clip":
            lengths = np.sqrt((apart[:, c] ** 2).sum(axis=1))
            radius = sorted(lengths)[(g + 1) // 2 - 1]
            for j in range(g):
                apart[j, c] *= min(1.0, radius / lengths[j]) if lengths[j] > 0 else 1.0
            continue
        b = min(-(-g // 4), (g - 1) // 2)
        for f in range(own.shape[1]):
            order = sorted(range(g), key=lambda j, c=c, f=f: apart[j, c, f])
            apart[order[:b] + order[g - b :], c, f] = 0.0
    return own + apart


def test_clip_shortens_to_the_lower_median():
    heard = hear([[0.0]], [[[1.0]], [[-2.0]], [[10.0]]], "clip")
    assert_allclose(np.ravel(heard), [1.0, -2.0, 2.0])
    assert_allclose(np.ravel(hear([[0.0]], [[[1.0]], [[-9.0]]], "clip")), [1.0, -1.0])
    assert_allclose(np.ravel(hear([[5.0]], [[[9.0]]], "clip")), [9.0])


def test_trim_silences_the_ends_in_every_coordinate():
    heard = hear([[0.0, 1.0]], [[[1.0, 9.0]], [[2.0, 2.0]], [[10.0, 3.0]]], "trim")
    assert_array_equal(np.reshape(heard, (3, 2)), [[0.0, 1.0], [2.0, 1.0], [0.0, 3.0]])
    assert_array_equal(np.ravel(hear([[0.0]], [[[1.0]], [[9.0]]], "trim")), [1.0, 9.0])


def test_each_own_centroid_hears_its_nearest_row_and_no_row_counts_twice_for_one():
    heard = hear([[0.0], [10.0]], [[[9.0], [11.0]], [[0.5], [10.5]], [[-1.0], [8.0]]], "clip")
    assert_allclose(np.reshape(heard, (3, 2)), [[1.0, 9.0], [0.5, 10.5], [-1.0, 9.0]])


def test_absent_own_rows_hear_nothing_and_empty_tables_are_left_out():
    heard = hear([[0.0], [np.inf]], [[[1.0], [7.0]], np.zeros((0, 1)), [[3.0]]], "clip")
    assert_array_equal(heard[0], [[1.0]])
    assert heard[1] is None
    assert_array_equal(heard[2], [[1.0]])
    assert_array_equal(np.ravel(hear([[np.inf], [0.0]], [[[1.0], [7.0]], [[3.0]]], "clip")), [1.0, 1.0])
    assert_array_equal(hear([[4.0], [0.0]], [[[9.0]]], "clip")[0], [[9.0], [9.0]])


def test_who_sleeps_hears_nothing_new():
    assert hear([[0.0]], [[[1.0]], [[2.0]]], "clip", awake=np.array([False, True, True])) == [None, None]


@given(st.sampled_from(RULES), st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.integers(0, 10**6))
def test_both_rules_are_what_their_definition_says(rule, g, k, d, seed):
    rng = np.random.default_rng(seed)
    own, others = rng.normal(size=(k, d)), rng.normal(size=(g, k, d)) * rng.choice([1.0, 100.0], size=(g, 1, 1))
    assert_allclose(np.array(hear(own, others, rule)), naive(own, others, rule), rtol=1e-12, atol=1e-12)


@rules
def test_where_neighbors_agree_nothing_changes(rule):
    rows = np.random.default_rng(0).normal(size=(3, 2))
    assert_array_equal(np.array(hear(rows, [rows] * 5, rule)), [rows] * 5)


@rules
@pytest.mark.parametrize("kernels", [plain, compiled], ids=["plain", "compiled"])
def test_one_liar_of_four_neighbors_moves_nobody_farther_than_an_honest_one(rule, kernels):
    """A device in the middle of five others, one of which says ever larger numbers."""
    rng = np.random.default_rng(2)
    data, links = [rng.normal(size=(4, 2)) for _ in range(5)], [(0, j) for j in range(1, 5)]
    start = rng.normal(size=(5, 2, 2))
    found = []
    for far in (1e3, 1e6, 1e12):
        start[4] = far * np.array([[1.0, 1.0], [1.0, 2.0]])
        table = arrange(data, links, kernels=kernels)
        history, _ = play(p2pkm.GTVMin(2, alpha=3.0, schedule="jacobi", robust=rule), table, start, 1)
        found.append(history[1][0])
    assert np.abs(found).max() < 10.0
    assert_allclose(found[1], found[2], atol=1e-3)


def test_a_step_with_trimmed_neighbors_by_hand():
    """alpha 1, one centroid 0, points 1 and 3, neighbors at 2, 4 and 100: E2 and E3 hear 0, 4 and 0."""
    data, links = [np.array([[1.0], [3.0]]), *[np.zeros((0, 1))] * 3], [(0, 1), (0, 2), (0, 3)]
    start = np.array([0.0, 2.0, 4.0, 100.0]).reshape(4, 1, 1)
    table = arrange(data, links, d=1)
    history, _ = play(p2pkm.GTVMin(1, alpha=1.0, schedule="jacobi", robust="trim"), table, start, 1)
    assert_allclose(history[1][0], (1 + 3 + 2 * (0 + 4 + 0)) / (2 + 2 * 3))


@pytest.mark.parametrize(("robust", "claim"), [("none", "certified"), ("saturate", "certified"),
                                               ("clip", "not claimed"), ("trim", "not claimed")])  # fmt: skip
@pytest.mark.sample(3)
def test_only_what_descends_is_certified(robust, claim):
    summary = solve("--robust", robust, "--graph", "complete")
    assert summary["descent"] == claim


def test_saturate_finds_its_limits_in_stages_of_its_own():
    shards = p2pkm.Shards.deal(*_points(6))
    result = p2pkm.simulate(p2pkm.GTVMin(4, robust="saturate"), topologies.ring(6), shards, rounds=20)
    names = list(dict.fromkeys(one["stage"] for one in result.rounds))
    assert names == ["tree-summaries", "warmup", "saturation-thresholds", "gtvmin"]
    objectives = [one["objective"] for one in result.rounds if one["stage"] == "gtvmin"]
    assert not [(before, after) for before, after in pairwise(objectives) if not after <= before * (1 + 1e-12)]


def _points(n, seed=0, count=40):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n * count)
    points = 9.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[y] + rng.normal(size=(n * count, 2))
    return points, np.repeat(np.arange(n), count)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "flip", "drift", "collude"])
@pytest.mark.parametrize("robust", ["clip", "trim", "saturate"])
def test_a_rule_keeps_honest_devices_near_the_central_cost(kind, robust):
    shards = p2pkm.Shards.deal(*_points(12))
    graph = topologies.build("random-regular", 12, degree=4, seed=1)
    worst = [np.mean([p2pkm.simulate(p2pkm.GTVMin(4, robust=rule), graph, shards, rounds=40, seed=seed,
                                     byzantine=f"1:kind={kind}").summary["ratio_worst"] for seed in range(4)])
             for rule in ("none", robust)]  # fmt: skip
    assert worst[0] > 1.05
    assert worst[1] < min(1.1, worst[0])


def test_the_fences_are_an_interquartile_range_and_a_half_beyond_the_quartiles_at_both_ends():
    inside = [[float(value), 1.0] for value in range(9)]  # quartiles 2 and 6, so the fences are -4 and 12
    rows = [np.array([*inside, [low, 1.0], [high, 1.0]]) for low, high in ((-4.5, 12.5), (-3.5, 11.5))]
    assert [len(drop_outliers([table, np.array(inside * 40)])[0]) for table in rows] == [9, 11]


def test_a_server_agrees_on_trimmed_means_and_medians():
    """Five clients near 0, whose rows are 1, 2, 3, 4 and 100, and one near 50."""
    near = [np.array([[x, 1.0]]) for x in (1.0, 2.0, 3.0, 4.0)]
    tables = [*near, np.array([[24.0, 2.0], [24.0, 1.0], [52.0, 9.0]]), np.zeros((0, 2))]
    reference = np.array([[0.0], [50.0], [1000.0]])
    assert_allclose(robust_aggregate(tables, reference, "trim"), [[3.0], [52.0], [1000.0]])  # b = 2 of 5
    assert_allclose(robust_aggregate(tables, reference, "median"), [[3.0], [52.0], [1000.0]])
    assert_allclose(robust_aggregate(tables[:4], reference, "trim")[0], 2.5)  # b = 1 of 4
    assert_allclose(robust_aggregate(tables[:4], reference, "median")[0], 2.5)
    assert_allclose(robust_aggregate(tables[:2], reference, "trim")[0], 1.5)


def test_a_clients_rows_at_one_centroid_are_one_vote_weighted_by_its_counts():
    tables = [np.array([[0.0, 3.0], [4.0, 1.0]]), np.array([[1.0, 1.0]]), np.array([[1.0, 100.0]])]
    assert_allclose(robust_aggregate(tables, np.zeros((1, 1)), "median"), [[1.0]])
    assert_allclose(robust_aggregate(tables[:1], np.zeros((1, 1)), "trim"), [[1.0]])


def test_fences_drop_what_is_far_outside():
    rows = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [100.0]])
    tables = [np.column_stack((rows[i : i + 3], np.ones(3))) for i in (0, 3)]
    assert_array_equal(np.concatenate(drop_outliers(tables))[:, 0], [0, 1, 2, 3, 4])  # quartiles 1.25 and 3.75


@pytest.mark.parametrize("rule", ["trim", "median"])
def test_colluding_clients_do_not_take_the_server_away(rule):
    shards = p2pkm.Shards.deal(*_points(12))
    plain_one, robust = (
        p2pkm.simulate(p2pkm.FKM(4, robust=name), None, shards, rounds=5, byzantine="2:kind=collude")
        for name in ("none", rule)
    )
    assert plain_one.summary["ratio_mean"] > 2.0
    assert robust.summary["ratio_mean"] < 1.05


@pytest.mark.parametrize(("words", "said"), [
    (("--robust", "median"), "unknown robust 'median'"),
    (("--robust", "clip", "--algorithm", "fkm"), "Known: median, none, trim"),
    (("--robust", "clip", "--algorithm", "admm"), "but method 'admm' has no key robust"),
])  # fmt: skip
def test_a_mistake_is_named(words, said):
    ended = here(*words, "--out", "none", "-q", "--devices", "4")
    assert ended.code == 2
    assert said in ended.err


SHARDS = p2pkm.Shards.from_list([np.random.default_rng(i).normal(size=(6, 2)) for i in range(5)])


@pytest.mark.parametrize(("rule", "graph"), [("trim", nx.cycle_graph(5)), ("clip", nx.empty_graph(5))])
def test_a_rule_that_acts_at_no_device_of_a_graph_is_rejected(rule, graph):
    with pytest.raises(ExperimentError, match=r"have at most [02] neighbors; expected at least [23] at some device"):
        p2pkm.simulate(p2pkm.GTVMin(2, robust=rule), graph, SHARDS, allow_disconnected=True)


@pytest.mark.parametrize(
    ("rule", "graph", "acts"),
    [
        ("clip", nx.path_graph(5), 3),
        ("trim", nx.star_graph(4), 1),
        ("clip", nx.cycle_graph(5), 5),
        ("none", nx.path_graph(5), 5),
    ],
)
def test_a_note_says_at_how_many_devices_a_rule_acts(rule, graph, acts):
    notes = p2pkm.simulate(p2pkm.GTVMin(2, robust=rule), graph, SHARDS, rounds=1).notes
    said = [note for note in notes if note.startswith("the robust rule acts")]
    assert said == ([] if acts == 5 else [
        f"the robust rule acts at {acts} of 5 devices, those with at least {2 if rule == 'clip' else 3} neighbors; the "
        "others use received tables unchanged"
    ])  # fmt: skip
