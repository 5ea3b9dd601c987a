"""MUFC: what clients say, what the server can read of it, and what it makes of it."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
from p2pkm.core.batch import Search, Stream, cluster
from p2pkm.core.errors import ExperimentError
from p2pkm.core.protocols import PointCount, RunOutline
from p2pkm.kernels import reference as plain
from p2pkm.methods.server.finite_field.effort import estimate
from p2pkm.methods.server.finite_field.multisets import UndecodableError, recover
from p2pkm.methods.server.finite_field.primes import next_prime
from p2pkm.methods.server.mufc import MUFC
from p2pkm.network.graph import Topology
from p2pkm.network.local import LocalNetwork
from tests.support.each import each
from tests.support.run_cli import here
from tests.support.server import clients_of, serve

SMALL = 2147483659  # the first prime above 2^31


def integers(table):
    """Return the field elements of a table of limbs."""
    return [sum(int(limb) * 2 ** (32 * place) for place, limb in enumerate(row)) for row in table]


def totals(played, p):
    """Return the sums of all clients' tables modulo p."""
    return [sum(column) % p for column in zip(*map(integers, played.uplinks[0]), strict=True)]


def measure(data):
    """Return shift, span, number of points and bins along a coordinate."""
    every = np.concatenate([points for points in data if len(points)])
    shift, span = every.min(axis=0), np.ptp(every, axis=0)
    return shift, np.where(span > 0, span, 1.0), len(every), round(sqrt(len(every))) + 1


def naive_histogram(points, seeds, frame):
    """Count the points nearest to each seed into the bin of the seed, plainly."""
    shift, span, m, side = frame
    counted, places = {}, [(seed - shift) / span for seed in seeds]
    for x in points:
        distances = [(((x - shift) / span - place) ** 2).sum() for place in places]
        nearest = places[distances.index(min(distances))]
        number = 1 + sum(round(v * sqrt(m)) * side**f for f, v in enumerate(nearest))
        counted[number] = counted.get(number, 0) + 1
    return counted


def merged(histograms):
    """Return the sum of histograms, ascending."""
    return {b: sum(one.get(b, 0) for one in histograms) for b in sorted({b for one in histograms for b in one})}


def naive_sums(counted, length, p):
    return [sum(q * pow(b, i, p) for b, q in counted.items()) % p for i in range(length)]


def blobs(*sizes, d=2, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(rng.integers(0, 3, (size, 1)) * 8.0, 1.0, (size, d)) for size in sizes]


# m = 4: bins 1, 2, 3 around 0, 5, 10; two points of client 0, two of client 1
HAND = [[[0.0], [10.0]], [[10.0], [5.0]]]


def test_two_clients_by_hand():
    played = serve(MUFC(2), HAND)
    assert [table.shape for table in played.uplinks[0]] == [(8, 1), (8, 1)]
    assert totals(played, SMALL) == [4, 9, 23, 63, 179, 519, 1523, 4503]  # 1 + 2^i + 2 x 3^i
    assert recover(totals(played, SMALL), SMALL) == {1: 1, 2: 1, 3: 2}
    assert sorted(played.local[1][:, 0]) == [5.0, 10.0]
    model = np.sort(played.model[:, 0])
    assert len(model) == 2 and -2.5 <= model[0] <= 7.5 and 2.5 <= model[1] <= 12.5


@pytest.mark.parametrize(("d", "width"), [(1, 1), (30, 3)])
def test_it_asks_once_and_every_limb_counts(d, width):
    played = serve(MUFC(2), blobs(20, 17, d=d), rounds=3)
    assert len(played.uplinks) == 1
    box = 2 * (2 * 2 * d * 8)  # a box by each client, and one to each
    assert played.ledger[1] == box + 2 * (8 * width * 8) + 2 * (2 * d * 8)


def test_a_seed_in_the_middle_goes_to_the_even_bin():
    played = serve(MUFC(4), [[[0.0], [1.0], [0.25], [0.75]]])  # 0.25 is at 0.5, 0.75 at 1.5 bins
    assert recover(totals(played, SMALL), SMALL) == {1: 2, 3: 2}


def test_bins_are_numbered_with_the_first_coordinate_first():
    played = serve(MUFC(4), [[[0.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.5]]])
    assert recover(totals(played, SMALL), SMALL) == {1: 1, 3: 1, 6: 1, 7: 1}


@pytest.mark.parametrize("lloyd", [False, True])
@pytest.mark.parametrize("sizes", [(9, 30, 17), (0, 40, 0, 3, 1), (2, 2), (50,), (0, 1, 0), (1, 0, 0, 0, 0, 0, 7)])
def test_the_server_reads_the_sum_of_all_histograms(sizes, lloyd):
    data = blobs(*sizes, seed=len(sizes))
    played, frame = serve(MUFC(3, local_lloyd=lloyd), data, seed=2), measure(data)
    counted = merged([naive_histogram(points, seeds, frame) for points, seeds in zip(data, played.local, strict=True)])
    assert sum(counted.values()) == sum(sizes)
    assert totals(played, SMALL) == naive_sums(counted, 2 * 3 * len(sizes), SMALL)
    assert recover(totals(played, SMALL), SMALL) == counted


def test_the_server_clusters_a_uniform_point_of_its_bin_for_every_point():
    data = blobs(40, 25, 60)
    played = serve(MUFC(3, local_k=5), data, seed=7)
    shift, span, m, side = measure(data)
    counted = recover(totals(played, SMALL), SMALL)
    places = [((b - 1) % side, (b - 1) // side) for b, q in counted.items() for _ in range(q)]
    draws = plain.uniforms(played.devices.shared_key, Stream.BIN, [0], 2 * m).reshape(m, 2)
    points = (np.array(places) - 0.5 + draws) / sqrt(m)
    search = Search(3, Stream.SERVER, starts=10)
    centroids, _, _ = cluster(plain, played.devices.shared_key, points, np.ones(m), search)
    assert_allclose(played.model, centroids * span + shift, rtol=1e-12)


def test_seeds_are_points_of_the_client_and_with_lloyd_means():
    data = blobs(12, 30)
    for points, seeds in zip(data, serve(MUFC(3), data).local, strict=True):
        assert not [seed for seed in seeds if not np.isclose(points, seed, rtol=1e-12).all(axis=1).any()]
    for points, means in zip(data, serve(MUFC(3, local_lloyd=True), data).local, strict=True):
        labels = ((points[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
        assert_allclose(means, [points[labels == c].mean(axis=0) for c in range(3)])


def test_the_model_finds_clusters_far_apart():
    rng = np.random.default_rng(1)
    centers = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    data = [np.repeat(centers, 25, axis=0) + rng.normal(0, 0.2, (100, 2)) for _ in range(5)]
    model = serve(MUFC(4), data).model
    found = model[np.lexsort((np.round(model[:, 0]), np.round(model[:, 1])))]
    assert_allclose(found, centers, atol=0.6)


@pytest.mark.parametrize("sizes", [(30, 20), (30, 0, 20), (9, 9, 9, 9)])
def test_the_server_holds_no_unmasked_table(sizes):
    data = blobs(*sizes)
    frame, length = measure(data), 4 * len(data)
    for seed in range(3):
        played = serve(MUFC(2), data, seed=seed)
        for points, seeds, table in zip(data, played.local, played.uplinks[0], strict=True):
            bare = naive_sums(naive_histogram(points, seeds, frame), length, SMALL)
            assert not set(bare) & set(integers(table))


def received(method, data, monkeypatch, **more):
    """Run a whole simulation and return every number that the server receives, by stage, and the result."""
    heard, exchange, deliver = [], LocalNetwork.exchange, LocalNetwork.deliver

    def record(self, messages):
        n, rows = len(data), np.maximum(messages.rows, 0)
        heard.append([messages.values[i, : rows[i]].copy() for i in range(n)])
        return exchange(self, messages)

    def record_sparse(self, messages):
        heard.append(list(messages.tables.flat()))
        return deliver(self, messages)

    monkeypatch.setattr(LocalNetwork, "exchange", record)
    monkeypatch.setattr(LocalNetwork, "deliver", record_sparse)
    result = p2pkm.simulate(method, None, p2pkm.Shards.from_list(data), **more)
    monkeypatch.undo()
    return heard, result


ONE_POINT = [np.array([[0.3, 0.9]]), np.array([[0.1, 0.4], [0.5, 0.2]]), np.array([[0.8, 0.35], [0.25, 0.7]])]


@pytest.mark.parametrize("seed", range(3))
def test_with_the_box_from_the_set_up_the_server_receives_masked_tables_alone_in_every_stage(seed, monkeypatch):
    heard, result = received(MUFC(2, low=0.0, high=1.0), ONE_POINT, monkeypatch, seed=seed)
    said = [table for exchange in heard for table in exchange if len(table)]
    assert [table.shape for table in said] == [(12, 1)] * 3  # one table of field elements by each client, and no more
    frame = np.zeros(2), np.ones(2), 5, 3
    for points, table in zip(ONE_POINT, said, strict=True):
        assert not set(points.ravel()) & set(table.ravel())
        bare = naive_sums(naive_histogram(points, points[:2], frame), 12, SMALL)
        assert not set(bare) & set(integers(table))
    assert result.summary["raw_points_disclosed"] == 0


def test_without_it_the_server_receives_the_point_of_a_client_that_has_one(monkeypatch):
    heard, result = received(MUFC(2), ONE_POINT, monkeypatch)
    for points, box in zip(ONE_POINT, heard[0], strict=True):
        assert_array_equal(box, np.concatenate((points.min(axis=0), points.max(axis=0))))
    assert result.summary["raw_points_disclosed"] == 1
    assert "a single point the bounds are that point" in " ".join(MUFC.__doc__.split())


def test_a_box_from_the_set_up_is_the_frame_and_costs_no_message():
    data = blobs(12, 30)
    shift, span, m, side = measure(data)
    low, high = float(shift.min()) - 3.0, float((shift + span).max()) + 5.0
    played = serve(MUFC(3, low=low, high=high), data)
    assert played.ledger == (4, 2 * (12 * 8) + 2 * (3 * 2 * 8))  # 2 k' n rows of one limb up, three centroids down
    frame = np.full(2, low), np.full(2, high - low), m, side
    counted = merged([naive_histogram(points, seeds, frame) for points, seeds in zip(data, played.local, strict=True)])
    assert recover(totals(played, SMALL), SMALL) == counted
    assert low <= played.model.min() and played.model.max() <= high


def test_a_seed_outside_the_box_counts_for_the_bin_at_the_edge():
    played = serve(MUFC(2, low=0.0, high=1.0), [[[-7.0], [0.0]], [[1.0], [9.0]]])
    assert recover(totals(played, SMALL), SMALL) == {1: 2, 3: 2}


@each("box", [(0.0, None), (None, 1.0), (1.0, 1.0), (2.0, 1.0), (-np.inf, 1.0), (np.nan, 1.0)])
def test_a_box_that_is_none_is_refused(box):
    with pytest.raises(ExperimentError, match="expected two finite numbers with low < high, or neither"):
        MUFC(2, low=box[0], high=box[1])


def test_the_prime_is_found_once(monkeypatch):
    from p2pkm.methods.server.finite_field import primes

    primes.next_prime.cache_clear()
    tried, find = [], primes.is_prime
    monkeypatch.setattr(primes, "is_prime", lambda number: tried.append(number) or find(number))
    serve(MUFC(2), blobs(9, 8, d=40))
    assert tried and len(tried) == len(set(tried))


@pytest.mark.parametrize("clients", [2, 16])
def test_arithmetic_that_would_take_hours_is_refused_by_the_run_and_by_the_plan(clients):
    shards = p2pkm.Shards.deal(np.zeros((400, 1500)), np.arange(400) % clients)
    with pytest.raises(
        ExperimentError, match=r"estimated time of mufc is .*; expected at most 600 seconds: .* numbers of 6,5\d\d bits"
    ):
        p2pkm.simulate(MUFC(4), None, shards)
    method, run = MUFC(4), RunOutline(Topology.star(clients))
    with pytest.raises(ExperimentError):
        method.check(run, PointCount(clients + 1, 400, 1500))
    for local_k, says in ((2, True), (1, False)):  # a number of seeds of 1 cannot be reduced
        with pytest.raises(ExperimentError) as caught:
            MUFC(4, local_k=local_k, max_seconds=1e-9).check(run, PointCount(clients + 1, 400, 1500))
        assert ("a smaller local_k" in str(caught.value)) == says
    MUFC(4, max_seconds=1e9).check(run, PointCount(clients + 1, 400, 1500))
    method.check(run, PointCount(clients + 1, 3200, 2))
    data = ["--algorithm", "mufc", "--devices", str(clients), "--data", "blobs:features=1500"]
    for ending in (here("plan", *data), here(*data)):
        assert ending.code == 2 and "estimated time of mufc is" in ending.out + ending.err


@given(st.integers(32, 5000), st.integers(1, 2000), st.integers(1, 40), st.integers(1, 40))
def test_the_estimate_grows_with_everything(bits, largest, clients, local_k):
    one = estimate(bits, largest, clients, local_k)
    assert 0 < one <= estimate(bits + 1, largest, clients, local_k) <= estimate(2 * bits, largest, clients + 1, local_k)
    assert one <= estimate(bits, largest, clients, local_k + 1) and one <= estimate(bits, largest + 1, clients, local_k)


@pytest.mark.slow
def test_a_table_alone_is_spread_evenly_over_the_field():
    data, share = blobs(30, 0, 20), np.zeros((3, 8))
    for seed in range(40):
        for i, table in enumerate(serve(MUFC(2), data, seed=seed).uplinks[0]):
            share[i] += np.bincount([8 * number // SMALL for number in integers(table)], minlength=8)
    expected = share.sum() / share.size
    assert (((share - expected) ** 2 / expected).sum(axis=1) < 30.0).all()  # chi-square, 7 degrees of freedom


def test_other_points_move_a_table_by_the_difference_of_their_power_sums_alone():
    before = [[[0.0], [1.0], [0.0]], [[0.5], [0.5], [0.5]], [[0.0], [1.0], [1.0]]]
    after = [before[0], [[1.0], [0.0], [1.0]], before[2]]
    one, other = (serve(MUFC(2), data).uplinks[0] for data in (before, after))
    for i in (0, 2):
        assert_array_equal(one[i], other[i])
    moved = [(b - a) % SMALL for a, b in zip(integers(one[1]), integers(other[1]), strict=True)]
    assert moved == naive_sums({1: 1, 3: -3, 4: 2}, 12, SMALL)  # 0.5 is at 1.5 bins, so in the third


def test_masks_are_differences_of_streams_around_a_ring():
    played = serve(MUFC(2), [np.empty((0, 1)), np.empty((0, 1)), [[1.0], [2.0]]])
    streams = []
    for client in range(3):
        words = plain.philox(np.arange(6), client, played.devices.shared_key, Stream.MASK).ravel().tolist()
        streams.append([(low + (high << 64)) % SMALL for low, high in zip(words[::2], words[1::2], strict=True)])
    for client in (0, 1):
        pairs = zip(streams[client], streams[client + 1], strict=True)
        assert integers(played.uplinks[0][client]) == [(own - following) % SMALL for own, following in pairs]


def test_masks_are_another_for_every_client_and_seed():
    tables = [integers(table) for seed in (0, 1) for table in serve(MUFC(1), [[[1.0]]] * 4, seed=seed).uplinks[0]]
    numbers = [number for table in tables for number in table]
    assert len(set(numbers)) == len(numbers)


def test_a_single_client_cannot_hide():
    played = serve(MUFC(2), [[[0.0], [0.0], [3.0], [3.0]]])
    assert integers(played.uplinks[0][0]) == naive_sums({1: 2, 3: 2}, 4, SMALL)


def test_without_every_table_the_rest_cannot_be_read():
    played = serve(MUFC(2), blobs(9, 9, 9))
    tables, model = played.uplinks[0], np.array([[1.0, 2.0], [np.inf, np.inf]])
    assert_array_equal(MUFC(2).aggregate(played.devices, [tables[0], tables[1][:0], tables[2]], model), model[:1])
    assert_array_equal(MUFC(2).aggregate(played.devices, [], model), model[:1])
    with pytest.raises(UndecodableError, match="expected the total of all parts of the multiset"):
        MUFC(2).aggregate(played.devices, [tables[0], tables[0], tables[2]], model)


def test_when_nobody_has_points_the_model_stays():
    played = serve(MUFC(2), blobs(9, 9))
    empty = replace(played.devices, stored=np.empty((0, 2)), offsets=np.zeros(4, np.int64), point_weights=np.empty(0))
    model = np.array([[1.0, 2.0], [np.inf, np.inf]])
    report = MUFC(2).report(empty, np.full((3, 2, 2), np.inf))
    assert_array_equal(report.rows[:2], 8)
    assert np.isinf(report.local).all()
    assert_array_equal(MUFC(2).aggregate(empty, list(report.values[:2]), model), model[:1])


def test_points_all_alike_are_one_bin():
    played = serve(MUFC(3), [np.full((5, 2), 7.0), np.full((4, 2), 7.0)])
    assert recover(totals(played, SMALL), SMALL) == {1: 9}
    assert [len(seeds) for seeds in played.local] == [1, 1]
    assert (abs(played.model - 7.0) <= 0.5 / 3).all()  # half a bin, a span of 0 counting as 1


def test_fewer_points_than_clusters():
    played = serve(MUFC(5), [[[0.0, 0.0]], [[1.0, 0.0]], np.empty((0, 2))])
    assert len(played.model) == 2
    assert [len(seeds) for seeds in played.local] == [1, 1, 0]


@pytest.mark.parametrize("d", [30, 64])
def test_in_many_dimensions_the_field_is_large(d):
    data = blobs(15, 0, 22, d=d)
    played, frame = serve(MUFC(2), data), measure(data)
    p = next_prime(7**d)
    assert p > 2**84 and played.uplinks[0][0].shape == (12, -(-p.bit_length() // 32))
    assert (played.uplinks[0][0] % 1 == 0).all() and (played.uplinks[0][0] < 2**32).all()
    counted = merged([naive_histogram(points, seeds, frame) for points, seeds in zip(data, played.local, strict=True)])
    assert recover(totals(played, p), p) == counted
    assert played.model.shape == (2, d)


def test_one_bin_ends_within_half_its_width():
    for d in (1, 2, 40):
        devices, _ = clients_of(blobs(70, 30, d=d))
        places = np.linspace(0.0, 1.0, d)
        alike = replace(devices, stored=np.broadcast_to(places, (100, d)).copy())
        tables = MUFC(1).report(alike, np.full((3, 1, d), np.inf)).values[:2]
        model = MUFC(1).aggregate(devices, list(tables), np.full((1, d), np.inf))
        assert (abs(model - np.round(places, 1)) < 0.025).all()  # means of 100 uniform points, each within 0.05


def test_points_count_once_whatever_their_weight():
    data, weights = blobs(20, 10), np.random.default_rng(0).uniform(0.5, 1.5, 30)
    weights *= 30 / weights.sum()
    heavy, plainly = serve(MUFC(2), data, weights=weights), serve(MUFC(2), data)
    assert_array_equal(heavy.model, plainly.model)
    light = serve(MUFC(2), data, weights=np.full(30, 0.001))  # 30 points in a grid of 2 bins per coordinate
    assert sum(recover(totals(light, SMALL), SMALL).values()) == 30


def test_many_points_at_the_server():
    rng = np.random.default_rng(3)
    data = [rng.normal(center, 0.1, (100_000, 1)) for center in (0.0, 5.0)]
    model = np.sort(serve(MUFC(2, local_k=1, server_n_init=1), data).model[:, 0])
    assert_allclose(model, [0.0, 5.0], atol=0.6)


def test_a_client_says_the_same_in_any_batch_and_with_plain_kernels():
    data = blobs(9, 0, 14, 5)
    method, (devices, _) = MUFC(3, local_k=2), clients_of(data)
    devices = replace(devices, stored=devices.points / 16 + 0.5)
    model = np.full((5, 3, 2), np.inf)
    whole = method.report(devices, model)
    for i in range(5):
        own = slice(devices.offsets[i], devices.offsets[i + 1])
        alone = replace(
            devices, ids=devices.ids[i : i + 1], keys=devices.keys[i : i + 1], stored=devices.stored[own],
            point_weights=devices.point_weights[own], offsets=np.array([0, own.stop - own.start]), kernels=plain,
        )  # fmt: skip
        report = method.report(alone, model[:1])
        for part, of_all in zip(report, whole, strict=True):
            assert_array_equal(part[0], of_all[i])
    assert_array_equal(serve(method, data).model, serve(method, data, kernels=plain).model)


@pytest.mark.parametrize("options", [{"k": 0}, {"k": 2, "local_k": 0}, {"k": 2, "server_n_init": 0}, {"k": 1.5}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ExperimentError, match="expected a whole number of at least 1"):
        MUFC(**options)
