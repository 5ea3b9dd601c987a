"""The second version of GTVMin: optimal matching, normalized losses, guarded passes, against a naive twin."""

from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.methods.building_blocks.optimal_matching import match_rows, optimal_variation
from tests.support.averages import column
from tests.support.each import each
from tests.support.play_rounds import arrange, play, random_links, squared

seeds = st.integers(0, 2**32 - 1)


def matched(mine, theirs, matching):
    """Return the pairs (own row, row of theirs) of a link by trying all."""
    if matching == "nearest":
        apart = squared(mine, theirs)
        pairs = [(int(apart[:, q].argmin()), q) for q in range(len(theirs))]
        return pairs + [(c, int(apart[c].argmin())) for c in range(len(mine))]
    costs = {order: sum(((mine[c] - theirs[q]) ** 2).sum() for c, q in enumerate(order))
             for order in permutations(range(len(theirs)))}  # fmt: skip
    return list(enumerate(min(costs, key=costs.get)))


class Frozen:
    """The objective of one device with all choices made at a table: (6) and its pairs, over its neighbors' tables."""

    def __init__(self, points, scale, table, neighbors, alpha, matching):
        self.points, self.scale = points, scale
        self.labels = squared(points, table).argmin(axis=1) if len(points) else np.zeros(0, int)
        self.pairs = [(c, theirs[q], a) for theirs, a in zip(neighbors, alpha, strict=True)
                      for c, q in matched(table, theirs, matching)]  # fmt: skip

    def value(self, table):
        own = self.scale * sum(((x - table[c]) ** 2).sum() for x, c in zip(self.points, self.labels, strict=True))
        return own + sum(a * ((table[c] - row) ** 2).sum() for c, row, a in self.pairs)

    def minimize(self, table):
        sums, weights = np.zeros_like(table), np.zeros(len(table))
        for x, c in zip(self.points, self.labels, strict=True):
            sums[c] += self.scale * x
            weights[c] += self.scale
        for c, row, a in self.pairs:
            sums[c] += a * row
            weights[c] += a
        return np.array([s / w if w > 0 else old for s, w, old in zip(sums, weights, table, strict=True)])


def twin(data, links, start, rounds, *, alpha, matching, normalize, passes, gamma):
    """Return the centroids after some rounds, and how often the safeguard acted."""
    tables, caught = np.array(start), 0
    near = [sorted([(j, w) for i, j, w in links if i == me] + [(i, w) for i, j, w in links if j == me])
            for me in range(len(data))]  # fmt: skip
    for _ in range(rounds):
        before = tables.copy()
        for i, points in enumerate(data):
            neighbors, strengths = [before[j] for j, _ in near[i]], [alpha * w for _, w in near[i]]
            scale = 1 / len(points) if normalize and len(points) else 1.0
            look = lambda table: Frozen(points, scale, table, neighbors, strengths, matching)  # noqa: B023, E731
            frozen = look(before[i])
            new = first = frozen.minimize(before[i])
            for _ in range(passes - 1):
                new = look(new).minimize(new)
            if frozen.value(new) > frozen.value(before[i]):
                new, caught = first, caught + 1
            tables[i] = before[i] + gamma * (new - before[i])
    return tables, caught


def instance(seed, n=5, k=3):
    rng = np.random.default_rng(seed)
    data = [rng.normal(0, 3, (0 if i == 2 else int(rng.integers(1, 9)), 2)) for i in range(n)]
    return data, random_links(rng, n, connected=True), rng.normal(0, 3, (n, k, 2))


@pytest.mark.slow
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("matching", ["nearest", "optimal"])
def test_the_twin_finds_the_same_and_the_safeguard_acts(matching, normalize):
    total = 0
    for seed in range(8):
        data, links, start = instance(seed)
        if matching == "nearest":  # without points rows may meet, and rounding decides which is nearer
            data[2] = data[0]
        table = arrange(data, links, d=2)
        for passes, gamma in ((1, 1.0), (6, 0.5), (6, 1.0)):
            alpha = 1.5 if normalize else 6.0
            method = p2pkm.GTVMin(3, alpha=alpha, schedule="jacobi", relaxation=gamma, local_steps=passes,
                                  safeguard=True, matching=matching, normalize_losses=normalize)  # fmt: skip
            expected, caught = twin(data, links, start, 4, alpha=alpha, matching=matching, normalize=normalize,
                                    passes=passes, gamma=gamma)  # fmt: skip
            assert_allclose(play(method, table, start, 4)[0][-1], expected, atol=1e-8)
            total += caught
    assert total > 0


@pytest.mark.parametrize("schedule", ["jacobi", "colored", "async"])
def test_one_guarded_pass_is_the_plain_one(schedule):
    data, links, start = instance(3)
    table = arrange(data, links, d=2)
    plain = p2pkm.GTVMin(3, alpha=2.0, schedule="jacobi", relaxation=0.7)
    guarded = p2pkm.GTVMin(3, alpha=2.0, schedule="jacobi", relaxation=0.7, safeguard=True)
    assert_allclose(play(guarded, table, start, 5)[0], play(plain, table, start, 5)[0], atol=1e-12)
    # with one row each both couplings pair the same, optimal counting it once
    twice, once = (p2pkm.GTVMin(1, alpha=a, schedule=schedule, matching=m)
                   for a, m in ((1.0, "nearest"), (2.0, "optimal")))  # fmt: skip
    assert_allclose(play(once, table, start[:, :1], 5)[0], play(twice, table, start[:, :1], 5)[0], atol=1e-12)


def test_an_optimal_matching_by_hand():
    # {0, 0, 5} and {0, 5, 5}: nearest rows see no difference, an optimal matching 25
    table = arrange([column(0), column(0)], [(0, 1)])
    tables = np.array([column(0, 0, 5), column(0, 5, 5)])
    own = table.devices
    links = own.ids, own.indptr, own.indices, own.indices
    assert_array_equal(optimal_variation(tables, *links), [25, 0])
    assert_array_equal(own.kernels.gtv(tables, *links), [0, 0])
    # on a rank with one device of two, what the other sent is in the slot behind the own ones
    part = SimpleNamespace(ids=np.array([0]), indptr=np.array([0, 1]), indices=np.array([7]))
    assert_array_equal(p2pkm.GTVMin(3, matching="optimal").objective.variation(part, tables, np.array([1])), [25])
    assert p2pkm.GTVMin(3).objective.variation(part, tables, np.array([1])) is None


@given(seeds)
def test_both_ends_choose_the_same_pairs_whatever_the_ties(seed):
    rng = np.random.default_rng(seed)
    mine, theirs = (rng.integers(0, 3, (int(rng.integers(1, 6)), 2)).astype(float) for _ in range(2))
    holes = np.insert(mine, rng.integers(0, len(mine) + 1), np.inf, axis=0)
    own, other = match_rows(holes, theirs, first=True)
    back, there = match_rows(theirs, mine, first=False)
    real = np.flatnonzero(holes[:, 0] < np.inf)
    assert set(zip(own, other, strict=True)) == set(zip(real[there], back, strict=True))
    assert len(own) == min(len(mine), len(theirs))
    costs = [sum(((short[c] - long[q]) ** 2).sum() for c, q in enumerate(order))
             for short, long in [sorted((mine, theirs), key=len)]
             for order in permutations(range(len(long)), len(short))]  # fmt: skip
    assert_allclose(((holes[own] - theirs[other]) ** 2).sum(), min(costs))


def test_in_a_tie_both_devices_of_a_link_move_by_the_same_pairs():
    table = arrange([np.zeros((0, 2)), np.zeros((0, 2)), np.ones((1, 2))], [(0, 1)], d=2)
    start = np.array([[[2.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [1.0, 0.0]], [[1.0, 1.0], [9.0, 9.0]]])
    method = p2pkm.GTVMin(2, alpha=1.0, schedule="jacobi", matching="optimal")
    end = play(method, table, start, 1)[0][-1]
    assert_array_equal(end[:2], start[1::-1, ::-1])  # both matchings cost the same; row 0 goes with row 1 at both ends


def test_normalized_losses_make_devices_count_alike():
    data = [column(*[0.0] * 100), column(3)]
    start = np.zeros((2, 1, 1))
    for options, expected in (({}, (100 * 0 + 2 * 0) / 102), ({"normalize_losses": True}, 0.0)):
        method = p2pkm.GTVMin(1, alpha=1.0, schedule="jacobi", **options)
        history, _ = play(method, arrange(data, [(0, 1)]), start, 200)
        end = history[-1].ravel()
        # L_0 w + 2 alpha (w - v) = 0, L_1 (v - 3) + 2 alpha (v - w) = 0
        first = 1.0 if options else 100.0
        system = np.array([[first + 2, -2], [-2, 3.0]])
        assert_allclose(end, np.linalg.solve(system, [0.0, 3.0]), atol=1e-9)
        assert_allclose(history[1][0, 0, 0], expected)


def test_a_run_certifies_them():
    X, y = p2pkm.grid16(points=20, seed=1)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 6, seed=0), devices=6, labels=y)
    for options in ({"matching": "optimal"}, {"normalize_losses": True},
                    {"schedule": "jacobi", "local_steps": 5, "safeguard": True, "matching": "optimal"}):  # fmt: skip
        result = p2pkm.simulate(p2pkm.GTVMin(16, **options), topologies.ring(6), shards, rounds=15)
        assert result.summary["descent"] == "certified"
        assert result.summary["ratio_worst"] < 1.2
    bold = p2pkm.GTVMin(16, schedule="jacobi", local_steps=5, safeguard=True, relaxation=0.6)
    assert not bold.traits.guarantees_descent
    assert p2pkm.GTVMin(16, schedule="jacobi", local_steps=5, safeguard=True).effective_relaxation() == 0.5


@each(
    ("options", "message"),
    [
        ({"matching": "best"}, "unknown matching 'best'"),
        ({"matching": "optimal", "groups": True}, "matching=optimal and groups cannot be combined"),
        ({"matching": "optimal", "robust": "trim"}, "matching=optimal and robust=trim cannot be combined"),
        ({"safeguard": True, "schedule": "jacobi", "swaps": True}, "safeguard and swaps cannot be combined"),
        ({"safeguard": True}, "safeguard cannot be combined with schedule='colored'"),
        (
            {"normalize_losses": True, "update": "as-printed"},
            "normalize_losses and update=as-printed cannot be combined",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        p2pkm.GTVMin(3, **options)
