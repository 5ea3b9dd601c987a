"""FedDP-KMeans: a naive twin on the pooled points, what one point changes, the budget, and the slip of its code."""

import math
import tracemalloc
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr
from sklearn.cluster import KMeans

import p2pkm
from p2pkm.kernels import reference
from p2pkm.methods.building_blocks import private_releases as releases
from p2pkm.methods.building_blocks.gdp import epsilon_of, mu_of
from p2pkm.methods.server import feddp
from p2pkm.methods.server.feddp import FedDPState, Phase
from p2pkm.metrics.closing_rows import format_privacy, format_published
from tests.support.each import each
from tests.support.run_cli import here, ranks, there
from tests.support.sampling import thin
from tests.support.server import clients_of

FedDP = partial(p2pkm.FedDPKMeans, noise_seed=0)


def draw(k, d, n=5, m=150, seed=0):
    """Draw points of n clients around k distant centers within a radius of 20; client 1 has no points."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(k, d))
    centers *= 12.0 / np.linalg.norm(centers, axis=1)[:, None]
    data = [centers[rng.integers(0, k, m)] + 0.5 * rng.normal(size=(m, d)) for _ in range(n)]
    data[1] = data[1][:0]
    return data


# --- a naive twin


def nearest(points, rows):
    return ((points[:, None] - rows) ** 2).sum(axis=2).argmin(axis=1)


def shorten(points, radius):
    return np.array([point * min(1.0, radius / max(np.linalg.norm(point), 1e-300)) for point in points])


class Seen(NamedTuple):
    """Draws and choices of the server: noise of each sum in units, received points, basis, candidates, centers."""

    noises: list
    held: np.ndarray
    basis: np.ndarray
    candidates: np.ndarray
    centers: np.ndarray


def twin(data, method, seen):
    """Compute the centroids from all points at once, with the noise and the random candidates of a run.

    Signs of eigenvectors and the order of the centers, which the noise of their rows depends on, are those of the run.
    """
    X = shorten(np.concatenate(data) - method.center, method.radius)
    k, d, R = method.k, X.shape[1], method.radius
    replaced, left, basis = method.relation == "replace", list(seen.noises), np.eye(d)

    def noisy(total, unit):
        return (total + left.pop(0).reshape(total.shape)) * unit

    if d > k:
        unit = 2.0 ** math.floor(math.log2(R / (1024 * math.sqrt(d))))
        integers = np.rint(X / unit)
        matrix = np.zeros((d, d))
        matrix[np.triu_indices(d)] = noisy((integers.T @ integers)[np.triu_indices(d)], unit**2)
        leading = np.linalg.eigh(matrix + np.triu(matrix, 1).T)[1][:, ::-1][:, :k].T
        basis = leading * np.sign((leading * seen.basis).sum(axis=1))[:, None]
        assert_allclose(basis, seen.basis, atol=1e-9)
    held = shorten(seen.held - method.center, R) @ basis.T if len(seen.held) else np.zeros((0, len(basis)))
    assert_allclose(seen.candidates[: len(held)], held, atol=1e-9)
    candidates, places = seen.candidates, X @ basis.T
    D = math.sqrt(2.0) if replaced else 1.0
    unit = 2.0 ** math.floor(math.log2(D / 4096))
    counts = noisy(np.rint(1.0 / unit) * np.bincount(nearest(places, candidates), minlength=len(candidates)), unit)
    share = 0.1 if d > k else 0.1 / 0.8
    used = counts > 2.0 * (D + unit) / (math.sqrt(share) * method.mu)
    assert used.sum() >= k
    model = KMeans(k, n_init=20, random_state=0).fit(candidates[used], sample_weight=np.maximum(counts[used], 1.0))
    chosen = model.cluster_centers_[nearest(seen.centers, model.cluster_centers_)]
    assert_allclose(chosen, seen.centers, atol=1e-9)
    centers, labels = chosen @ basis, nearest(places, chosen)
    a = R * math.sqrt(0.5) / d**0.25
    D = max(math.sqrt(2.0) * math.hypot(R, a), 2.0 * R) if replaced else math.hypot(R, a)
    unit = 2.0 ** math.floor(math.log2(D / (4096 * math.sqrt(d + 1))))
    for step in range(1 + method.steps):
        table = np.zeros((k, d + 1))
        for row, label in zip(np.rint(X / unit), labels, strict=True):
            table[label] += [*row, np.rint(a / unit)]
        table = noisy(table, unit)
        counts = table[:, -1] / (np.rint(a / unit) * unit)
        share = 0.7 if d > k else 0.7 / 0.8
        share *= 1.0 if not method.steps else 0.25 if step == 0 else 0.75 / method.steps
        is_read = counts > 2.0 * (D + math.sqrt(d + 1) * unit) / (math.sqrt(share) * method.mu) / a
        means = shorten(table[:, :-1] / np.maximum(counts, 1.0)[:, None], R)
        centers = np.where(is_read[:, None], means, centers)
        labels = nearest(X, centers)
    assert not left
    return centers + method.center


def record(monkeypatch, method, data):
    """Run; return the result and what the server drew and chose."""
    noises, held, states = [], [], []
    plain, place, read = feddp.draw_noise, p2pkm.FedDPKMeans._place_candidates, p2pkm.FedDPKMeans.read_answer

    def keep_noise(*arguments):
        noises.append(plain(*arguments))
        return noises[-1]

    def keep_place(self, moments, sample, devices):
        held.append(sample)
        return place(self, moments, sample, devices)

    def keep_read(self, *arguments):
        states.append(read(self, *arguments))
        return states[-1]

    with monkeypatch.context() as during:
        during.setattr(feddp, "draw_noise", keep_noise)
        during.setattr(p2pkm.FedDPKMeans, "_place_candidates", keep_place)
        during.setattr(p2pkm.FedDPKMeans, "read_answer", keep_read)
        result = p2pkm.simulate(method, None, p2pkm.Shards.from_list(data), baselines=False)
    first, second = (states[number] for number in range(2))
    return result, Seen(noises, held[0], first.basis[0], first.origins[0], second.origins[0])


MUCH = {"steps": 3, "relation": "replace", "server_points": 6, "center": 1.5}


@pytest.mark.parametrize(("k", "d", "options"), thin([
    (3, 5, {}), (3, 5, {"steps": 0, "server_points": 6}), (3, 5, MUCH), (4, 2, {}), (4, 2, MUCH), (3, 3, {"steps": 0}),
], 3), ids=str)  # fmt: skip
def test_it_computes_what_the_pooled_points_and_the_noise_give(k, d, options, monkeypatch):
    method, data = FedDP(k, epsilon=20.0, radius=18.0, **options), draw(k, d)
    result, seen = record(monkeypatch, method, data)
    pooled, number = np.concatenate(data), options.get("server_points", 0)
    assert len(np.unique(seen.held, axis=0)) == len(seen.held) == 4 * -(-k * number // 5)  # one client has no points
    assert all((pooled == row).all(axis=1).any() for row in seen.held)
    draws = np.linalg.norm(seen.candidates[len(seen.held) :], axis=1)
    assert len(draws) == k * (10 if number else 100)
    assert 0.8 * 18.0 < draws.max() <= 18.0 + 1e-9
    assert_allclose(result.centroids[0], twin(data, method, seen), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", [1, 2])  # of seed 0 no candidate near this point is chosen
def test_a_cluster_of_one_point_is_that_point(seed):
    many = np.random.default_rng(seed).normal(0.0, 0.5, (60, 2))
    shards = p2pkm.Shards.from_list([many, np.array([[9.0, 9.0]])])
    method = FedDP(2, epsilon=10000.0, radius=15.0, steps=3)
    centroids = p2pkm.simulate(method, None, shards, seed=seed, baselines=False).server_centroids
    assert np.linalg.norm(centroids - [9.0, 9.0], axis=1).min() < 1.0


# --- what one point changes


def batch(points):
    """Return a batch of clients with one point each, and a server."""
    return clients_of(list(points[:, None]), kernels=reference)[0]


def transcript(method, phase, d, seed=0):
    """Return a state before a phase: random answers of the server before it."""
    rng = np.random.default_rng(seed)
    q = method.k if d > method.k and phase != Phase.MOMENTS else 0
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0][:q]
    rows = 9 if phase == Phase.WEIGHTS else method.k
    width = q if q and phase < Phase.STEP else d
    return basis, rng.normal(size=(rows, width)) * 5.0


def search_worst(method, phase, d, rounds=12):
    """Return the largest change of a sum by a point, or by one point for another, that a search finds, over D."""
    rng, count, pairs = np.random.default_rng(1), 50, method.relation == "replace"
    basis, origins = transcript(method, phase, d)
    release = method.release(phase, d, len(origins))
    points = rng.normal(size=(count, 2, d)) * np.exp(rng.uniform(-3.0, 5.0, (count, 2, 1)))
    points[: count // 2, 1] = -points[: count // 2, 0]
    points[0] = np.eye(d)[0] * 1e3  # second moments: the corner where the upper triangle is the integers matrix
    values, best, step = np.zeros(count), 0.0, 1.0
    for _ in range(rounds):
        moved = points * (1.0 + step * 0.1 * rng.normal(size=(count, 2, 1))) + step * rng.normal(size=points.shape)
        devices = batch(moved.reshape(-1, d))
        n = len(devices)
        state = FedDPState(None, None, np.repeat(basis[None], n, 0), np.repeat(origins[None], n, 0), None, None)
        tables = method.local_table(devices, state, phase, release)[:-1].reshape(2 * count, -1)
        changes = (tables / releases.noise_scale(release)).reshape(count, 2, -1)
        change = changes[:, 0] - changes[:, 1] if pairs else changes[:, 0]
        changed = np.sqrt((change**2).sum(axis=1))
        is_better = changed >= values
        points[is_better], values[is_better] = moved[is_better], changed[is_better]
        best, step = max(best, float(values.max())), step * 0.9
    return best * release.grain.unit / release.grain.sensitivity


@pytest.mark.parametrize(("phase", "relation", "d"), thin(product(list(Phase), ["add", "replace"], [2, 6]), 3))
@pytest.mark.sample(3)
def test_no_point_that_a_search_finds_changes_a_sum_by_more_than_its_sensitivity(phase, relation, d):
    method = FedDP(3, epsilon=1.0, radius=10.0, relation=relation)
    if phase == Phase.MOMENTS and d == 2:
        pytest.skip("not projected")
    worst = search_worst(method, phase, d)
    assert (0.97 if relation == "add" else 0.8) < worst <= 1.0  # the bound is nearly met


def test_the_published_sensitivity_of_second_moments_is_found_to_be_too_small():
    method = FedDP(3, epsilon=1.0, radius=10.0)
    release = method.release(Phase.MOMENTS, 6)
    assert release.grain.sensitivity == pytest.approx(10.0**2, rel=2e-3)
    assert search_worst(method, Phase.MOMENTS, 6) * release.grain.sensitivity > 9.5 * 10.0


# --- the budget


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize(("k", "d"), [(4, 2), (4, 9), (10, 100)])
@pytest.mark.parametrize("relation", ["add", "replace"])
def test_all_of_mu_is_spent_and_no_more(k, d, steps, relation):
    method = FedDP(k, epsilon=2.0, radius=30.0, steps=steps, relation=relation)
    spent = 0.0
    for phase in method.shares(d):
        ratio = method.release(phase, d).grain.sensitivity / method.noise(phase, d)
        spent += ratio**2 * (steps if phase == Phase.STEP else 1)
    assert math.sqrt(spent) == pytest.approx(mu_of(2.0, 1e-6), rel=1e-12)
    assert epsilon_of(math.sqrt(spent) * (1 - 1e-12), 1e-6) <= 2.0


@pytest.mark.parametrize("d", [6, pytest.param(2, marks=pytest.mark.slow)])
def test_the_server_adds_noise_of_the_standard_deviation_to_every_sum(d, monkeypatch):
    """And no client does: a run without points shows it."""
    by_sum = {}
    for seed in range(20):
        method = p2pkm.FedDPKMeans(3, epsilon=1.0, radius=10.0, steps=2, noise_seed=seed)
        _, seen = record(monkeypatch, method, [np.ones((4, d)), np.zeros((0, d))])
        for number, noise in enumerate(seen.noises):
            assert len(noise) == 1
            by_sum.setdefault(number, []).append(noise.ravel())
    phases = [*method.shares(d), Phase.STEP]
    assert len(by_sum) == len(phases)
    for number, phase in enumerate(phases):
        release = method.release(phase, d)
        drawn = np.array(by_sum[number]) * release.grain.unit / releases.noise_scale(release)
        assert drawn.std() == pytest.approx(method.noise(phase, d), rel=0.25)
        assert len({noise.tobytes() for noise in by_sum[number]}) == 20
    correlation = np.corrcoef(np.ravel(by_sum[len(phases) - 1]), np.ravel(by_sum[len(phases) - 2]))[0, 1]
    assert abs(correlation) < 0.25  # of two steps


def test_noise_comes_from_the_operating_system_without_a_seed():
    data = draw(3, 2, m=40)
    runs = [
        p2pkm.simulate(p2pkm.FedDPKMeans(3, epsilon=1.0, radius=18.0), None, p2pkm.Shards.from_list(data), seed=0)
        for _ in range(2)
    ]
    assert (runs[0].centroids != runs[1].centroids).any()


def test_the_composition_is_that_of_dp_accounting():
    accounting = pytest.importorskip("dp_accounting", reason="pip install p2pkm[dp-accounting]")
    method = FedDP(10, epsilon=2.0, radius=11.0, steps=2)
    events = []
    for phase in method.shares(100):
        ratio = method.noise(phase, 100) / method.release(phase, 100).grain.sensitivity
        events += [accounting.GaussianDpEvent(ratio)] * (2 if phase == Phase.STEP else 1)
    accountant = accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(accounting.ComposedDpEvent(events))
    assert accountant.get_epsilon(1e-6) == pytest.approx(2.0, abs=0.01)


# --- the slip of the published code


def composed_epsilon(mu, budgets, delta):
    """Compute the epsilon of normal noise with mu together with Laplace noise of some budgets, by convolution.

    The privacy loss of Laplace noise with budget e is e with probability 1/2, -e with exp(-e) / 2, and has the density
    exp((x - e) / 2) / 4 in between.
    """
    step = 1e-3
    loss, low = np.ones(1), 0.0
    for budget in budgets:
        edges = np.arange(-round(budget / step), round(budget / step) + 1) * step
        below = np.concatenate(([0.0], np.diff(np.exp((edges - budget) / 2.0)) / 2.0))
        below[0] += math.exp(-budget) / 2.0
        below[-1] += 0.5
        loss, low = np.convolve(loss, below), low - budget
    values = low + step * np.arange(len(loss))

    def delta_of(epsilon):
        rest = epsilon - values
        return float(loss @ (ndtr(mu / 2 - rest / mu) - np.exp(rest) * ndtr(-mu / 2 - rest / mu)))

    first, last = 0.0, 60.0
    while last - first > 1e-4:
        middle = (first + last) / 2.0
        first, last = (first, middle) if delta_of(middle) <= delta else (middle, last)
    return last


def published_run(factor):
    """Return mu of the normal noise, and the budgets of the Laplace noise, of the configuration of the mixtures.

    factor: sensitivity of the second moments over the one that their noise is scaled to.
    """
    return math.sqrt((factor * mu_of(1.0, 1e-6)) ** 2 + 2 * mu_of(0.5, 1e-6) ** 2), (1.0, 0.5, 0.5)


def test_the_default_run_of_the_published_code_spends_five_times_the_epsilon_that_it_prints():
    """Stored values: dp-accounting 0.6.0, privacy loss distributions with an interval of 1e-3."""
    assert composed_epsilon(*published_run(1.0), 1e-6) == pytest.approx(3.1327, abs=0.01)
    assert composed_epsilon(*published_run(11.0**2 / 11.0), 1e-6) == pytest.approx(16.487, abs=0.01)


def test_its_epsilon_is_that_of_dp_accounting():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason="pip install p2pkm[dp-accounting]")
    for factor in (1.0, 11.0):
        mu, budgets = published_run(factor)
        total = pld.from_gaussian_mechanism(1.0 / mu, value_discretization_interval=1e-3)
        for budget in budgets:
            total = total.compose(pld.from_laplace_mechanism(1.0 / budget, value_discretization_interval=1e-3))
        assert composed_epsilon(mu, budgets, 1e-6) == pytest.approx(total.get_epsilon_for_delta(1e-6), abs=0.01)


# --- the program


def test_points_of_the_server_help_and_count_as_disclosed():
    data = draw(6, 20, n=8, m=250)
    shards = p2pkm.Shards.from_list(data)
    without = p2pkm.simulate(FedDP(6, epsilon=4.0, radius=20.0), None, shards)
    with_points = p2pkm.simulate(FedDP(6, epsilon=4.0, radius=20.0, server_points=20), None, shards)
    assert without.summary["raw_points_disclosed"] == 0
    assert with_points.summary["raw_points_disclosed"] == 7 * 15
    assert with_points.summary["ratio_mean"] < 1.1 < without.summary["ratio_mean"]


def test_its_runs_count_in_a_privacy_budget_unless_the_server_got_points():
    data = p2pkm.Shards.from_list(draw(3, 2, m=20))
    plain, with_points = (
        p2pkm.simulate(p2pkm.FedDPKMeans(3, epsilon=1.0, radius=18.0, **options), None, data, baselines=False)
        for options in ({}, {"server_points": 2})
    )
    budget = p2pkm.privacy_budget([plain])
    assert (budget.trust, budget.mu, budget.epsilon) == ("server", mu_of(1.0, 1e-6), pytest.approx(1.0))
    # Above 250,000 points disclosed points are not counted.
    uncounted = replace(with_points, summary=with_points.summary | {"raw_points_disclosed": None})
    for run in (with_points, uncounted):
        with pytest.raises(p2pkm.DataError, match=r"points at the server.*server_points=2"):
            p2pkm.privacy_budget([plain, run])
        assert "except for the points of the server" in format_privacy(run.summary)[1]
        assert "points of the server are not protected" in format_published(run.summary)[1]
    with pytest.raises(p2pkm.DataError, match="incomplete or unknown"):
        p2pkm.privacy_budget([replace(plain, summary=plain.summary | {"server_points": None})])


@pytest.mark.parametrize("d", [1, 2])
def test_a_point_at_the_origin_does_not_count_as_a_point_of_the_server(d):
    data = [np.vstack((np.zeros((1, d)), points)) for points in draw(3, d, m=20)]
    run = p2pkm.simulate(p2pkm.FedDPKMeans(3, epsilon=1.0, radius=18.0), None, p2pkm.Shards.from_list(data))
    # A message holds one number per row, so with one feature a zero of the sums looks like the point.
    assert bool(run.summary["raw_points_disclosed"]) is (d == 1)
    assert p2pkm.privacy_budget([run]).epsilon == pytest.approx(1.0) and "except" not in format_privacy(run.summary)[1]


def test_seeds_with_points_at_the_server_have_no_common_guarantee():
    _, out, _ = here(
        "--algorithm", "feddp:epsilon=4,radius=30,server_points=1", "--devices", 4, "--data", "grid16:points=5",
        "-k", 4, "--seeds", "0-1", "--out", "none", "--no-plot",
    )  # fmt: skip
    assert "2 seeds" in out and "differential privacy" not in out


def test_clients_with_equal_points_give_k_centroids():
    data = [np.ones((30, 2)), np.ones((20, 2)), np.ones((1, 2))]
    for options in ({}, {"server_points": 4}):
        result = p2pkm.simulate(FedDP(3, epsilon=8.0, radius=3.0, **options), None, p2pkm.Shards.from_list(data))
        assert np.isfinite(result.centroids).all()


@pytest.mark.parametrize("phase", [Phase.CENTERS, Phase.STEP])
def test_a_centroid_stays_if_its_count_may_be_noise(phase):
    method = FedDP(3, epsilon=1.0, radius=10.0)
    release, origins = method.release(phase, 4), np.arange(12.0).reshape(3, 4) / 10.0
    basis = np.eye(4)[:3] if phase == Phase.CENTERS else np.zeros((0, 4))
    state = FedDPState(None, None, basis[None], (origins @ basis.T if len(basis) else origins)[None], None, None)
    sd = method.noise(phase, 4) / release.weight  # of a count
    counts = np.array([1.9, 2.1, -3.0]) * sd
    points = release.point_units * release.grain.unit
    values = np.column_stack((np.outer(counts, [1.0, 2.0, 3.0, 4.0]), points * counts))
    moved = method._move(state, phase, values).reshape(3, 4)
    before = origins * [1, 1, 1, phase == Phase.STEP]
    assert_allclose(moved, [before[0], [1.0, 2.0, 3.0, 4.0], before[2]], rtol=1e-9)


def test_the_published_values_are_those_of_the_authors():
    _, out, _ = here(
        "--algorithm", "feddp:epsilon=4,radius=30,noise_seed=0,defaults=paper", "--devices", 8,
        "--data", "grid16:points=60", "-k", 16, "--out", "none", "--verbose",
    )  # fmt: skip
    assert "no guarantee" in out
    assert "320  local points sent unchanged" in out


@each(("options", "message"), [
    ({"epsilon": 0.0}, "feddp:epsilon"),
    ({"radius": -1.0}, "feddp:radius"),
    ({"radius": 1e-300}, "feddp:radius"),
    ({"delta": 1.0}, "feddp:delta is 1.0"),
    ({"center": math.inf}, "feddp:center"),
    ({"center": 1e30}, "Subtract the center"),
    ({"relation": "exchange"}, "feddp:relation"),
    ({"steps": -1}, "feddp:steps"),
    ({"server_points": -1}, "feddp:server_points"),
    ({"noise_seed": -1}, "feddp:noise_seed"),
], ids=str)  # fmt: skip
def test_parameters_out_of_range_are_refused(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        p2pkm.FedDPKMeans(3, **{"epsilon": 1.0, "radius": 5.0} | options)


@pytest.mark.parametrize(("options", "message"), [
    ({"delta": 0.1}, "otherwise one of them may be disclosed"),
    ({"epsilon": 1e9}, "otherwise rounding to integers removes it"),
    ({"epsilon": 1e-14, "delta": 1e-30}, "otherwise integers do not hold it"),
])  # fmt: skip
def test_runs_that_would_break_the_guarantee_are_refused(options, message):
    method = p2pkm.FedDPKMeans(3, **{"epsilon": 1.0, "radius": 5.0} | options)
    with pytest.raises(p2pkm.ExperimentError, match=message):
        p2pkm.simulate(method, None, p2pkm.Shards.from_list([np.ones((30, 2))]))


@pytest.mark.mpi
@pytest.mark.parametrize("count", [2, 3])
def test_the_same_bits_on_ranks(count, tmp_path):
    words = (
        "--algorithm", "feddp:epsilon=4,radius=60,noise_seed=3,server_points=5", "--devices", 7,
        "--data", "blobs:clusters=4,points=80,features=9", "-k", 4, "--no-plot",
    )  # fmt: skip
    assert here(*words, "--out", tmp_path / "one").code == 0
    assert there(*ranks(count), "-m", "p2pkm", *words, "--out", tmp_path / "many").code == 0
    results = [p2pkm.load(tmp_path / name) for name in ("one", "many")]
    assert_array_equal(results[0].centroids, results[1].centroids)
    assert results[0].summary["bytes"] == results[1].summary["bytes"]


@pytest.mark.slow
def test_many_clusters_and_features_need_little_memory():
    data = draw(50, 50, n=4, m=100)
    shards = p2pkm.Shards.from_list(data)
    tracemalloc.start()
    p2pkm.simulate(FedDP(50, epsilon=4.0, radius=60.0, steps=1), None, shards, baselines=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6
