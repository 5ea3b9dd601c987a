"""Mixtures with clusters of unequal size, heavy tails and outliers."""

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import ExperimentError
from p2pkm.core.validation import LARGEST, check_integer, check_positive
from p2pkm.data.random import generator

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Half the side of the box of the outliers, in half sides of the box of the means.
_WIDE = 3.0


def mixture(
    *, clusters: int = 8, points: int = 1600, features: int = 2, sd: float = 1.0, box: float = 10.0,
    ratio: float = 1.0, freedom: float | None = None, outliers: float = 0.0, seed: int = 0,
) -> tuple[Floats, Integers]:  # fmt: skip
    """Draw a mixture with means uniform in [-box, box] in every feature.

    Parameters
    ----------
    clusters, features : int
        Number of clusters and of features.
    points : int
        Points of all clusters together, at least one for each.
    sd : float
        Scale of each coordinate, at least 0.
    box : float
        Half the side of the box that contains the means, above 0.
    ratio : float
        Size of the largest cluster over that of the smallest, at least 1; the sizes are a geometric sequence.
    freedom : float, optional
        Degrees of freedom of Student's t, whose tails are heavy: 3 has a finite variance and infinite kurtosis. None:
        Gaussian.
    outliers : float
        Share of the points that are uniform in a box with three times the side, from 0 to below 1. Their cluster is
        that of the nearest mean.
    seed : int
        Whole number from 0.

    Returns
    -------
    X : float64[points, features]
        Points, sorted by cluster.
    y : int64[points]
        Cluster of each point.

    Examples
    --------
    >>> import numpy as np
    >>> import p2pkm
    >>> X, y = p2pkm.mixture(clusters=3, points=70, ratio=4)
    >>> np.bincount(y).tolist()
    [40, 20, 10]
    """
    k, d = check_integer(clusters, 1, "clusters"), check_integer(features, 1, "features")
    half = check_positive(box, "box", most=LARGEST)
    scale = check_positive(sd, "sd", zero=True, most=LARGEST)
    share = check_positive(outliers, "outliers", zero=True)
    if share >= 1.0:
        raise ExperimentError(f"outliers is {outliers}; expected a share from 0 to below 1. Use a smaller share")
    sizes = _divide(check_integer(points, k, "points"), k, check_positive(ratio, "ratio", most=LARGEST))
    rng = generator(seed, "mixture")
    means = rng.uniform(-half, half, (k, d))
    y = np.repeat(np.arange(k, dtype=np.int64), sizes)
    if freedom is None:
        drawn = rng.standard_normal((len(y), d))
    else:
        drawn = rng.standard_t(check_positive(freedom, "freedom", most=LARGEST), (len(y), d))
    cloud = means[y] + scale * drawn
    far = rng.permutation(len(y))[: round(share * len(y))]
    cloud[far] = rng.uniform(-_WIDE * half, _WIDE * half, (len(far), d))
    y[far] = ((cloud[far, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    order = np.argsort(y, kind="stable")
    return cloud[order], y[order]


def _divide(points: int, clusters: int, ratio: float) -> Integers:
    """Divide points into a geometric sequence of sizes, the largest first."""
    if ratio < 1.0:
        raise ExperimentError(f"ratio is {ratio}; expected a number from 1, the largest size over the smallest")
    shares = ratio ** -(np.arange(clusters) / max(clusters - 1, 1))
    sizes = np.diff(np.rint(np.cumsum(shares / shares.sum()) * points).astype(np.int64), prepend=0)
    if sizes.min() < 1:
        raise ExperimentError(f"points is {points}; expected more for {clusters} clusters with ratio {ratio:g}")
    return sizes
