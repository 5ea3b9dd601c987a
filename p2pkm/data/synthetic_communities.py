"""Benchmark with two communities of devices, whose points come from different mixtures."""

from functools import wraps
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.core.errors import ExperimentError
from p2pkm.core.sorting import narrow
from p2pkm.core.validation import check_choice, check_integer
from p2pkm.data.random import draw_separated, generator
from p2pkm.data.table import Table

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Side of the square of the centers, and smallest distance of two centers, in standard deviations of a component.
_SIDE = 16.0
_SEPARATION = 5.0
# Distance between the two mixtures with second="shifted", in the same unit.
_SHIFT = 4.0
# Concentration of the Dirichlet distribution of a device's component weights.
_CONCENTRATION = 2.0
# Test points per device.
_TESTS = 400


class Communities(NamedTuple):
    """Data of the benchmark `communities`.

    Attributes
    ----------
    points : float64[m, 2]
        Points, sorted by device.
    labels : int64[m]
        Component of each point; components of the second mixture have numbers from k on, unless the mixtures are the
        same.
    device : int64[m]
        Device of each point.
    truth : int64[n]
        Community of each device, 0 or 1.
    centers : float64[n, k, 2]
        True centers of each device's mixture.
    tests : float64[n, 400, 2]
        Test points of each device, from its mixture with equal weights.
    """

    points: Floats
    labels: Integers
    device: Integers
    truth: Integers
    centers: Floats
    tests: Floats

    def score(self, centroids: ArrayLike) -> Floats:
        """Compute the cost of each device's centroids on its test points, divided by that of the true centers.

        Parameters
        ----------
        centroids : array_like of float64[n, k, 2]
            Centroids of each device; absent ones are +inf.

        Returns
        -------
        float64[n]
        """
        return _cost(self.tests, np.asarray(centroids, np.float64)) / _cost(self.tests, self.centers)


def communities(
    *, second: Literal["same", "shifted", "fresh"] = "fresh", devices: int = 16, points: int = 24, clusters: int = 4,
    seed: int = 0,
) -> Communities:  # fmt: skip
    """Draw the points of devices in two communities, each with its own mixture of unit Gaussians in the plane.

    The graph `communities` of `topologies` has the same communities: the first (n + 1) // 2 devices, and the others.
    The centers of a mixture are uniform in [-8, 8] x [-8, 8] and at least 5 apart. Each device has component weights
    from a Dirichlet(2) distribution.

    Parameters
    ----------
    second : {"fresh", "shifted", "same"}
        Second mixture: an independent draw, the first mixture shifted by 4 in a random direction, or the first mixture.
    devices, points, clusters : int
        Number of devices, of points per device, and of clusters per mixture.
    seed : int
        Whole number from 0.

    Examples
    --------
    >>> import p2pkm
    >>> data = p2pkm.communities(devices=6, points=10)
    >>> data.points.shape, data.truth.tolist()
    ((60, 2), [0, 0, 0, 1, 1, 1])
    """
    check_choice(second, ("same", "shifted", "fresh"), "second")
    n = check_integer(devices, 2, "devices")
    k = check_integer(clusters, 1, "clusters")
    m = check_integer(points, 1, "points")
    if k > _TESTS:
        raise ExperimentError(f"clusters is {k}; expected at most {_TESTS}, the number of test points of a device")
    rng = generator(seed, "communities")
    first = draw_separated(rng, k, 2, side=_SIDE, separation=_SEPARATION)
    angle = rng.uniform(0.0, 2.0 * np.pi)
    other = first + _SHIFT * np.array([np.cos(angle), np.sin(angle)]) if second == "shifted" else first
    if second == "fresh":
        other = draw_separated(rng, k, 2, side=_SIDE, separation=_SEPARATION)
    truth = (np.arange(n) >= (n + 1) // 2).astype(np.int64)
    centers = np.stack((first, other))[truth]
    device = np.repeat(np.arange(n), m)
    ends = np.cumsum(rng.dirichlet([_CONCENTRATION] * k, n), axis=1)
    ends /= ends[:, -1:]
    drawn = rng.random((n, m))
    component = np.zeros(n * m, np.int64)
    for end in ends.T:
        component += (drawn >= end[:, None]).ravel()
    X = centers[device, component] + rng.standard_normal((n * m, 2))  # noqa: N806 - the name of all points
    tests = centers[:, np.arange(_TESTS) % k] + rng.standard_normal((n, _TESTS, 2))
    labels = component + (0 if second == "same" else k) * truth[device]
    return Communities(X, labels, device, truth, centers, tests)


@wraps(communities)
def tabulate(**options: Any) -> Table:
    """Draw `communities` as a table for the command line; the number of classes is that of one mixture."""
    made = communities(**options)
    kind, (n, k, _) = narrow(int(made.labels.max()) + 1), made.centers.shape
    # As in `communities`; classes of the second mixture have numbers from k on, unless the mixtures are the same.
    classes = np.tile(np.arange(_TESTS) % k, n)
    if options.get("second") != "same":
        classes += k * np.repeat(made.truth, _TESTS)
    tests = Table(made.tests.reshape(-1, 2), classes.astype(kind), k, device=np.repeat(np.arange(n), _TESTS))
    return Table(made.points, made.labels.astype(kind), k, device=made.device, groups=made.truth, tests=tests,
                 centers=made.centers)  # fmt: skip


def _cost(points: Floats, centroids: Floats) -> Floats:
    """Compute the cost of each device's centroids on its points, float64[n]."""
    return ((points[:, :, None] - centroids[:, None]) ** 2).sum(axis=3).min(axis=2).sum(axis=1)
