"""What the monitor says of itself."""

from dataclasses import replace
from hashlib import sha256
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import p2pkm
from p2pkm.engine.loop import Start
from p2pkm.metrics import monitor
from p2pkm.metrics.clustering import ari
from p2pkm.metrics.cost_ratio import CostEvaluator
from p2pkm.metrics.monitor import Monitor, find_extent, hash_tables
from tests.support.build import build_monitor
from tests.support.play_rounds import arrange, objective, play


def test_compiling_is_no_measuring(monkeypatch):
    """Of every 5 seconds 2 are spent on compiling, which is left out of the seconds of the whole run, too."""
    monkeypatch.setattr(monitor, "time", SimpleNamespace(perf_counter=count(0, 5).__next__))
    monkeypatch.setattr(monitor, "count_compilation", count(0, 2).__next__)
    table = arrange([np.ones((3, 1)), np.zeros((2, 1))], [(0, 1)])
    states = [Start(np.zeros((2, 1, 1)), np.ones(2, np.bool_))] * 4
    seen, _ = watch(table, *states, method=p2pkm.GTVMin(1))
    assert seen.seconds == 4 * (5 - 2)


def watch(table, *states, method, prices=None, altered=False):
    """Return a monitor and its records of these states, one a round."""
    seen = build_monitor(table, prices=prices)
    seen.exclude(np.zeros(0, np.int64), altered=altered)
    for number, state in enumerate(states):
        ends = dict.fromkeys(("last", "closing", "final"), number == len(states) - 1)
        seen.record({"stage": "gtvmin", "round": number, "turn_count": 0}, state, method, **ends)
    return seen, seen.trace


def test_a_record_is_about_all_devices_and_links():
    table = arrange([np.arange(6.0).reshape(3, 2), [], np.ones((2, 2))], [(0, 1), (1, 2, 0.5)])
    method = p2pkm.GTVMin(2, alpha=0.25)
    history, state = play(method, table, np.random.default_rng(0).normal(size=(3, 2, 2)), 2)
    # The second record has the hashes of the first, the last one does not.
    sets = history[0], history[0], history[-1], history[0], history[-1]
    states = [state._replace(centroids=centroids) for centroids in sets]
    seen, records = watch(table, *states, method=method)
    chain, known = b"", seen.hash_chain()
    for number, (centroids, record) in enumerate(zip(sets, records, strict=True)):
        digests = [sha256(own.tobytes()).digest() for own in centroids]
        fingerprint = sha256(b"".join(digests)).digest()
        chain = sha256(chain + fingerprint).digest()
        assert known.heads[number].tobytes() == chain
        assert known.digests[number].tobytes() == b"".join(digests)
        assert_allclose(record["objective"], objective(method, table, centroids))
    assert (seen.fingerprint, seen.chain) == (fingerprint, chain)
    assert seen.heads.tobytes() == b"".join(digest[:8] for digest in digests)
    assert records[-1]["gtv"] == seen.gtv.sum() > 0


def test_the_extent_of_a_device_is_that_of_its_largest_coordinate():
    table = arrange([np.array([[-3.0, 1.0], [2.0, 0.5]]), [], np.array([[0.0, -7.0]])], [(0, 1), (1, 2)])
    seen, _ = watch(table, method=None)
    assert seen._extent.tolist() == [[3.0, 1.0], [0.0, 0.0], [0.0, 7.0]]


@pytest.mark.parametrize(("share", "descent"), [(0.5, "certified"), (2.0, "violated")])
def test_the_objective_may_rise_by_rounding_but_not_by_more(share, descent):
    """Far from the origin all centroids are on their points; then that of one device with three points moves."""
    place = -(2.0**40)
    table = arrange([np.full((3, 1), place), np.full((1, 1), place)], [(0, 1)])
    method = p2pkm.GTVMin(1, alpha=8.0)
    start = np.full((2, 1, 1), place)
    _, state = play(method, table, start, 0)
    # of q = m + 2 neighbors operations each; what weighs m + 2 alpha
    terms, masses = (
        np.array([3 + 2 + 3, 1 + 2 + 3]),
        np.array([3.0, 1.0]) + 2 * method.objective.link_alpha(table.devices),
    )
    bound = (masses * (terms * 2.0**-53) ** 2).sum() * place**2
    moved = start.copy()
    one, ulp = objective(method, table, start + np.array([[[1.0]], [[0.0]]])), np.spacing(-place)  # of a move by 1
    moved[0] += ulp * np.ceil(np.sqrt(share * bound / one) / ulp)
    _, records = watch(table, state, state._replace(centroids=moved), method=method)
    assert records[0]["objective"] == 0.0 < records[1]["objective"]
    assert [record["descent"] for record in records] == ["certified", descent]


def test_scores_of_the_clients_are_weighted_by_their_points():
    data = [np.array([[0.0], [1.0], [8.0], [9.0], [0.5]]), np.array([[0.0], [9.0]])]
    labels = [np.array([0, 0, 1, 1, 1]), np.array([0, 1])]
    result = p2pkm.simulate(p2pkm.FKM(2), None, p2pkm.Shards.from_list(data, labels=labels), rounds=2, baselines=False)
    tables = np.array([[[2, 0], [1, 2]], [[1, 0], [0, 1]]])
    assert_allclose(result.rounds[-1]["ari_clients"], np.average(ari(tables), weights=[5, 2]))


def test_costs_on_new_points_keep_the_notes_of_the_old_ones():
    table = arrange([np.ones((3, 1)), np.zeros((2, 1))], [(0, 1)])

    def prices(*notes):
        found = CostEvaluator(table.devices, np.zeros(5), 0, table.network, None)
        found.notes = list(notes)
        return found

    seen, asked = build_monitor(table, prices=prices("a", "b")), []
    seen.follow(lambda devices, closing: asked.append(closing) or prices("b", "c"))
    state = Start(np.zeros((2, 1, 1)), np.ones(2, np.bool_))
    for number, changed, wanted in ((0, False, []), (1, True, [False]), (2, False, [False])):
        if changed:
            seen.change_points(table.devices)
        seen.record({"stage": "m", "round": number}, state, p2pkm.GTVMin(1), last=False, closing=False, final=False)
        assert asked == wanted and seen.trace[-1]["break"] == changed
        assert seen.cost_evaluator.notes == (["a", "b", "c"] if asked else ["a", "b"])


@pytest.mark.parametrize(("order", "block"), [("C", 128), ("F", 1000)])
def test_tables_are_hashed_by_the_standard_in_the_order_of_their_entries(order, block, monkeypatch):
    monkeypatch.setattr("p2pkm.core.sorting._BLOCK", block)
    tables = np.frombuffer(bytes(range(256)), np.float64).reshape(2, 8, 2)
    expected = [sha256(bytes(range(first, first + 128))).digest() for first in (0, 128)]
    assert [row.tobytes() for row in hash_tables(np.array(tables, order=order))] == expected
    assert hash_tables(tables[:0]).shape == (0, 32)


def test_equal_tables_have_equal_hashes(monkeypatch):
    monkeypatch.setattr("p2pkm.core.sorting._BLOCK", 3)
    tables = np.array([0.0, 0.0, -0.0, np.inf, np.inf, np.inf, np.inf, np.nan, np.nan, 0.0]).reshape(-1, 1, 1)
    expected = [sha256(table.tobytes()).digest() for table in tables]
    assert [row.tobytes() for row in hash_tables(tables)] == expected


@pytest.mark.parametrize("block", [1, 40, 1 << 22])
def test_the_extent_is_the_largest_magnitude_of_every_feature(block, monkeypatch):
    monkeypatch.setattr("p2pkm.core.sorting._BLOCK", 64 * block)
    sizes = [0, 3, 1, 0, 50, 2, 0]
    points = np.random.default_rng(0).normal(size=(sum(sizes), 3))
    parts = np.split(points, np.cumsum(sizes)[:-1])
    expected = [np.abs(part).max(axis=0, initial=0.0) for part in parts]
    np.testing.assert_array_equal(find_extent(points, np.concatenate(([0], np.cumsum(sizes)))), expected)


def test_the_rounding_bound_counts_points_and_two_rows_per_neighbor_and_centroid():
    table = arrange([np.full((4, 2), 3.0), np.zeros((1, 2)), np.zeros((2, 2))], [(0, 1), (1, 2)])
    alpha, centroids = np.array([1.0, 2.0, 1.0]), np.full((3, 5, 2), 2.0)
    found = build_monitor(table)._measure_rounding(centroids, alpha, np.full(3, 0.5))
    terms = np.array([4 + 10 + 3, 1 + 20 + 3, 2 + 10 + 3])
    masses = 0.5 * np.array([4.0, 1.0, 2.0]) + 10.0 * alpha
    # coordinates of at most 3 at the first device, of at most 2 at the others
    assert_allclose(found, np.column_stack((masses * (terms * 2.0**-53) ** 2, [18.0, 8.0, 8.0])))


@pytest.mark.parametrize(
    ("steps", "altered", "least", "word"),
    [
        (1, False, 0, "certified"),
        (2, False, 0, "not claimed"),
        (1, True, 0, "not claimed"),
        (1, False, 2, "not claimed"),
    ],
)
def test_descent_is_certified_only_with_a_guarantee_and_unaltered_messages(steps, altered, least, word):
    table = arrange([np.ones((3, 1)), np.zeros((2, 1))], [(0, 1)])
    table = table._replace(devices=replace(table.devices, min_count=least))
    state = Start(np.zeros((2, 1, 1)), np.ones(2, np.bool_))
    method = p2pkm.GTVMin(1, alpha=1.0, schedule="jacobi", local_steps=steps)
    _, records = watch(table, state, method=method, altered=altered)
    assert [record["descent"] for record in records] == [word]


@pytest.mark.parametrize(("records", "kept"), [(1, 1), (2, 2), (3, None), (4, None)])
def test_digests_of_records_are_kept_up_to_a_limit(monkeypatch, records, kept):
    monkeypatch.setattr(monitor, "_REMEMBERED", 128)  # two records of two digests each
    table = arrange([np.ones((3, 1)), np.zeros((2, 1))], [(0, 1)])
    states = [Start(np.zeros((2, 1, 1)), np.ones(2, np.bool_))] * records
    known = watch(table, *states, method=p2pkm.GTVMin(1))[0].hash_chain()
    assert len(known.heads) == records and (known.digests if kept is None else len(known.digests)) == kept


def test_points_are_labeled_again_only_for_other_centroids_or_points(monkeypatch):
    table = arrange([np.arange(3.0)[:, None], np.zeros((2, 1))], [(0, 1)])
    seen, labeled, measure = build_monitor(table), [], Monitor._label
    monkeypatch.setattr(Monitor, "_label", lambda self, *given: labeled.append(1) or measure(self, *given))
    ends = dict.fromkeys(("last", "closing", "final"), False)
    # Points 0, 1 and 2, and from the last record on 3, 4 and 5.
    for step, value, shift, calls, loss in ((0, 0.0, 0.0, 1, 5.0), (1, 0.0, 0.0, 1, 5.0), (2, 1.0, 0.0, 2, 2.0),
                                            (3, 1.0, 3.0, 3, 29.0)):  # fmt: skip
        if shift:
            seen.change_points(replace(table.devices, stored=table.devices.stored + shift))
        state = Start(np.full((2, 1, 1), value), np.ones(2, np.bool_))
        seen.record({"stage": "m", "round": step}, state, p2pkm.GTVMin(1), **ends)
        assert (len(labeled), seen.losses[0]) == (calls, loss)
