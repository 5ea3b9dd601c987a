"""Clusters of a run: the centroids of all devices with a common numbering, in units of the data."""

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.brief import short_repr
from p2pkm.core.errors import DataError
from p2pkm.core.late_binding import call
from p2pkm.core.messages import expand_ranges
from p2pkm.core.sorting import blocks, find_distinct
from p2pkm.metrics.clustering import pair_one_to_one

if TYPE_CHECKING:
    import pandas as pd

# Squared distances in memory at a time.
_COMPARED = 1 << 22


class Clusters(NamedTuple):
    """Clusters of all devices with a common numbering: row c is cluster c on every device.

    Attributes
    ----------
    number : int64[n, k]
        Cluster of each row of `Result.centroids`.
    centroids : float64[n, k, d]
        Centroids in units of the data; absent ones are +inf.
    points : int64[n, k] or None
        Number of points that each device assigns to the cluster; None for large runs.
    means, deviations : float64[n, k, d] or None
        Mean and standard deviation of these points, in units of the data; NaN without points.
    weights : float64[n, k] or None
        Sum of the weights of these points.
    medians : float64[n, k, d] or None
        Weighted median of these points, in units of the data; None for large runs.
    pooled_medians : float64[k, d] or None
        Median of the points of all devices.
    is_share : bool[d] or None
        Features that are 0 or 1: categories and truth values, whose mean is a share.
    silhouettes : float64[n + 1, k] or None
        Mean silhouette of the points of each cluster on each device and, at the end, on all devices; None without
        ``--silhouette``.
    device_silhouettes : float64[n + 1] or None
        Mean silhouette of all points of each device and, at the end, of all devices.
    units : float64[n, d] or None
        Unit of each feature in distances, by which the run divided it; None without scaling.
    features, devices : tuple of str
        Names of the features and of the devices.
    """

    number: Integers
    centroids: Floats
    points: Integers | None
    means: Floats | None
    deviations: Floats | None
    weights: Floats | None = None
    medians: Floats | None = None
    pooled_medians: Floats | None = None
    is_share: Mask | None = None
    silhouettes: Floats | None = None
    device_silhouettes: Floats | None = None
    units: Floats | None = None
    features: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return short_repr(self)

    def table(self) -> "pd.DataFrame":
        """Describe every cluster over all devices (``all``) and on each device, as in clusters.csv of the run folder.

        Columns: ``cluster``, ``device``, ``points`` (0: the device has no points in the cluster), ``share`` of the
        points of the device, ``next`` (number of the nearest other cluster), ``distance`` of their centroids in the
        units of the run (scaled, if the run scales). If they were computed, ``silhouette`` of the points, and ``device
        silhouette`` of all points of the device. Then ``NAME mean``, ``NAME sd`` and ``NAME median`` of every feature
        in units of the data, or ``NAME share`` of a category.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        DataError
            If the result does not contain medians.

        Examples
        --------
        >>> import numpy as np
        >>> import p2pkm
        >>> import topologies
        >>> X = np.array([[30.0, 1], [34, 0], [38, 1], [70, 0], [72, 0], [80, 0]])
        >>> shards = p2pkm.Shards.deal(X, [0, 0, 1, 1, 1, 1])
        >>> result = p2pkm.simulate(p2pkm.ConsensusLloyd(2), topologies.path(2), shards)
        >>> result.clusters.table()[["device", "points", "feature 0 median", "feature 1 share"]].round(2)
          device  points  feature 0 median  feature 1 share
        0    all       3              34.0             0.67
        1      0       2              32.0             0.50
        2      1       1              38.0             1.00
        3    all       3              72.0             0.00
        4      0       0               NaN              NaN
        5      1       3              72.0             0.00
        """
        import pandas as pd

        return pd.DataFrame(self.to_columns())

    def to_latex(self, *, device: str | None = None, caption: str | None = None, label: str | None = None) -> str:
        """Return a LaTeX table with a row per feature and a column per cluster; it requires booktabs.

        Cells: mean ± standard deviation [median] in units of the data, or the share of a category.

        Parameters
        ----------
        device : str, optional
            Name or number of a device; None: all devices together.
        caption, label : str, optional
            Caption and label of the environment ``table``; None: only the environment ``tabular``.

        Raises
        ------
        DataError
            If the result does not contain medians, or the device does not exist.
        """
        return str(call("clusters_latex", self, device, caption, label))

    @property
    def distinct_names(self) -> list[str]:
        """Names of the features; repeated ones are followed by the number of the column."""
        counts = Counter(self.features)
        return [f"{name} [{j}]" if counts[name] > 1 else name for j, name in enumerate(self.features)]

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the columns of `table` by name."""
        if self.points is None or self.medians is None or self.pooled_medians is None or self.is_share is None:
            raise DataError(
                "the result does not contain medians of clusters: the run was too large (more than 1 million "
                "coordinates), or its folder is of an earlier version. Repeat it from config.toml, or with fewer points"
            )
        n, k, _ = self.centroids.shape
        points = np.vstack((self.points.sum(axis=0), self.points))
        totals = points.sum(axis=1, keepdims=True)
        nearest, distances = self._find_next()
        numbers = nearest.astype(object)
        numbers[nearest < 0] = None
        values: dict[str, Any] = {
            "cluster": np.tile(np.arange(k), (n + 1, 1)),
            "device": np.tile(np.array(["all", *self.devices], object)[:, None], (1, k)),
            "points": points,
            "share": points / np.where(totals > 0, totals, np.nan),
            "next": numbers,
            "distance": distances,
        }
        if self.silhouettes is not None and self.device_silhouettes is not None:
            values["silhouette"] = np.roll(self.silhouettes, 1, axis=0)
            values["device silhouette"] = np.tile(np.roll(self.device_silhouettes, 1)[:, None], (1, k))
        pairs: Any = zip(
            (*self.pool_moments(), self.pooled_medians), (self.means, self.deviations, self.medians), strict=True
        )
        parts = [np.concatenate((pooled[None], single)) for pooled, single in pairs]
        for j, name in enumerate(self.distinct_names):
            kinds = ("share",) if self.is_share[j] else ("mean", "sd", "median")
            values |= {f"{name} {kind}": part[:, :, j] for kind, part in zip(kinds, parts, strict=False)}
        return {name: value.T.ravel().tolist() for name, value in values.items()}

    def pool_moments(self, *, over_clusters: bool = False) -> tuple[Floats, Floats]:
        """Compute mean and standard deviation of the points of all devices, float64[k, d] each; NaN without points.

        over_clusters: over all clusters, too; float64[d].

        Raises
        ------
        DataError
            If the result does not contain means of clusters, because the run was too large.
        """
        weights = self.points if self.weights is None else self.weights
        if weights is None or self.means is None or self.deviations is None:
            raise DataError(
                "the result does not contain means of clusters: points or centroids have more than 20 million "
                "coordinates. Use fewer points, devices, clusters or features"
            )
        weights = weights[:, :, None]
        axes = (0, 1) if over_clusters else (0,)
        total = weights.sum(axis=axes)
        total = np.where(total > 0, total, np.nan)
        means = np.nan_to_num(self.means)
        mean: Floats = (weights * means).sum(axis=axes) / total
        spread = np.where(weights > 0, np.nan_to_num(self.deviations) ** 2 + (means - mean) ** 2, 0.0)
        return mean, np.sqrt((weights * spread).sum(axis=axes) / total)

    def _find_next(self) -> tuple[Integers, Floats]:
        """Find the nearest other cluster of each cluster, over all devices and on each device, and its distance.

        Returns
        -------
        nearest : int64[n + 1, k]
            -1 without another centroid.
        distances : float64[n + 1, k]
            Distance of the centroids in the units of the run; NaN without another centroid.
        """
        rows = np.concatenate((self.pool()[None], self.centroids))
        if self.units is not None:
            rows = rows / np.concatenate((self.units.mean(axis=0)[None], self.units))[:, None]
        nearest, least = np.full(rows.shape[:2], -1), np.full(rows.shape[:2], np.inf)
        for c in range(rows.shape[1]):
            # Absent centroids are +inf; the difference of two of them is NaN, which is not smaller.
            with np.errstate(invalid="ignore"):
                squared = ((rows - rows[:, c, None]) ** 2).sum(axis=2)
            squared[:, c] = np.inf
            is_nearer = squared < least
            nearest[is_nearer], least[is_nearer] = c, squared[is_nearer]
        return nearest, np.where(nearest < 0, np.nan, np.sqrt(least))

    def pool(self) -> Floats:
        """Compute one centroid per cluster, float64[k, d]: the mean over devices, weighted by their numbers of points.

        For a cluster without points, all devices with this centroid have equal weight. A cluster that is absent on all
        devices is +inf.
        """
        is_present: Mask = self.centroids[:, :, 0] < np.inf
        weights = np.where(is_present, 1.0 if self.points is None else self.points, 0.0)
        weights = np.where(weights.sum(axis=0) > 0, weights, is_present.astype(np.float64))
        total: Floats = weights.sum(axis=0)
        rows = np.where(np.expand_dims(is_present, 2), self.centroids, 0.0)
        pooled = (weights[:, :, None] * rows).sum(axis=0) / np.expand_dims(np.where(total > 0, total, 1.0), 1)
        return np.where(np.expand_dims(total > 0, 1), pooled, np.inf)


def number_clusters(centroids: Floats, reference: Floats) -> Integers:
    """Assign cluster numbers to the centroids of every device by one-to-one matching with a reference, int64[n, k].

    The matching has the smallest sum of squared distances. Centroids without a partner, such as absent ones, get the
    remaining numbers in ascending order.

    Parameters
    ----------
    centroids : float64[n, k, d]
        Models of the devices; absent centroids are +inf.
    reference : float64[k, d]
        Model that defines the numbers.
    """
    n, k, _ = centroids.shape
    numbers = np.tile(np.arange(k), (n, 1))
    goal = np.flatnonzero(reference[:, 0] < np.inf)
    if not len(goal):
        return numbers
    step = max(1, _COMPARED // (k * max(len(goal), 1)))
    for first in range(0, n, step):
        costs = _compare(centroids[first : first + step], reference[goal])
        nearest = costs.argmin(axis=2)
        ordered = np.sort(nearest, axis=1)
        # If the nearest reference rows are distinct, they are the optimal matching.
        is_matched = (ordered[:, 1:] != ordered[:, :-1]).all(axis=1) & (costs[:, :, 0] < np.inf).all(axis=1)
        numbers[first : first + step][is_matched] = goal[nearest[is_matched]]
        for i in np.flatnonzero(~is_matched):
            numbers[first + i] = _match(costs[i], goal, k)
    return numbers


def number_along_links(centroids: Floats, first: int, indptr: Integers, indices: Integers) -> Integers:
    """Assign cluster numbers to the centroids of every device by those of its neighbors, int64[n, k].

    Row c of device `first` has number c. Device after device, in the order of hops from it, rows are matched one to
    one with those of the neighbors that are nearer to it: the matching with the smallest sum of mean squared distances
    to the rows that these neighbors call c. So where centroids differ between devices, numbers agree along the links,
    also if the centroids of distant devices are nearer to those of other clusters. In another component, the first
    device is matched with device `first`. Rows without a partner get the remaining numbers in ascending order.

    Parameters
    ----------
    centroids : float64[n, k, d]
        Models of the devices; absent centroids are +inf.
    first : int
        Device that defines the numbers.
    indptr, indices : int64[n + 1], int64[e]
        Links ``indptr[i]:indptr[i + 1]`` of device i lead to `indices`.
    """
    n, k, _ = centroids.shape
    numbers = np.tile(np.arange(k), (n, 1))
    source = np.repeat(np.arange(n), np.diff(indptr))
    if (centroids == centroids[first]).all() or _agree(centroids, source, indices):
        return numbers
    is_numbered = np.zeros(n, np.bool_)
    roots, turn = iter([first, *range(n)]), np.zeros(0, np.int64)
    while True:
        if not len(turn):
            root = next((i for i in roots if not is_numbered[i]), None)
            if root is None:
                return numbers
            turn = np.array([root])
            numbers[turn] = number_clusters(centroids[turn], centroids[first]) if root != first else np.arange(k)
        is_numbered[turn] = True
        edges = expand_ranges(indptr[turn], indptr[turn + 1] - indptr[turn])
        turn = find_distinct(indices[edges][~is_numbered[indices[edges]]])
        for block in blocks(len(turn), k * k * max(1, len(indices) // n)):
            _number_by_neighbors(centroids, numbers, turn[block], is_numbered, (indptr, indices))


def _agree(centroids: Floats, source: Integers, target: Integers) -> bool:
    """Check whether row c of every device is the nearest one to row c of each of its neighbors, for all c."""
    k = centroids.shape[1]
    if not (centroids[:, :, 0] < np.inf).all():
        return False
    for block in blocks(len(source), k * k):
        ends = centroids[source[block]], centroids[target[block]]
        squared = np.zeros((len(ends[0]), k, k))
        for feature in range(centroids.shape[2]):
            squared += (ends[0][:, :, None, feature] - ends[1][:, None, :, feature]) ** 2
        if (squared.argmin(axis=2) != np.arange(k)).any():
            return False
    return True


def _number_by_neighbors(
    centroids: Floats, numbers: Integers, turn: Integers, is_numbered: Mask, links: tuple[Integers, Integers]
) -> None:
    """Assign numbers to the centroids of the devices in `turn` by those of numbered neighbors."""
    indptr, indices = links
    degrees = indptr[turn + 1] - indptr[turn]
    place = np.repeat(np.arange(len(turn)), degrees)
    neighbors = indices[expand_ranges(indptr[turn], degrees)]
    place, neighbors = place[is_numbered[neighbors]], neighbors[is_numbered[neighbors]]
    k, d = centroids.shape[1:]
    named = arrange(centroids[neighbors], numbers[neighbors])
    is_present = named[:, :, 0] < np.inf
    # Absent rows are +inf; the difference of two of them is NaN.
    named = np.where(is_present[:, :, None], named, 0.0)
    costs, known = np.zeros((len(turn), k, k)), np.zeros((len(turn), k), np.int64)
    own = centroids[turn][place]
    squared = np.zeros((len(place), k, k))
    for feature in range(d):
        squared += (own[:, :, None, feature] - named[:, None, :, feature]) ** 2
    # In the order of the neighbors.
    np.add.at(costs, place, np.where(is_present[:, None], squared, 0.0))
    np.add.at(known, place, is_present)
    costs = np.where(known[:, None] > 0, costs / np.maximum(known, 1)[:, None], np.inf)
    nearest = costs.argmin(axis=2)
    # As in `number_clusters`: distinct nearest rows are the optimal matching.
    is_matched = (np.sort(nearest, axis=1) == np.arange(k)).all(axis=1) & (costs < np.inf).all(axis=(1, 2))
    numbers[turn[is_matched]] = nearest[is_matched]
    for i in np.flatnonzero(~is_matched):
        goal = np.flatnonzero(known[i])
        numbers[turn[i]] = _match(costs[i][:, goal], goal, k) if len(goal) else np.arange(k)


def _compare(centroids: Floats, reference: Floats) -> Floats:
    """Compute squared distances float64[n, k, r]; inf for absent centroids."""
    squared = np.zeros((*centroids.shape[:2], len(reference)))
    for feature in range(centroids.shape[2]):
        squared += (centroids[:, :, feature, None] - reference[:, feature]) ** 2
    return squared


def _match(costs: Floats, goal: Integers, k: int) -> Integers:
    """Assign cluster numbers to the centroids of a device, given their costs for the reference rows `goal`."""
    real = np.flatnonzero(costs[:, 0] < np.inf)
    nearest = costs[real].argmin(axis=1)
    rows = np.arange(len(real))
    # As in `number_clusters`, for the real centroids of a device.
    if len(find_distinct(nearest)) < len(real):
        rows, nearest = pair_one_to_one(costs[real])
    numbers = np.full(k, -1)
    numbers[real[rows]] = goal[nearest]
    numbers[numbers < 0] = np.delete(np.arange(k), numbers[numbers >= 0])
    return numbers


def arrange(values: Any, numbers: Integers) -> Any:
    """Sort values[n, k, ...] of the centroids of each device by cluster number."""
    order = np.argsort(numbers, axis=1)
    return np.take_along_axis(values, order.reshape(order.shape + (1,) * (values.ndim - 2)), axis=1)
