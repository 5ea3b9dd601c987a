"""What the monitor says of itself."""

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
from p2pkm.metrics.monitor import Monitor, hash_tables
from tests.support.play_rounds import arrange, objective, play


def test_compiling_is_no_measuring(monkeypatch):
    """Of every 5 seconds 2 are spent on compiling, which is left out of the seconds of the whole run, too."""
    monkeypatch.setattr(monitor, "time", SimpleNamespace(perf_counter=count(0, 5).__next__))
    monkeypatch.setattr(monitor, "count_compilation", count(0, 2).__next__)
    nothing = SimpleNamespace(
        every=1, seconds=0.0, prices=None, recorder=SimpleNamespace(skip=lambda: None), _record=lambda *_: None
    )
    state = Start(np.zeros((1, 1, 1)), np.ones(1, np.bool_))
    for number in range(4):
        Monitor.record(nothing, {"round": number}, state, None, last=False, closing=False)
    assert nothing.seconds == 4 * (5 - 2)


def watch(table, *states, method):
    """Return a monitor and its records of these states, one a round."""
    seen = Monitor(table.network, 1, lambda record: None, table.topology)
    seen.attach(table.devices, None)
    for number, state in enumerate(states):
        last = number == len(states) - 1
        seen.record({"stage": "gtvmin", "round": number, "turn_count": 0}, state, method, last=last, closing=last)
    return seen, seen.trace


def test_a_record_is_about_all_devices_and_links():
    table = arrange([np.arange(6.0).reshape(3, 2), [], np.ones((2, 2))], [(0, 1), (1, 2, 0.5)])
    method = p2pkm.GTVMin(2, alpha=0.25)
    history, state = play(method, table, np.random.default_rng(0).normal(size=(3, 2, 2)), 2)
    states = [state._replace(centroids=centroids) for centroids in (history[0], history[-1])]
    seen, records = watch(table, *states, method=method)
    chain, known = b"", seen.hash_chain()
    for number, (centroids, record) in enumerate(zip((history[0], history[-1]), records, strict=True)):
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


def test_new_prices_keep_what_the_old_ones_noted():
    def prices(*notes):
        return SimpleNamespace(notes=list(notes), leave_out=lambda ids: None)

    seen = SimpleNamespace(prices=prices("a", "b"), _price=lambda *_: prices("b", "c"), _unpriced=True,
                           _devices=None, left_out=[])  # fmt: skip
    Monitor._reprice(seen, False)
    assert seen.prices.notes == ["a", "b", "c"] and not seen._unpriced


@pytest.mark.parametrize("order", ["C", "F"])
def test_tables_are_hashed_by_the_standard_in_the_order_of_their_entries(order):
    tables = np.frombuffer(bytes(range(256)), np.float64).reshape(2, 8, 2)
    expected = [sha256(bytes(range(first, first + 128))).digest() for first in (0, 128)]
    assert [row.tobytes() for row in hash_tables(np.array(tables, order=order))] == expected
    assert hash_tables(tables[:0]).shape == (0, 32)


def test_the_rounding_bound_counts_points_and_two_rows_per_neighbor_and_centroid():
    devices = arrange([np.full((4, 2), 3.0), np.zeros((1, 2)), np.zeros((2, 2))], [(0, 1), (1, 2)]).devices
    seen = SimpleNamespace(_devices=devices, _masses=np.array([4.0, 1.0, 2.0]), _extent=np.zeros((3, 2)))
    alpha = np.array([1.0, 2.0, 1.0])
    found = monitor.Monitor._measure_rounding(seen, np.full((3, 5, 2), 2.0), alpha, np.full(3, 0.5))
    terms = np.array([4 + 10 + 3, 1 + 20 + 3, 2 + 10 + 3])
    masses = 0.5 * np.array([4.0, 1.0, 2.0]) + 10.0 * alpha
    assert_allclose(found, np.column_stack((masses * (terms * monitor._ROUNDOFF) ** 2, np.full(3, 8.0))))


@pytest.mark.parametrize(("promises", "altered", "count"), [(False, False, 0), (True, True, 0), (True, False, 2)])
def test_descent_is_certified_only_with_a_guarantee_and_unaltered_messages(promises, altered, count):
    method = SimpleNamespace(traits=SimpleNamespace(guarantees_descent=promises))
    devices = SimpleNamespace(min_count=count, has_stale_or_varying_links=False)
    seen = SimpleNamespace(altered=altered, _devices=devices)
    assert monitor.Monitor._certify(seen, method, 1.0, 0) == "not claimed"


def test_digests_of_records_are_kept_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(monitor, "_REMEMBERED", 128)
    seen = SimpleNamespace(_heads=[], _remembered=[], chain=b"")
    for kept in (1, 2, None, None):
        monitor.Monitor._chain_up(seen, np.zeros((2, 32), np.uint8))
        assert (seen._remembered if kept is None else len(seen._remembered)) == kept
    assert len(seen._heads) == 4
