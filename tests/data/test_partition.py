"""Partitions: every point is dealt once, sizes and mixtures are as promised, errors say what to do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.spec import parameters, parse
from p2pkm.data import partition as p
from p2pkm.data.partition import label_skew as skew
from p2pkm.data.partition.distance_skew import draw_owners, redraw_empty
from p2pkm.data.random import generator
from p2pkm.data.shards import Shards
from p2pkm.data.sources import grid16
from p2pkm.data.table import Table
from tests.support.each import each

seeds = st.integers(0, 2**32)


def table(m: int, classes: int, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, m)
    return Table(rng.normal(size=(m, 3)), y, classes, np.arange(m) % 3, None, y)


@given(
    name=st.sampled_from(["iid", "blocks", "dirichlet", "beta", "by-label", "quantity", "mufc", "dominant"]),
    m=st.integers(1, 60),
    n=st.integers(1, 12),
    classes=st.integers(1, 6),
    minimum=st.integers(0, 4),
    seed=seeds,
)
def test_every_point_has_one_device_and_each_device_its_minimum(name, m, n, classes, minimum, seed):
    data = table(m, classes, seed)
    if m < n * minimum:
        with pytest.raises(DataError, match=f"{m} points cannot give {n} devices a minimum of {minimum} each"):
            p.PARTITIONS[name](data, n, minimum=minimum, seed=seed)
        return
    device = p.PARTITIONS[name](data, n, minimum=minimum, seed=seed)
    assert device.shape == (m,)
    assert device.dtype == np.int64
    assert device.min() >= 0
    assert np.bincount(device, minlength=n).shape == (n,)
    assert np.bincount(device, minlength=n).min() >= minimum
    np.testing.assert_array_equal(device, p.PARTITIONS[name](data, n, minimum=minimum, seed=seed))


@each("name", ["iid", "dirichlet", "beta", "by-label", "quantity", "mufc"])
def test_the_seed_matters(name):
    data = table(200, 4)
    assert (p.PARTITIONS[name](data, 5, seed=0) != p.PARTITIONS[name](data, 5, seed=1)).any()


def test_keys_of_the_specs():
    assert set(parameters(p.PARTITIONS["dirichlet"])) == {"alpha", "by", "minimum", "seed"}
    assert set(parameters(p.PARTITIONS["beta"])) == {"beta", "miss", "minimum", "seed"}
    assert set(parameters(p.PARTITIONS["by-label"])) == {"labels", "minimum", "seed"}
    assert set(parameters(p.PARTITIONS["mufc"])) == {"local", "minimum", "seed"}
    spec = parse("dirichlet:alpha=0.1,by=device,minimum=2", p.PARTITIONS, "partition")
    assert spec.options == {"alpha": 0.1, "by": "device", "minimum": 2}
    assert parse("mufc:local=none", p.PARTITIONS, "partition").options == {"local": None}
    device = p.PARTITIONS[spec.name](table(60, 3), 6, **spec.options, seed=3)
    np.testing.assert_array_equal(
        device, p.dirichlet(table(60, 3).labels, 6, alpha=0.1, by="device", minimum=2, seed=3)
    )


def test_iid_sizes_differ_by_at_most_one():
    sizes = np.bincount(p.iid(103, 10, seed=4))
    assert sorted(sizes) == [10] * 7 + [11] * 3
    assert (p.iid(103, 10) != np.arange(103) % 10).any()


def test_blocks_are_contiguous_and_the_longer_ones_first():
    np.testing.assert_array_equal(p.blocks(7, 3), [0, 0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(p.blocks(2, 4), [0, 1])
    np.testing.assert_array_equal(p.PARTITIONS["blocks"](table(7, 2), 3), p.blocks(7, 3))


@pytest.mark.parametrize("alpha", [5e-324, 1e-300, 1e-8])
def test_tiny_alpha_gives_each_class_to_one_device(alpha):
    y = np.repeat(np.arange(40), 5)
    device = p.dirichlet(y, 8, alpha=alpha, seed=1)
    homes = [set(device[y == c]) for c in range(40)]
    assert not [home for home in homes if len(home) != 1]
    assert len(set.union(*homes)) == 8
    assert len(set(p.quantity(100, 8, alpha=alpha))) == 1


@pytest.mark.parametrize("alpha", [1e9, 1e308])
def test_huge_alpha_gives_equal_shares(alpha):
    y = np.repeat(np.arange(4), 100)
    for c in range(4):
        assert (np.bincount(p.dirichlet(y, 10, alpha=alpha)[y == c]) == 10).all()
    assert (np.bincount(p.quantity(400, 10, alpha=alpha)) == 40).all()


def test_dirichlet_by_class_has_the_moments_of_the_distribution():
    n, alpha = 4, 0.5
    y = np.repeat(np.arange(3000), 200)
    shares = np.zeros((3000, n))
    np.add.at(shares, (y, p.dirichlet(y, n, alpha=alpha, seed=2)), 1 / 200)
    assert np.abs(shares.mean(axis=0) - 1 / n).max() < 0.02
    variance = (1 / n) * (1 - 1 / n) / (n * alpha + 1)
    assert np.abs(shares.var(axis=0) - variance).max() < 0.1 * variance


@pytest.mark.parametrize("alpha", [5e-324, 0.1, 1.0])
def test_dirichlet_by_device_gives_equal_sizes_and_skewed_mixtures(alpha):
    y = np.repeat(np.arange(5), 41)
    device = p.dirichlet(y, 10, alpha=alpha, by="device", seed=3)
    assert sorted(np.bincount(device)) == [20] * 5 + [21] * 5
    even = p.iid(len(y), 10, seed=3)
    classes = [np.mean([len(set(y[d == i])) for i in range(10)]) for d in (device, even)]
    assert classes[0] < classes[1]


@pytest.mark.slow
def test_dirichlet_by_device_has_the_moments_while_the_pools_last():
    y = np.repeat(np.arange(3), 200_000)
    shares = []
    for seed in range(300):
        device = p.dirichlet(y[::100], 30, alpha=0.7, by="device", seed=seed)
        shares.append(np.bincount(y[::100][device == 0], minlength=3) / 200)
    variance = (1 / 3) * (2 / 3) / (3 * 0.7 + 1)
    assert np.abs(np.mean(shares, axis=0) - 1 / 3).max() < 0.07
    assert np.abs(np.var(shares, axis=0).mean() - variance) < 0.2 * variance


@given(m=st.integers(1, 80), n=st.integers(1, 30), classes=st.integers(1, 6), seed=seeds)
def test_dirichlet_by_device_is_the_plain_loop(m, n, classes, seed):
    y = np.random.default_rng(seed).integers(0, classes, m)
    rng = generator(seed, "dirichlet by device")
    pools = [list(rng.permutation(np.flatnonzero(y == c))) for c in np.unique(y)]
    plain = np.empty(m, np.int64)
    for i in range(n):
        boost, tail = skew.log_gammas(rng, 0.4, len(pools))
        missing = m // n + (i < m % n)
        while missing:
            usable = [c for c, pool in enumerate(pools) if pool]
            drawn = rng.multinomial(missing, skew.normalize_shares(boost[usable], tail[usable], 0.4))
            for c, count in zip(usable, drawn, strict=True):
                taken = [pools[c].pop() for _ in range(min(count, len(pools[c])))]
                plain[taken] = i
                missing -= len(taken)
    np.testing.assert_array_equal(p.dirichlet(y, n, alpha=0.4, by="device", seed=seed), plain)


def test_dirichlet_takes_names_and_reads_the_options():
    names = np.array(["b", "a"] * 10)
    numbers = np.array([1, 0] * 10)
    np.testing.assert_array_equal(p.dirichlet(names, 3), p.dirichlet(numbers, 3))
    with pytest.raises(ExperimentError, match=r"by is 'klass'. Did you mean 'class'"):
        p.dirichlet(numbers, 3, by="klass")
    for alpha in (0.0, -1.0, float("nan"), float("inf"), True, "1"):
        with pytest.raises(ExperimentError, match=r"alpha is .*; expected a finite number above 0"):
            p.dirichlet(numbers, 3, alpha=alpha)
    for n in (0, -1, 2.0, True):
        with pytest.raises(ExperimentError, match=r"n is .*; expected a whole number of at least 1"):
            p.dirichlet(numbers, n)
    with pytest.raises(ExperimentError, match="seed is -1"):
        p.dirichlet(numbers, 3, seed=-1)
    with pytest.raises(ExperimentError, match="minimum is -1"):
        p.dirichlet(numbers, 3, minimum=-1)
    with pytest.raises(DataError, match="labels are missing at row 1"):
        p.dirichlet([0.0, np.nan], 3)


@pytest.mark.parametrize("name", ["dirichlet", "by-label"])
def test_labels_are_asked_for(name):
    with pytest.raises(
        DataError,
        match=f"partition={name!r} requires the label.*Name their column with label_column, or use partition='iid'",
    ):
        p.PARTITIONS[name](Table(np.zeros((4, 2))), 2)


@pytest.mark.parametrize("miss", ["closest", "redraw"])
def test_beta_has_the_published_odds(miss):
    places, beta, m = np.array([0.0, 4.0]), 1.0, 40_000
    points = np.full((m, 1), 1.0)
    rng = np.random.default_rng(7)
    device = draw_owners(rng, points, places[:, None], beta, miss == "redraw")
    near, far = 1 - np.exp(-beta / np.array([1.0, 3.0]))
    hit_near = near * (1 - far) + near * far / 2
    nobody = (1 - near) * (1 - far)
    expected = hit_near + nobody if miss == "closest" else hit_near / (1 - nobody)
    assert abs((device == 0).mean() - expected) < 0.01


def test_beta_redraw_ends_at_the_closest_where_hits_are_hopeless():
    points = np.full((5000, 1), 1.0)
    device = draw_owners(np.random.default_rng(0), points, np.array([[9.0], [3.0], [-5.0]]), 1e-12, True)
    assert (device == 1).all()
    rate = np.full((20_000, 2), 1e-3 * np.log(2) / 2)
    assert abs((~redraw_empty(np.random.default_rng(0), rate).any(axis=1)).mean() - 0.5) < 0.02


def test_beta_redraw_is_a_draw_given_a_hit():
    rate = np.array([0.5, 0.1, 1.2])
    hits = redraw_empty(np.random.default_rng(1), np.tile(rate, (100_000, 1)))
    odds = 1 - np.exp(-rate)
    patterns = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)], dtype=bool)
    weights = np.where(patterns, odds, 1 - odds).prod(axis=1)
    weights[0] = 0
    seen = np.array([(hits == pattern).all(axis=1).mean() for pattern in patterns])
    assert np.abs(seen - weights / weights.sum()).max() < 0.006


def test_beta_a_point_at_a_client_is_seen_and_ties_go_to_the_lowest():
    device = draw_owners(np.random.default_rng(0), np.zeros((50, 2)), np.array([[1e6, 0], [0, 0]]), 1e-9, False)
    assert (device == 1).all()
    device = draw_owners(np.random.default_rng(0), np.zeros((50, 2)), np.array([[1, 0], [-1, 0]]), 1e-12, False)
    assert (device == 0).all()


def test_beta_in_many_features():
    points = np.random.default_rng(0).normal(size=(300, 20))
    assert set(p.beta(points, 4, beta=100.0, seed=1)) == {0, 1, 2, 3}


def test_beta_box_and_options():
    points, _ = grid16(points=5)
    far = p.beta(points, 3, (np.full(2, 50.0), np.full(2, 60.0)), seed=1)
    assert (far != p.beta(points, 3, seed=1)).any()
    inside = p.PARTITIONS["beta"](Table(points, box=(np.full(2, 50.0), np.full(2, 60.0))), 3, seed=1)
    np.testing.assert_array_equal(far, inside)
    with pytest.raises(DataError, match="expected a lower and an upper corner of 2 numbers each"):
        p.beta(points, 3, (np.zeros(3), np.ones(3)))
    with pytest.raises(DataError, match="expected a lower and an upper corner"):
        p.beta(points, 3, (np.ones(2), np.zeros(2)))
    with pytest.raises(ExperimentError, match="beta is 0"):
        p.beta(points, 3, beta=0)
    with pytest.raises(ExperimentError, match="miss is 'nearest'"):
        p.beta(points, 3, miss="nearest")


def test_small_beta_skews_more():
    points, y = grid16(points=200)
    mixed = [
        len(np.unique(np.stack([p.beta(points, 5, beta=b, seed=3), y]), axis=1).T) for b in (0.001, 10.0)
    ]  # fmt: skip
    assert mixed[0] < mixed[1] == 80


def test_by_label_deals_shards_of_sorted_labels():
    y = np.tile(np.arange(10), 20)
    device = p.by_label(y, 10, labels=2, seed=0)
    assert (np.bincount(device) == 20).all()
    assert max(len(set(y[device == i])) for i in range(10)) == 2
    assert not [i for i in range(10) if len(set(y[p.by_label(y, 10, labels=1) == i])) != 1]
    with pytest.raises(ExperimentError, match="labels is 0; expected a whole number of at least 1"):
        p.by_label(y, 10, labels=0)


def test_quantity_has_the_moments_of_the_distribution():
    sizes = np.array([np.bincount(p.quantity(1000, 4, seed=s), minlength=4) for s in range(2000)]) / 1000
    assert np.abs(sizes.mean(axis=0) - 0.25).max() < 0.02
    variance = 0.25 * 0.75 / (4 * 0.5 + 1)
    assert np.abs(sizes.var(axis=0) - variance).max() < 0.1 * variance


def test_mufc_takes_stored_order_from_few_clusters():
    clusters = np.repeat([0, 1, 2], 40)
    for seed in range(20):
        device = p.mufc(clusters, 4, local=1, seed=seed)
        sizes = np.bincount(device, minlength=4)
        for i in range(3):
            assert len(set(clusters[device == i])) == 1
            assert sizes[i] in (29, 11)  # randint(30 // 1 - 1, 30) is 29, or what is left of the cluster
        for c in range(3):
            first = [device[clusters == c].tolist().index(i) for i in dict.fromkeys(device[clusters == c])]
            assert first == sorted(first)
            runs = 1 + (np.diff(device[clusters == c]) != 0).sum()
            assert runs == len(set(device[clusters == c]))
    device = p.mufc(clusters, 4, seed=1)
    assert (np.bincount(device)[:3] <= 30).all()
    assert (p.mufc(clusters, 1) == 0).all()
    assert (p.mufc(np.zeros(2, dtype=int), 5) == 4).all()
    with pytest.raises(ExperimentError, match="local is 0"):
        p.mufc(clusters, 4, local=0)
    with pytest.raises(DataError, match=r"partition='mufc' requires Table\.clusters"):
        p.PARTITIONS["mufc"](Table(np.zeros((4, 2))), 2)


def test_column_numbers_and_names():
    np.testing.assert_array_equal(p.column([2, 0, 1, 2]), [2, 0, 1, 2])
    np.testing.assert_array_equal(p.column([2.0, 0.0, 1.0]), [2, 0, 1])
    np.testing.assert_array_equal(p.column(["f9", "a", "f10", "a"]), [2, 0, 1, 0])
    np.testing.assert_array_equal(p.column(["10", "9", "100"]), [1, 0, 2])
    np.testing.assert_array_equal(p.PARTITIONS["column"](Table(np.zeros((2, 1)), device=np.array([1, 0])), 2), [1, 0])


def test_column_takes_codes_as_names_and_numbers_without_points_as_devices():
    np.testing.assert_array_equal(p.column([309, 101, 205, 309]), [2, 0, 1, 2])
    np.testing.assert_array_equal(p.column([0, 2, 3]), [0, 1, 2])
    np.testing.assert_array_equal(p.column([0, 2, 3], 4), [0, 2, 3])
    np.testing.assert_array_equal(p.column([0.0, 0.5]), [0, 1])


@pytest.mark.parametrize(
    ("values", "n", "message"),
    [
        ([0, 1, 2], 5, "names 3 devices; expected 5. Use devices=3"),
        ([101, 205], 5, "names 2 devices; expected 5. Use devices=2"),
        (["a", None], None, "devices are missing at row 1"),
        ([[0, 1]], None, r"devices have shape \(1, 2\)"),
    ],
)
def test_column_errors(values, n, message):
    with pytest.raises(DataError, match=message):
        p.column(values, n)


def test_column_is_asked_for():
    with pytest.raises(DataError, match=r"partition='column' requires a column.*device_column"):
        p.PARTITIONS["column"](Table(np.zeros((2, 1))), 2)


def test_fill_takes_from_the_largest_for_the_lowest():
    before = np.array([1, 1, 1, 3, 3, 3, 3])
    after = p.fill(before, 4, 1, seed=0)
    np.testing.assert_array_equal(before, [1, 1, 1, 3, 3, 3, 3])
    moved = np.flatnonzero(after != before)
    assert len(moved) == 2
    # device 0 takes from 3 (the largest, 4 points); then 1 and 3 tie at three, so device 2 takes from 1
    assert before[moved[after[moved] == 0]] == [3]
    assert before[moved[after[moved] == 2]] == [1]
    assert {tuple(p.fill(before, 4, 1, seed=s)) for s in range(50)} == {
        tuple(np.where(np.arange(7) == a, 0, np.where(np.arange(7) == b, 2, before)))
        for a in (3, 4, 5, 6)
        for b in (0, 1, 2)
    }


def fill_one_by_one(device, n, minimum, seed):
    dealt, rng = device.copy(), generator(seed, "fill")
    own = [list(np.flatnonzero(device == i)) for i in range(n)]
    while minimum and (taker := min((i for i in range(n) if len(own[i]) < minimum), default=None)) is not None:
        giver = max(range(n), key=lambda i: (len(own[i]), -i))
        drawn = int(rng.integers(len(own[giver])))
        row, own[giver][drawn] = own[giver][drawn], own[giver][-1]
        own[giver].pop()
        own[taker].append(row)
        dealt[row] = taker
    return dealt


@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=9), minimum=st.integers(0, 3), seed=seeds)
def test_fill_is_the_plain_loop(sizes, minimum, seed):
    before = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    if len(before) < len(sizes) * minimum:
        return
    plain = np.array(sizes)
    while plain.min() < minimum:
        plain[np.argmax(plain)] -= 1
        plain[np.argmax(plain < minimum)] += 1
    after = p.fill(before, len(sizes), minimum, seed)
    np.testing.assert_array_equal(after, fill_one_by_one(before, len(sizes), minimum, seed))
    np.testing.assert_array_equal(np.bincount(after, minlength=len(sizes)), plain)
    assert (after != before).sum() == np.maximum(minimum - np.array(sizes), 0).sum()


def test_fill_says_how_many_points_it_needs():
    with pytest.raises(
        DataError, match="5 points cannot give 3 devices a minimum of 2 each; expected at least 6 points"
    ):
        p.fill([0] * 5, 3, 2)
    np.testing.assert_array_equal(np.bincount(p.fill([0] * 6, 3, 2)), [2, 2, 2])


@pytest.mark.parametrize("alpha", [None, 0.1])
def test_one_device_has_most_points(alpha):
    y = np.arange(400) % 4
    device = p.dominant(y, 8, share=0.75, alpha=alpha, seed=3)
    sizes = np.bincount(device, minlength=8)
    assert sizes.max() == 300 and sizes.sum() == 400
    others = np.bincount(y[device != sizes.argmax()])
    assert others.sum() == 100 and others.min() > 10  # the share is drawn from all classes
    rest = np.delete(sizes, sizes.argmax())
    assert rest.max() - rest.min() <= 1 if alpha is None else rest.max() > 2 * 100 / 7
    assert not np.array_equal(device, p.dominant(y, 8, share=0.75, alpha=alpha, seed=4))
    for share in (0.0, 1.0, 2.0):
        with pytest.raises(ExperimentError, match="share"):
            p.dominant(y, 8, share=share)


def test_points_that_are_copied_in_several_blocks_keep_their_order(monkeypatch):
    monkeypatch.setattr("p2pkm.core.sorting._BLOCK", 16 * 7)
    rng = np.random.default_rng(0)
    points, device = rng.normal(size=(101, 3)), rng.integers(0, 5, 101)
    shards = Shards.deal(points, device)
    np.testing.assert_array_equal(shards.points, points[np.argsort(device, kind="stable")])
