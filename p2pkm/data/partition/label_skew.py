"""Partitions by counts and labels: equal sizes, unequal sizes, or label skew."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.core.errors import ExperimentError
from p2pkm.core.sorting import narrow
from p2pkm.core.validation import check_choice, check_integer, check_positive
from p2pkm.data.partition.by_column import fill
from p2pkm.data.random import generator
from p2pkm.data.table import Labels, encode

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def iid(m: int, n: int, *, minimum: int = 0, seed: int = 0) -> Ints:
    """Partition m points at random; sizes of devices differ by at most one.

    Parameters
    ----------
    m, n : int
        Number of points and of devices.
    minimum : int
        Minimum number of points per device, see `fill`.
    seed : int
        Whole number from 0.

    Returns
    -------
    int64[m]
        Device of each point, as for all partitions.

    Examples
    --------
    >>> from p2pkm import partition
    >>> device = partition.iid(10, 3, seed=0)
    >>> len(device), sorted(set(device.tolist()))
    (10, [0, 1, 2])
    """
    m = check_integer(m, 0, "m")
    n = check_integer(n, 1, "n")
    device = np.arange(m, dtype=narrow(max(m, n)))
    device %= n
    generator(seed, "iid").shuffle(device)
    return fill(device, n, minimum, seed)


def blocks(m: int, n: int, *, minimum: int = 0, seed: int = 0) -> Ints:
    """Partition m points in their order into contiguous blocks; sizes differ by at most one, larger blocks come first.

    Parameters
    ----------
    m, n, minimum, seed : int
        As in `iid`; the seed is used only if `minimum` moves points.

    Examples
    --------
    >>> from p2pkm import partition
    >>> partition.blocks(7, 3).tolist()
    [0, 0, 0, 1, 1, 2, 2]
    """
    m = check_integer(m, 0, "m")
    n = check_integer(n, 1, "n")
    return fill(np.repeat(np.arange(n, dtype=np.int64), m // n + (np.arange(n) < m % n)), n, minimum, seed)


def dirichlet(
    y: ArrayLike,
    n: int,
    *,
    alpha: float = 0.3,
    by: Literal["class", "device"] = "class",
    minimum: int = 0,
    seed: int = 0,
) -> Ints:
    """Partition labeled points with label skew; a smaller alpha gives fewer classes per device.

    Parameters
    ----------
    y : array_like of shape (m,)
        Class of each point, of any kind.
    n : int
        Number of devices.
    alpha : float
        Concentration of the symmetric Dirichlet distribution, above 0.
    by : {"class", "device"}
        Unit for which proportions are drawn.

        * "class": each class is divided over the devices in random proportions; sizes of devices differ.
        * "device": each device has random class proportions and receives an equal number of points without
          replacement; proportions are renormalized over the classes that have points left.
    minimum, seed : int
        As in `iid`.

    References
    ----------
    Hsu, Qi and Brown (2019), arXiv:1909.06335, for ``by="device"``.

    Examples
    --------
    >>> from p2pkm import partition
    >>> device = partition.dirichlet([0, 1] * 50, 4, alpha=0.3, seed=0)
    >>> device.shape, int(device.max())
    ((100,), 3)
    """
    labels = _labels(y)
    n = check_integer(n, 1, "n")
    alpha = check_positive(alpha, "alpha")
    rng = generator(seed, f"dirichlet by {check_choice(by, ('class', 'device'), 'by')}")
    pools = [rng.permutation(rows) for rows in _rows_of(labels)]
    device = np.empty(len(labels), dtype=np.int64)
    if by == "class":
        for pool in pools:
            proportions = normalize_shares(*log_gammas(rng, alpha, n), alpha)
            device[pool] = np.repeat(np.arange(n), _split(proportions, len(pool)))
    else:
        _assign_by_device(rng, pools, alpha, n, device)
    return fill(device, n, minimum, seed)


def _assign_by_device(rng: np.random.Generator, pools: list[Ints], alpha: float, n: int, device: Ints) -> None:
    """Assign points to one device after the other; draws from an exhausted class are repeated among the others."""
    left = np.array([len(pool) for pool in pools], dtype=np.int64)
    taken_by = np.zeros((n, len(pools)), dtype=narrow(len(device) + 1))
    share, extra = divmod(len(device), n)
    # Sequential: the draws of a device depend on the points that all devices before it have left.
    for i in range(n):
        boost, tail = log_gammas(rng, alpha, len(pools))
        missing = share + (i < extra)
        while missing:
            usable = np.flatnonzero(left)
            drawn = rng.multinomial(missing, normalize_shares(boost[usable], tail[usable], alpha))
            accepted = np.minimum(drawn, left[usable])
            taken_by[i, usable] += accepted.astype(taken_by.dtype)
            left[usable] -= accepted
            missing -= int(accepted.sum())
    # Devices receive the points of a class from the end of its pool.
    for c, pool in enumerate(pools):
        device[pool] = np.repeat(np.arange(n), taken_by[:, c])[::-1]


def log_gammas(rng: np.random.Generator, alpha: float, size: int) -> tuple[Floats, Floats]:
    """Draw logarithms of Gamma(alpha) variates as two parts: log = boost + tail / alpha, for any alpha above 0."""
    # In two parts, because Gamma(alpha) variates of a small alpha underflow: G(alpha) = G(alpha + 1) U^(1 / alpha).
    alpha = min(alpha, 1e15)
    return np.log(rng.standard_gamma(alpha + 1.0, size)), np.log1p(-rng.random(size))


def normalize_shares(boost: Floats, tail: Floats, alpha: float) -> Floats:
    """Compute Dirichlet proportions float64[size]; for tiny alpha, the entry with the largest tail gets everything."""
    with np.errstate(over="ignore"):
        logs = boost + (tail - tail.max()) / alpha
    shares: Floats = np.exp(logs - logs.max())
    shares /= shares.sum()
    return shares


def _split(proportions: Floats, m: int) -> Ints:
    """Round proportions of m to integer sizes with the sum m."""
    ends = np.minimum(np.rint(np.cumsum(proportions) * m), m).astype(np.int64)
    ends[-1] = m
    sizes: Ints = np.diff(ends, prepend=0)
    return sizes


def by_label(y: ArrayLike, n: int, *, labels: int = 2, minimum: int = 0, seed: int = 0) -> Ints:
    """Sort the points by label, divide them into n x labels equal shards and assign `labels` shards to each device.

    Parameters
    ----------
    y : array_like of shape (m,)
        Class of each point, of any kind.
    n : int
        Number of devices.
    labels : int
        Shards per device, at least 1; about equal to the number of classes per device.
    minimum, seed : int
        As in `iid`.

    References
    ----------
    McMahan et al. (2017), arXiv:1602.05629, section 3.

    Examples
    --------
    >>> from p2pkm import partition
    >>> device = partition.by_label([0, 0, 1, 1, 2, 2], 3, labels=1, seed=0)
    >>> device.tolist()
    [0, 0, 1, 1, 2, 2]
    """
    classes = _labels(y)
    n = check_integer(n, 1, "n")
    labels = check_integer(labels, 1, "labels")
    owner = np.repeat(np.arange(n, dtype=narrow(n)), labels)
    generator(seed, "by label").shuffle(owner)
    device = np.empty(len(classes), dtype=np.int64)
    device[np.argsort(classes, kind="stable")] = owner[np.arange(len(classes)) * (n * labels) // max(len(classes), 1)]
    return fill(device, n, minimum, seed)


def quantity(m: int, n: int, *, alpha: float = 0.5, minimum: int = 0, seed: int = 0) -> Ints:
    """Partition m points at random; sizes of devices are in Dirichlet(alpha) proportions.

    Parameters
    ----------
    m, n : int
        Number of points and of devices.
    alpha : float
        Concentration, above 0; smaller values give more unequal sizes.
    minimum, seed : int
        As in `iid`.

    Examples
    --------
    >>> from p2pkm import partition
    >>> import numpy as np
    >>> int(np.bincount(partition.quantity(100, 4, alpha=0.5, seed=0)).sum())
    100
    """
    m = check_integer(m, 0, "m")
    n = check_integer(n, 1, "n")
    alpha = check_positive(alpha, "alpha")
    rng = generator(seed, "quantity")
    sizes = _split(normalize_shares(*log_gammas(rng, alpha, n), alpha), m)
    device = np.repeat(np.arange(n, dtype=narrow(n)), sizes)
    rng.shuffle(device)
    return fill(device, n, minimum, seed)


def dominant(
    y: ArrayLike, n: int, *, share: float = 0.9, alpha: float | None = None, minimum: int = 0, seed: int = 0
) -> Ints:
    """Assign a share of the points at random to one device, and partition the others over the other devices.

    Parameters
    ----------
    y : array_like of shape (m,)
        Class of each point, of any kind.
    n : int
        Number of devices.
    share : float
        Share of the points on the device that is drawn, between 0 and 1.
    alpha : float, optional
        Concentration of the `dirichlet` partition of the other points; None: `iid`.
    minimum, seed : int
        As in `iid`.

    Examples
    --------
    >>> from p2pkm import partition
    >>> import numpy as np
    >>> np.sort(np.bincount(partition.dominant([0, 1] * 50, 6, seed=0))).tolist()
    [2, 2, 2, 2, 2, 90]
    """
    classes = _labels(y)
    n = check_integer(n, 1, "n")
    if check_positive(share, "share") >= 1.0:
        raise ExperimentError(f"share is {share}; expected a number above 0 and below 1. Use a smaller share")
    rng = generator(seed, "dominant")
    largest = int(rng.integers(n))
    order = rng.permutation(len(classes))
    rest = np.sort(order[round(share * len(classes)) :]) if n > 1 else order[:0]
    remaining = max(n - 1, 1)
    if alpha is None:
        device_of_rest = iid(len(rest), remaining, seed=seed)
    else:
        device_of_rest = dirichlet(classes[rest], remaining, alpha=alpha, seed=seed)
    device = np.full(len(classes), largest, dtype=np.int64)
    device[rest] = device_of_rest + (device_of_rest >= largest)
    return fill(device, n, minimum, seed)


def mufc(clusters: ArrayLike, n: int, *, local: int | None = None, minimum: int = 0, seed: int = 0) -> Ints:
    """Partition of the studies of MUFC and FKmeansCB: each device receives points of a few clusters of the pooled data.

    A device of floor(m / n) points draws min(local, open) of the clusters that have rows left. From each it takes, in
    stored order, a random number of rows between floor(size / local) - 1 and size - 1, or the rows that are left. The
    last device receives the remaining rows.

    Parameters
    ----------
    clusters : array_like of int, shape (m,)
        Labels of a k-means clustering of the pooled data.
    n : int
        Number of devices.
    local : int, optional
        Clusters per device, at least 1; None: all clusters.
    minimum, seed : int
        As in `iid`.

    Examples
    --------
    >>> from p2pkm import partition
    >>> device = partition.mufc([0, 1, 2, 3] * 10, 4, local=2, seed=0)
    >>> device.shape, int(device.max())
    ((40,), 3)
    """
    labels = _labels(clusters)
    n = check_integer(n, 1, "n")
    pools = _rows_of(labels)
    clusters_per_device = len(pools) if local is None else check_integer(local, 1, "local")
    rng = generator(seed, "mufc")
    size = len(labels) // n
    device = np.full(len(labels), n - 1, dtype=np.int64)
    used = np.zeros(len(pools), dtype=np.int64)
    lengths = np.array([len(pool) for pool in pools], dtype=np.int64)
    for i in range(n - 1):
        usable = np.flatnonzero(used < lengths)
        missing = size
        for c in rng.choice(usable, min(clusters_per_device, len(usable)), replace=False):
            count = min(
                max(int(rng.integers(size // clusters_per_device - 1, size)), 0), missing, int(lengths[c] - used[c])
            )
            device[pools[c][used[c] : used[c] + count]] = i
            used[c] += count
            missing -= count
    return fill(device, n, minimum, seed)


def _labels(y: ArrayLike) -> Labels:
    return encode(y, np.shape(y)[0] if np.ndim(y) else 0, "labels")


def _rows_of(labels: Labels) -> list[Ints]:
    """Return the rows of each class, in stored order."""
    order = np.argsort(labels, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(labels))[:-1]) if len(labels) else []
