"""Tree Lloyd on points that change: a naive twin of what its root decides, and rest where nothing can move."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from p2pkm.core.batch import Stream
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.tree import search
from p2pkm.methods.tree.tracking import TrackingTreeLloyd
from tests.support.play_rounds import arrange, play, squared

K, D = 4, 2


class Tracker:
    """The text of `TrackingTreeLloyd` on the points of all."""

    def __init__(self, start, step, coarse, draw):
        self.step, self.coarse, self.draw = step, coarse, draw
        self.origin, self.table = np.full((K + 2, D), np.inf), np.zeros((K + 2, D))
        self.origin[:K] = start
        self.costs, self.tried, self.looked, self.wait, self.failures = [], 0.0, 0, 0, 0
        self.again = False  # whether the next round has a step though its number is odd

    @property
    def rows(self):
        """Return the centroids."""
        rows = self.origin + self.step * self.table
        return rows[np.isfinite(rows[:, 0])]

    def measure(self):
        """Return the cost, the table after a Lloyd step, how much this will gain at least, phi and U: one walk."""
        self.walk += 1
        apart = squared(self.points, self.origin + self.step * self.table) / self.step**2
        near, (least, second) = apart.argmin(axis=1), np.sort(apart, axis=1)[:, :2].T
        moved, errors, gain = self.table.copy(), np.zeros((2, len(apart[0]))), 0.0
        for c in np.unique(near):
            own = near == c
            sums = np.rint((self.points[own] - self.origin[c]).sum(axis=0) / (self.coarse * self.step))
            moved[c] = np.rint(self.coarse * sums / own.sum())
            gain += own.sum() * ((moved[c] - self.table[c]) ** 2).sum()
            errors[:, c] = least[own].sum(), (second - least)[own].sum()
        return least.sum(), moved, gain, *search.shorten(errors)

    def play(self, t, points):
        """Take in the points of a round."""
        self.points, self.walk = points, 14 * (t - 1)
        if t == 1:
            self.walk += 1  # in which the units are found
            self.fit()
        elif t % 2 == 0 or self.again:
            self.follow()

    def fit(self):
        """Take Lloyd steps."""
        before = np.inf
        for _ in range(13):
            now, moved, *_ = self.measure()
            still, self.table = (moved == self.table).all(), moved
            if still or now > before:
                break
            before = now
        self.costs.append(now / len(self.points))

    def follow(self):
        """Measure and take up to three steps, or look for other rows."""
        now, moved, gain, *_ = self.measure()
        mean, low = now / len(self.points), np.quantile(self.costs[-16:], 0.25)
        self.costs.append(mean)
        rise = max(0.05, 1.5 * np.sqrt(2.0 / (D * len(self.points))))
        risen, self.again = mean > (1.0 + rise) * low, mean > (1.0 + rise / 2.0) * low
        due = risen and (not self.wait or mean > (1.0 + rise) * self.tried)
        self.looked, self.wait, self.failures = self.looked + 1, max(self.wait - 1, 0), self.failures * risen
        self.tried = mean if due else self.tried
        self.table = moved
        if due or self.looked >= 5:
            self.search(2 if due else 1)
            return
        steps = 1
        while gain > 5e-3 * now and steps < 3:
            now, self.table, gain, *_ = self.measure()
            steps += 1

    def search(self, rows):
        """Try so many other rows, then one, until the cost falls."""
        self.looked = 0
        cost, _, _, phi, _ = self.measure()
        origin, table = self.origin, self.table
        for count in range(rows, 0, -1):
            self.origin, self.table = self.add(origin, table, phi, cost, count)
            for _ in range(2):
                self.table = self.measure()[1]
            utility = self.measure()[4]
            out = search.choose_least(utility, self.origin + self.step * self.table, count)
            self.origin[out], self.table[out] = np.inf, 0.0
            for step in range(3):
                now, moved, *_ = self.measure()
                if step == 2 or (moved == self.table).all():
                    break
                self.table = moved
            if now < cost * (1.0 - 1e-3):
                self.table, self.failures, self.wait = moved, 0, 0
                self.costs.append(now / len(self.points))
                return
        self.origin, self.table = origin, table
        self.failures += self.again
        self.wait = (0, 2, 4)[min(self.failures, 2)]

    def add(self, origin, table, phi, cost, count):
        """Return a table with rows beside those of the largest error, in the first free places."""
        real, base, found = np.isfinite(origin[:, 0]), origin.copy(), table.copy()
        placement_distance = max(1.0, np.rint(0.05 * np.sqrt(cost / len(self.points))))
        largest = sorted(np.flatnonzero(real), key=lambda c: -phi[c])
        for place, c in zip(np.flatnonzero(~real), largest[:count], strict=False):
            offset = np.rint((2.0 * self.draw(self.walk)[place] - 1.0) * placement_distance)
            base[place], found[place] = origin[c], table[c] + (offset if offset.any() else np.eye(D)[0])
        return base, found


def follow(points, start, frames, links=None):
    """Return the centroids of devices after every round, [1 + rounds, n, k, d], the last state, and the batch."""
    table = arrange(points, [(i, i + 1) for i in range(len(points) - 1)] if links is None else links)
    method = TrackingTreeLloyd(len(start), tol=0.0).on(table.topology)
    history, state = play(method, table, [start] * len(points), len(frames) - 1, frames=frames)
    return history[:: int(method.schedule.removeprefix("jacobi*"))], state, table


@pytest.mark.parametrize(("seed", "growth"), [(7, 1.25), (12, 1.0)])
@pytest.mark.sample(2)
def test_the_twin_finds_the_same_rows_in_every_round(seed, growth):
    """A cluster jumps in round 3; all spread from round 6 to 9, where no other rows help."""
    rng = np.random.default_rng(seed)
    corners, labels, noise = rng.uniform(0, 8, (K, D)), rng.integers(0, K, 80), rng.normal(size=(80, D))
    start, frames = corners[0] + rng.normal(0, 0.1, (K, D)), []
    for t in range(19):
        corners[0] += 30.0 * (t == 3)
        noise = noise * (growth if 6 <= t <= 9 else 1.0)
        frames.append(corners[labels] + noise)
    history, state, table = follow([frames[0]], start, frames)
    step, unit, coarse = state.units[0]
    costs = [squared(frames[0], rows).min(axis=1).sum() for rows in (start, start.mean(axis=0, keepdims=True))]
    assert_allclose([step, unit], [2.0**-4 * np.sqrt(max(costs[0], 2.0**-12 * costs[1]) / 80 / D), 1.0], rtol=1e-6)
    key = table.devices.shared_key
    twin = Tracker(start, step, coarse, lambda t: uniforms(key, Stream.CHOICE, [t], (K + 2) * D)[0].reshape(K + 2, D))
    for t in range(1, 19):
        twin.play(t, frames[t])
        assert_array_equal(history[t, 0], twin.rows)


def test_the_step_is_a_share_of_the_spread_around_the_mean_where_rows_are_the_points():
    rows = np.array([[0.0, 0.0], [6.0, 8.0]])
    _, state, _ = follow([rows], rows, [rows, rows])
    assert_allclose(state.units[0, 0], 2.0**-10 * np.sqrt(50.0 / 2 / D))  # 25 each


@pytest.mark.parametrize(("place", "size"), [(0.0, 1e-3), (0.0, 1e6), (0.1, 1e-3), (0.1, 1e2), (-1e9, 1e3)])
@pytest.mark.sample(3)
def test_points_that_are_alike_at_first_are_followed_when_they_part(place, size):
    alike, apart = np.full((4, D), place), place + size * np.array([[0, 0], [2, 0], [0, 4], [2, 4]])
    history, _, _ = follow(
        [alike[:2], alike[2:]], alike[:1] * (1 + 2.0**-52), [alike, alike, alike, apart, apart, apart, apart]
    )
    assert_allclose(history[:3], np.full((3, 2, 1, D), place), rtol=1e-15)
    assert_allclose(history[6] - place, [[[size, 2.0 * size]]] * 2, rtol=0.0, atol=1e-2 * size)


def test_where_nobody_has_points_nobody_speaks_after_round_one():
    none = np.zeros((0, D))
    history, _, table = follow([none, none, np.ones((1, D))], np.ones((1, D)), [np.ones((1, D))] * 4, [(0, 1)])
    assert_array_equal(history, np.ones((4, 3, 1, D)))
    assert table.network.ledger.edges[:, 0].sum() == 2  # moments up, units down
