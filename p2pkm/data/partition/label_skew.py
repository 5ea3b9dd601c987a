"""Partitions from counts and labels alone: equal, of unequal sizes, or with label skew."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.core.sorting import narrow
from p2pkm.core.validation import check_choice, check_integer, check_positive
from p2pkm.data.partition.by_column import fill
from p2pkm.data.random import generator
from p2pkm.data.table import Labels, encode

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def iid(m: int, n: int, *, minimum: int = 0, seed: int = 0) -> Ints:
    """Deal m points at random; the sizes of any two devices differ by at most one.

    Parameters
    ----------
    m, n : int
        Number of points and of devices.
    minimum : int
        Points that each device has at least, see `fill`.
    seed : int
        Whole number from 0.

    Returns
    -------
    int64[m]
        Device of each point; so for all partitions.

    Examples
    --------
    >>> from p2pkm import partition
    >>> device = partition.iid(10, 3, seed=0)
    >>> len(device), sorted(set(device.tolist()))
    (10, [0, 1, 2])
    """
    m, n = check_integer(m, 0, "m"), check_integer(n, 1, "n")
    device = np.arange(m, dtype=narrow(max(m, n)))
    device %= n
    generator(seed, "iid").shuffle(device)
    return fill(device, n, minimum, seed)


def blocks(m: int, n: int, *, minimum: int = 0, seed: int = 0) -> Ints:
    """Deal m points in their order: contiguous blocks whose sizes differ by at most one, the longer ones first.

    Parameters
    ----------
    m, n, minimum, seed : int
        As in `iid`; nothing is drawn unless devices must be filled up.

    Examples
    --------
    >>> from p2pkm import partition
    >>> partition.blocks(7, 3).tolist()
    [0, 0, 0, 1, 1, 2, 2]
    """
    m, n = check_integer(m, 0, "m"), check_integer(n, 1, "n")
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
    """Deal labeled points with label skew; the smaller alpha, the fewer classes at a device.

    Parameters
    ----------
    y : array_like of shape (m,)
        Class of each point, of any kind.
    n : int
        Number of devices.
    alpha : float
        Concentration of the symmetric Dirichlet distribution, above 0.
    by : {"class", "device"}
        Each class is split over the devices in drawn proportions (sizes differ), or each device draws its own class
        proportions and takes an equal share without replacement, renormalized over the classes that are not used up.
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
    labels, n, alpha = _labels(y), check_integer(n, 1, "n"), check_positive(alpha, "alpha")
    rng = generator(seed, f"dirichlet by {check_choice(by, ('class', 'device'), 'by')}")
    pools = [rng.permutation(rows) for rows in _rows_of(labels)]
    device = np.empty(len(labels), dtype=np.int64)
    if by == "class":
        for pool in pools:
            proportions = normalize_shares(*log_gammas(rng, alpha, n), alpha)
            device[pool] = np.repeat(np.arange(n), _split(proportions, len(pool)))
    else:
        _deal_by_device(rng, pools, alpha, n, device)
    return fill(device, n, minimum, seed)


def _deal_by_device(rng: np.random.Generator, pools: list[Ints], alpha: float, n: int, device: Ints) -> None:
    """Let each device take its share; a point of a used-up class is drawn again among the others."""
    left = np.array([len(pool) for pool in pools], dtype=np.int64)
    taken_by = np.zeros((n, len(pools)), dtype=narrow(len(device) + 1))
    share, extra = divmod(len(device), n)
    for i in range(n):  # a draw depends on what all devices before have left
        boost, tail = log_gammas(rng, alpha, len(pools))
        missing = share + (i < extra)
        while missing:
            usable = np.flatnonzero(left)
            drawn = rng.multinomial(missing, normalize_shares(boost[usable], tail[usable], alpha))
            taken = np.minimum(drawn, left[usable])
            taken_by[i, usable] += taken.astype(taken_by.dtype)
            left[usable] -= taken
            missing -= int(taken.sum())
    for c, pool in enumerate(pools):  # from its end
        device[pool] = np.repeat(np.arange(n), taken_by[:, c])[::-1]


def log_gammas(rng: np.random.Generator, alpha: float, size: int) -> tuple[Floats, Floats]:
    """Draw Gamma(alpha) variates in parts: their logarithm is boost + tail / alpha, for any alpha above 0."""
    alpha = min(alpha, 1e15)
    return np.log(rng.standard_gamma(alpha + 1.0, size)), np.log1p(-rng.random(size))


def normalize_shares(boost: Floats, tail: Floats, alpha: float) -> Floats:
    """Compute Dirichlet proportions float64[size]; if alpha is too small for doubles, the largest tail takes all."""
    with np.errstate(over="ignore"):
        logs = boost + (tail - tail.max()) / alpha
    shares: Floats = np.exp(logs - logs.max())
    shares /= shares.sum()
    return shares


def _split(proportions: Floats, m: int) -> Ints:
    """Return whole sizes in given proportions that add up to m."""
    ends = np.minimum(np.rint(np.cumsum(proportions) * m), m).astype(np.int64)
    ends[-1] = m
    sizes: Ints = np.diff(ends, prepend=0)
    return sizes


def by_label(y: ArrayLike, n: int, *, labels: int = 2, minimum: int = 0, seed: int = 0) -> Ints:
    """Sort the points by label, cut them into n x labels equal shards and deal each device `labels` of them.

    Parameters
    ----------
    y : array_like of shape (m,)
        Class of each point, of any kind.
    n : int
        Number of devices.
    labels : int
        Shards per device, at least 1: about as many classes does a device see.
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
    classes, n, labels = _labels(y), check_integer(n, 1, "n"), check_integer(labels, 1, "labels")
    owner = np.repeat(np.arange(n, dtype=narrow(n)), labels)
    generator(seed, "by label").shuffle(owner)
    device = np.empty(len(classes), dtype=np.int64)
    device[np.argsort(classes, kind="stable")] = owner[np.arange(len(classes)) * (n * labels) // max(len(classes), 1)]
    return fill(device, n, minimum, seed)


def quantity(m: int, n: int, *, alpha: float = 0.5, minimum: int = 0, seed: int = 0) -> Ints:
    """Deal m points at random to devices whose sizes are in Dirichlet(alpha) proportions.

    Parameters
    ----------
    m, n : int
        Number of points and of devices.
    alpha : float
        Concentration, above 0; the smaller, the more unequal are the sizes.
    minimum, seed : int
        As in `iid`.

    Examples
    --------
    >>> from p2pkm import partition
    >>> import numpy as np
    >>> int(np.bincount(partition.quantity(100, 4, alpha=0.5, seed=0)).sum())
    100
    """
    m, n, alpha = check_integer(m, 0, "m"), check_integer(n, 1, "n"), check_positive(alpha, "alpha")
    rng = generator(seed, "quantity")
    sizes = _split(normalize_shares(*log_gammas(rng, alpha, n), alpha), m)
    device = np.repeat(np.arange(n, dtype=narrow(n)), sizes)
    rng.shuffle(device)
    return fill(device, n, minimum, seed)


def mufc(clusters: ArrayLike, n: int, *, local: int | None = None, minimum: int = 0, seed: int = 0) -> Ints:
    """Deal as in the study of FKmeansCB: each device draws from a few clusters of the pooled data.

    A device of floor(m / n) points draws min(local, open) clusters that have rows left and takes from each, in stored
    order, a drawn number of rows from floor(size / local) - 1 to size - 1, as far as there are; the last device takes
    the rest.

    Parameters
    ----------
    clusters : array_like of int, shape (m,)
        Labels of a k-means clustering of the pooled data.
    n : int
        Number of devices.
    local : int, optional
        Clusters per device, at least 1; None: all of them.
    minimum, seed : int
        As in `iid`.

    Examples
    --------
    >>> from p2pkm import partition
    >>> device = partition.mufc([0, 1, 2, 3] * 10, 4, local=2, seed=0)
    >>> device.shape, int(device.max())
    ((40,), 3)
    """
    labels, n = _labels(clusters), check_integer(n, 1, "n")
    pools = _rows_of(labels)
    wanted = len(pools) if local is None else check_integer(local, 1, "local")
    rng, size = generator(seed, "mufc"), len(labels) // n
    device = np.full(len(labels), n - 1, dtype=np.int64)
    used = np.zeros(len(pools), dtype=np.int64)
    lengths = np.array([len(pool) for pool in pools], dtype=np.int64)
    for i in range(n - 1):
        usable, missing = np.flatnonzero(used < lengths), size
        for c in rng.choice(usable, min(wanted, len(usable)), replace=False):
            count = min(max(int(rng.integers(size // wanted - 1, size)), 0), missing, int(lengths[c] - used[c]))
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
