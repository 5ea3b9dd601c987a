"""The plan of private k-means: what the root computes from totals without noise, and how noise changes it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from p2pkm.kernels import reference
from p2pkm.methods.building_blocks.private_plan import (
    LEAST_CELLS,
    MOST_CELLS,
    MOST_STEPS,
    Draws,
    Plan,
    Total,
    choose_radius,
    lift,
    shrink,
)
from p2pkm.methods.building_blocks.private_releases import (
    RINGS,
    Facts,
    Kind,
    Knowledge,
    as_matrix,
    decode,
    encode,
    moment_release,
    noise_scale,
    radii,
)

DRAWS = Draws(reference, 7)
PLAN = Plan(3, 6, 10.0, "add", 0.5)


def before(kind, plan=PLAN, **facts):
    """Return the knowledge before the first release of a kind."""
    known = next(state for state in plan.outline(LEAST_CELLS, 1) if state.facts.kind == kind)
    return known._replace(facts=known.facts._replace(**facts))


def rows(release, means, counts):
    """Return a total without noise: rows with these mean offsets and numbers of points."""
    counts = np.asarray(counts, np.float64)
    return np.column_stack((np.asarray(means) * counts[:, None], counts * release.point_units * release.grain.unit))


def test_shares_add_up_to_1_for_all_numbers_of_clusters_and_features():
    for k in (1, 2, 3, 10):
        for d in (1, 2, 3, 4, 9, 10, 100, 2000):
            plan = Plan(k, d, 1.0, "add", 0.5)
            assert math.fsum(plan.shares.values()) == pytest.approx(1.0, abs=1e-15)
            assert plan.is_projected == (k > 1 and max(1.5 * (k - 1), 3) < d < 1448)
            little = Plan(k, d, 1.0, "add", 0.5, 3.0)
            assert math.fsum(little.shares.values()) == pytest.approx(1.0, abs=1e-15)
            assert little.is_projected == (k > 1 and max(k - 1, 3) < d < 1448)


def test_the_mean_is_shrunk_by_its_noise_and_stays_in_the_ball():
    release, mean = PLAN.release(PLAN.start()), np.array([3.0, 4.0, 0, 0, 0, 0])
    for sd, factor in ((0.0, 1.0), (50.0, 1 - 4 * (50 / 200) ** 2 / 25)):
        known = PLAN.advance(PLAN.start(), Total(rows(release, [mean], [200]), sd), DRAWS)
        np.testing.assert_allclose(known.mean, factor * mean)
        assert known.facts.size == pytest.approx(10.0 + factor * 5.0) and known.facts.points == 200
    noise = PLAN.advance(PLAN.start(), Total(rows(release, [mean], [200]), 600.0), DRAWS)
    assert not noise.mean.any() and noise.facts.size == 10.0  # the count may be noise
    assert noise.facts.kind == Kind.RINGS


def test_shrinkage_of_james_and_stein():
    vectors = np.array([[3.0, 4.0, 0.0], [0.1, 0.0, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(shrink(vectors, 2.0, 2), [[3 * 0.84, 4 * 0.84, 0.0], [0.0] * 3, [0.0] * 3])
    np.testing.assert_allclose(shrink(vectors, np.array([0.0, 9.0, 9.0]), 2)[0], vectors[0])
    np.testing.assert_array_equal(shrink(vectors, 1e9, 3), vectors)  # without more than two dimensions of noise


def test_the_radius_is_the_smallest_with_few_points_beyond():
    counts = np.zeros(RINGS)
    counts[8], counts[12] = 1000.0, 4.0  # |x| between radius / 4.8 and radius / 4; few further in
    assert choose_radius(counts, 16.0, 0.0, 1004.0) == 4.0
    counts[0] = 5.0  # 0.5 % of all lie outside
    assert choose_radius(counts, 16.0, 0.0, 1009.0) == 4.0
    counts[0] = 6.0
    assert choose_radius(counts, 16.0, 0.0, 1010.0) == 16.0
    assert choose_radius(counts, 16.0, 1e9, 1010.0) == 16.0  # nothing is known


def test_rings_give_the_number_and_the_radii_of_all_and_of_half_of_the_points():
    known = before(Kind.RINGS, size=16.0, points=900.0)
    counts = np.zeros((RINGS, 1))
    counts[[8, 12, 20], 0] = 300.0, 400.0, 300.0
    facts = PLAN.advance(known, Total(counts, 1e-9), DRAWS).facts
    assert (facts.size, facts.reach, facts.kind) == (radii(16.0)[8], radii(16.0)[12], Kind.MOMENTS)
    assert facts.points == pytest.approx(1000.0)
    precise = PLAN.advance(known, Total(counts, 1e9), DRAWS).facts
    assert precise.points == pytest.approx(900.0)  # from the first release alone


@pytest.mark.parametrize(("k", "rank"), [(3, 2), (2, 1)])
def test_the_subspace_of_the_largest_moments_is_found(k, rank):
    plan, rng = Plan(k, 6, 10.0, "add", 0.5), np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    matrix = directions @ np.diag([500.0, 400.0, 1.0, 1.0, 1.0, 1.0]) @ directions.T
    total = Total(matrix[np.triu_indices(6)][None], 1.0)
    known = plan.advance(before(Kind.MOMENTS, plan, points=100.0, reach=2.0), total, DRAWS)
    np.testing.assert_allclose(np.abs(known.vectors @ directions[:, :rank]), np.eye(rank), atol=1e-9)
    np.testing.assert_allclose(known.basis[:, -1], [5.0, 4.0][:rank])
    noisy = plan.advance(before(Kind.MOMENTS, plan, points=100.0, reach=2.0), total._replace(sd=1e3), DRAWS)
    assert len(noisy.basis) == k - 1  # no eigenvalue exceeds the noise: all are used
    only = plan.advance(before(Kind.MOMENTS, plan, points=100.0, reach=2.0), total._replace(sd=230.0), DRAWS)
    assert len(only.basis) == (k - 1 if k == 3 else 1)


def test_moments_become_a_symmetric_matrix_and_their_noise_too():
    matrix = as_matrix(np.arange(1.0, 7.0))
    np.testing.assert_array_equal(matrix, [[1, 2, 3], [2, 4, 5], [3, 5, 6]])
    scale = as_matrix(noise_scale(moment_release(3, 1.0, "add")))
    np.testing.assert_allclose(scale**2, np.where(np.eye(3) > 0, 1.0, 0.5))


def test_cells_with_points_are_kept_and_moved_and_at_least_k():
    known = before(Kind.CELLS, cell=2.0)
    known = known._replace(origins=np.arange(2.0 * len(known.origins)).reshape(-1, 2))
    release, counts = PLAN.release(known), np.full(len(known.origins), 3.0)
    counts[:4] = 50.0
    total = Total(rows(release, np.full((len(counts), 2), 0.25), counts), 10.0 * release.weight)
    after = PLAN.advance(known, total, DRAWS)
    np.testing.assert_allclose(after.origins, known.origins[:4] + 0.25)
    few = PLAN.advance(known, total._replace(sd=1e9), DRAWS)
    np.testing.assert_allclose(few.origins, known.origins[:3] + 0.25)
    last = PLAN.advance(after._replace(facts=after.facts._replace(number=2.0)), Total(
        rows(PLAN.release(after), np.zeros((4, 2)), [9.0, 1.0, 5.0, 5.0]), 0.0), DRAWS)  # fmt: skip
    assert last.facts.kind == Kind.INNER_STEP and last.origins.shape == (3, 2)
    assert last.facts.steps == 1.0


def test_there_are_more_cells_with_more_points_and_less_noise():
    def count(points, mu):
        plan = replace(PLAN, mu=mu)
        known = before(Kind.INNER_RINGS, plan, points=points, size=5.0)
        known = known._replace(basis=np.column_stack((np.eye(6)[:2], [1.0, 1.0])))
        return len(plan.advance(known, Total(np.zeros((RINGS, 1)), 1.0), DRAWS).origins)

    assert count(10.0, 0.1) == LEAST_CELLS * 3
    assert count(1e9, 0.1) == MOST_CELLS * 3
    assert count(2000.0, 0.5) == math.floor(2000 * 0.5 * math.sqrt(0.2 / 3) / (4 * math.sqrt(3)))


def test_a_step_averages_within_the_subspace_and_shrinks_outside_of_it():
    plan = Plan(2, 6, 10.0, "add", 0.5)
    known = before(Kind.STEP, plan, size=50.0, reach=3.0, inner=4.0)
    known = known._replace(basis=np.eye(7)[:1], origins=np.zeros((2, 6)))
    release = plan.release(known)
    narrow = plan.noise(plan.release(known._replace(
        facts=known.facts._replace(kind=float(Kind.INNER_STEP)), origins=np.zeros((2, 1)))), 1.0)  # fmt: skip
    means = np.array([[1.0, 2.0, 0, 0, 0, 0], [1.0, 0.01, 0, 0, 0, 0]])
    total = Total(rows(release, means, [1e4, 1e4]), narrow)
    origins = plan.advance(known, total, DRAWS).origins
    np.testing.assert_allclose(origins[:, 0], 0.5)  # equal precision
    noise = 3 * (narrow / 1e4) ** 2
    np.testing.assert_allclose(origins[:, 1], [2.0 * (1 - noise / 4.0), 0.01 * max(0, 1 - noise / 1e-4)])
    # Later steps have at least a third of the weight inside, and the average of all steps outside.
    later = known._replace(facts=known.facts._replace(number=3.0, steps=4.0))
    moved = plan.advance(later, total._replace(sd=0.0), DRAWS).origins
    np.testing.assert_allclose(moved[0, :2], [max(1 / 3, 1 / 4) * 1.0, 2.0 / 4])
    lost = plan.advance(known, total._replace(sd=1e9), DRAWS)
    np.testing.assert_array_equal(lost.origins, known.origins)  # the counts may be noise


def test_the_number_of_steps_grows_with_points_and_budget():
    known = before(Kind.CELLS, number=2.0, cell=1.0, inner=9.0)
    total = np.zeros((len(known.origins), 3))
    total[:, -1] = 1.0
    total[:, 0] = np.arange(len(total))
    steps = [
        PLAN.advance(known._replace(facts=known.facts._replace(points=count)), Total(total, 0.0), DRAWS).facts.steps
        for count in (10.0, 1.5e3, 1e9)
    ]
    assert steps == [1.0, math.floor(0.002 * 0.25 * 0.25 * 1.5e3**2 / (1.5 * 6 * 9)), MOST_STEPS]


@pytest.mark.parametrize(("k", "d"), [(3, 2), (3, 6), (8, 5), (1, 4)])
def test_a_command_gives_the_devices_what_the_root_knows(k, d):
    plan, rng = Plan(k, d, 10.0, "add", 0.5), np.random.default_rng(0)
    known, kinds = plan.start(), []
    held = known
    while known.facts.kind != Kind.END:
        release = plan.release(known)
        total = Total(rng.normal(size=(release.rows, release.width)) * 50.0 + 5.0, 1.0)
        known = plan.advance(known, total, DRAWS)
        held = decode(held, encode(known, release.kind))
        kinds.append(release.kind)
        for part, other in zip(known, held, strict=True):
            np.testing.assert_array_equal(part, other)
    assert kinds == sorted(kinds) and set(kinds) == set(plan.shares)
    assert known.origins.shape == (k, d) and np.isfinite(known.origins).all()


def test_rows_in_the_subspace_are_lifted():
    known = Knowledge(Facts(), np.zeros(3), np.array([[0.0, 1.0, 0.0, 5.0]]), np.zeros((0, 1)))
    np.testing.assert_array_equal(lift(known, np.array([[2.0]])), [[0.0, 2.0, 0.0]])
