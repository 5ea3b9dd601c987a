"""The estimator: k-means on a communication graph for those who know scikit-learn.

Imported when ``p2pkm.P2PKMeans`` is first used: its parents are scikit-learn's.
"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import DataError
from p2pkm.core.sorting import blocks, sort_by
from p2pkm.core.validation import bounded, check_near, numeric
from p2pkm.data.identifiers import are_numbers, find_missing, identify, is_integer, locate, to_raw
from p2pkm.data.partition import iid
from p2pkm.data.shards import Shards, unweighted
from p2pkm.experiments.estimators.parameters import ResolvedParameters, arrange, check, find_k_max, split_start
from p2pkm.experiments.simulate import simulate
from p2pkm.kernels import pick
from p2pkm.metrics.result import Result
from p2pkm.network.graph import LARGE

Points = NDArray[np.floating[Any]]
KINDS = (np.float64, np.float32)
_TOLD = 5  # names in a message


class P2PKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Decentralized k-means on a communication graph.

    The rows are dealt to devices, each device clusters its own rows and exchanges centroids with its neighbors alone.
    Under ``mpirun`` the devices are dealt to the ranks: every rank calls `fit` with the same data and gets the same
    result, bit for bit that of one process.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        "auto": the devices choose it first, by messages; see `p2pkm.methods.init.choose_k`.
    graph : str, networkx.Graph, CSRGraph, TimeVaryingGraph or Topology, default="ring"
        A spec as on the command line, such as ``"small-world:degree=4"``, or a graph: device i is its i-th node in
        sorted order, or, if nodes and `devices` of `fit` both have names, the one of that name. A method with a server
        has a star of its own; leave this alone then.
    n_devices : int, default=None
        None: as many as the graph has nodes; where its spec leaves that open, as many as `devices` of `fit` names,
        else 16, or one for each row if there are fewer.
    algorithm : str or Algorithm, default="gtvmin"
        Name or spec of any method (``p2pkm algorithms`` lists them), or the method itself, such as
        ``p2pkm.GTVMin(8)``; what it says of its options goes before the defaults of `coupling`, `init` and `tol`.
    coupling : float or "auto", default=None
        How strongly neighbors pull at each other; None: the method's default; ``"auto"``: as strongly as the graph
        needs.
    init : str, Init or array_like of shape (n_clusters, n_features), default=None
        None: the method's default. An array: all devices start from these centroids. Else how devices get their first
        centroids: ``"global"`` chooses among clusterings of the
        summaries of all devices,
        ``"local"`` starts each device from its own points; all values: `p2pkm.Init`.
    groups : int, "auto" or bool, default=False
        Of GTVMin and TreeLloyd: one clustering for each group of devices whose points differ, instead of one for all;
        so many groups, or as many as the devices find (``"auto"``, True).
    max_iter : int, default=150
        Most rounds.
    tol : float, default=1e-3
        Move of the centroids, relative to the scale of the data, below which a device sees no reason to go on; methods
        with a tolerance of their own ignore the default.
    k_max : int, default=25
        The largest number of clusters that is considered for "auto", or as many as there are rows if these are fewer.
    random_state : int, RandomState, Generator or None, default=None
        Decides the graph, the partition and all draws. The same int gives the same bits, on any number of ranks or
        threads, and is the `seed` of `p2pkm.simulate` and of the command line. None: another start at every call.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        The centroids of the device whose set costs least on the rows of all devices (the first of them; of very many
        devices and rows a sample is priced). Some methods find fewer clusters than were asked for: then there are
        fewer rows.
    labels_ : ndarray of shape (n_samples,)
        Nearest row of `cluster_centers_`, alike for the rows of all devices.
    inertia_ : float
        Sum of squared distances to the nearest row of `cluster_centers_`, weighted by `sample_weight`.
    n_clusters_ : int
        The number of clusters that was given or chosen.
    n_iter_ : int
        Rounds of the method, without seeding.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Where the columns have names.
    device_centers_ : ndarray of shape (n_devices, n_clusters, n_features)
        The centroids of every device; rows that it does not have are +inf.
    device_names_ : ndarray of shape (n_devices,)
        Names of the devices in `devices` of `fit` or in the graph, sorted; integers if all names are integers, and 0 to
        n_devices - 1 of devices without names.
    groups_ : ndarray of shape (n_devices,) or None
        The group of every device, numbered by the lowest of their devices; None of a method without groups.
    graph_ : networkx.Graph or CSRGraph
        Devices and links, with points, cost, variation and traffic as attributes; above 100,000 devices the links
        alone.
    history_ : list of dict
        What was recorded of every round of every stage, such as the objective, messages and bytes so far.
    ledger_ : p2pkm.metrics.result.Traffic
        Messages, bytes and rows of every directed link.
    result_ : p2pkm.Result
        Everything about the last run: summary, clusters in one numbering for all devices, figures (``result_.plot()``).
    wire_bytes_ : int
        Bytes on the wire of `fit` and of all calls of `partial_fit` since.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=40, seed=0)
    >>> model = p2pkm.P2PKMeans(3, graph="small-world", random_state=0).fit(X)
    >>> model.cluster_centers_.shape, model.device_centers_.shape
    ((3, 2), (16, 3, 2))
    """

    def __init__(  # noqa: PLR0913 - the public signature
        self, n_clusters: Any = 8, *, graph: Any = "ring", n_devices: int | None = None, algorithm: Any = "gtvmin",
        coupling: float | str | None = None, init: Any = None, groups: int | str | bool = False, max_iter: int = 150,
        tol: float = 1e-3, k_max: int = 25, random_state: Any = None,
    ) -> None:  # fmt: skip
        self.n_clusters = n_clusters
        self.graph = graph
        self.n_devices = n_devices
        self.algorithm = algorithm
        self.coupling = coupling
        self.init = init
        self.groups = groups
        self.max_iter = max_iter
        self.tol = tol
        self.k_max = k_max
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, devices: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Cluster the rows.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
            Data frames will do; float32 and float64 stay what they are.
        y : Ignored
            A warning says so if it looks like the devices of the rows: whole numbers or text, of which there are fewer
            than half as many different ones as rows, more than one, and not just `n_clusters`.
        devices : array_like of int or str of shape (n_samples,), optional
            Device of each row: numbers from 0, or names, which are numbered in sorted order. Numbers that leave some
            out, such as the site codes 101, 205 and 309, are names, too, unless all are below `n_devices` or below the
            number of nodes of a graph that is not a spec: then devices may be without rows. None: the rows are dealt at
            random, evenly.
        sample_weight : array_like of shape (n_samples,), optional
            Weight of each row; one of weight 0 counts as absent.

        Raises
        ------
        ValueError
            If rows, graph or a parameter cannot be used; `p2pkm.core.errors` has the kinds.
        """
        points = validate_data(self, X, dtype=KINDS, order="C")
        check(self.get_params(deep=False), len(points))
        given, start = split_start(self.get_params(deep=False), points.shape[1])
        weights = weigh(sample_weight, len(points))
        rows = len(points[_find_counted(weights)])
        k_max = find_k_max(given, rows)
        if k_max is None and rows < self.n_clusters:
            raise DataError(f"n_samples={rows} of weight above 0 should be >= n_clusters={self.n_clusters}.")
        if devices is None:
            _warn_of_devices(y, len(points), self.n_clusters)
        at, shards = deal_rows(given, points, weights, devices)
        result = simulate(at.method, at.graph, shards, rounds=self.max_iter, seed=at.seed, baselines=False,
                          k_max=k_max, start=_repeat(start, at.devices))  # fmt: skip
        self.wire_bytes_ = 0
        self._keep(result, points.dtype)
        self.labels_, self.inertia_ = _assign(points, weights, self.cluster_centers_)
        self._warn(at, result)
        return self

    def partial_fit(self, X: Any, y: Any = None, *, devices: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Go on from the centroids of the last fit on new rows, which take the place of the earlier ones.

        The devices, their graph and the number of clusters stay those of the first fit; a device may be without rows.
        Every device starts from its own centroids, so that nothing is initialized anew. Without an earlier fit this is
        `fit`. Attributes are those of this call, but for `wire_bytes_`, to which its bytes are added.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
            As many rows of weight above 0 as clusters, at least.
        y : Ignored
        devices : array_like of int or str of shape (n_samples,), optional
            Device of each row, by its name in `device_names_`, or by its number from 0: one of the first call.
            Where devices join later, number them from 0 in all calls and give `n_devices`. None: the rows are dealt at
            random, evenly.
        sample_weight : array_like of shape (n_samples,), optional
            As in `fit`.

        Raises
        ------
        ValueError
            If rows or devices cannot be used, or the method cannot start from given centroids: groups, and methods that
            start from what the devices find in their points, such as those with a server.
        """
        if "device_centers_" not in vars(self):
            return self.fit(X, y, devices=devices, sample_weight=sample_weight)
        points, (n, k, _) = self._check(X), self.device_centers_.shape
        weights = weigh(sample_weight, len(points))
        counted = _find_counted(weights)
        own = points[counted]
        given, _ = split_start(self.get_params(deep=False), points.shape[1])
        given |= {"n_devices": n} | ({} if self.n_clusters != "auto" else {"n_clusters": k})
        check(given, len(own))
        at = arrange(given, len(own), None)[0]
        if devices is None:
            owner = iid(len(own), n, seed=at.seed)
        else:
            owner = _find_owners(devices, len(points), self.device_names_)[counted]
        names = None if self._topology is None else self._topology.names
        shards = _deal(own, owner, weights[counted], n, names)
        result = simulate(at.method, self._topology, shards, rounds=self.max_iter, seed=at.seed, baselines=False,
                          start=self.device_centers_.astype(np.float64))  # fmt: skip
        self._keep(result, points.dtype)
        self.labels_, self.inertia_ = _assign(points, weights, self.cluster_centers_)
        self._warn(at, result)
        return self

    def fit_predict(self, X: Any, y: Any = None, **options: Any) -> Integers:  # noqa: N803
        """Return `labels_` of `fit` with the same arguments, int64[n_samples]."""
        return self.fit(X, y, **options).labels_

    def predict(self, X: Any, devices: Any = None) -> Integers:  # noqa: N803
        """Return the nearest centroid of each row, int64[n_samples].

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
        devices : array_like of int or str of shape (n_samples,), optional
            Device of each row, by its name in `device_names_`, or by its number from 0. Its own centroids are taken
            then: rows of `device_centers_`, -1 where a device has none. None: those of `cluster_centers_`, for every
            row.
        """
        points = self._check(X)
        return self._label(points, unweighted(len(points)), devices)[0]

    def transform(self, X: Any, devices: Any = None) -> Points:  # noqa: N803
        """Return the distance of each row to each centroid, of shape (n_samples, n_clusters).

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
        devices : array_like of int or str of shape (n_samples,), optional
            As in `predict`: the distances are to the own centroids of the row's device then, in the order of its rows
            of `device_centers_`, +inf to those that it does not have; columns of different devices need not mean the
            same cluster. None: to `cluster_centers_`, for every row.
        """
        points, (sets, owner) = self._check(X), (self.cluster_centers_[None], None)
        if devices is not None:
            sets, owner = self.device_centers_, _find_owners(devices, len(points), self.device_names_)
        sets, distances = sets.astype(np.float64), np.empty((len(points), sets.shape[1]), points.dtype)
        for block in blocks(*points.shape):
            for j in range(sets.shape[1]):
                center = sets[0, j] if owner is None else sets[owner[block], j]
                distances[block, j] = np.sqrt(((points[block] - center) ** 2).sum(axis=1))
        return distances

    def score(self, X: Any, y: Any = None, *, devices: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Return minus the inertia of the rows: the larger, the nearer they are to the centroids.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
        y : Ignored
        devices : array_like of int or str of shape (n_samples,), optional
            As in `predict`: a row counts by the own centroids of its device then; -inf if a device of a row has none.
            None: by `cluster_centers_`, what `inertia_` is of.
        sample_weight : array_like of shape (n_samples,), optional
            As in `fit`.
        """
        points = self._check(X)
        return -self._label(points, weigh(sample_weight, len(points)), devices)[1]

    def report(self) -> Any:
        """Return the report of the last fit, which a notebook shows; see `Result.report`."""
        check_is_fitted(self)
        return self.result_.report()

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn's tools should know."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = [np.dtype(kind).name for kind in KINDS]
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _label(self, points: Points, weights: Floats, devices: Any) -> tuple[Integers, float]:
        """Return the nearest centroid of each row, int64[m], of its device or of all, and the inertia."""
        if devices is None:
            return _assign(points, weights, self.cluster_centers_)
        n, owner = len(self.device_centers_), _find_owners(devices, len(points), self.device_names_)
        rows, offsets = sort_by(owner, n)
        sets, labels = self.device_centers_.astype(np.float64), np.empty(len(points), np.int64)
        kernels = pick(1, n, points.size * sets.shape[1])
        own, mass = points[rows].astype(np.float64), np.ascontiguousarray(weights[rows])
        costs, labels[rows] = kernels.losses(own, mass, offsets, sets)
        return labels, float(np.cumsum(costs)[-1])

    def _check(self, X: Any) -> Points:  # noqa: N803
        check_is_fitted(self)
        points = bounded(validate_data(self, X, dtype=KINDS, order="C", reset=False), "X")
        check_near(points, self.cluster_centers_, "X and the centroids")
        return points

    def _keep(self, result: Result, dtype: Any) -> None:
        """Take over what the run left behind; centroids in the type of the rows."""
        self.result_: Any = result
        best = result.centroids[result.best]
        self.cluster_centers_ = best[best[:, 0] < np.inf].astype(dtype)
        self.device_centers_ = result.centroids.astype(dtype, copy=False)
        names = result.topology.names
        self.device_names_ = list_devices(names, len(result.centroids))
        self.groups_ = result.groups
        self.n_clusters_, self.n_iter_ = int(result.summary["clusters"]), int(result.summary["rounds"])
        self.graph_ = result.to_networkx() if result.topology.n <= LARGE else result.graph
        self.history_, self.ledger_ = result.rounds, result.ledger
        self.wire_bytes_ += int(result.summary["wire_bytes"])
        self._topology = result.topology if result.topology.hub < 0 else None

    def _warn(self, at: ResolvedParameters, result: Result) -> None:
        """State that there was no convergence, where the method has a notion of it."""
        if result.summary["termination"] == "round-limit" and at.method.tol > 0.0:
            warnings.warn(
                f"{at.method.name} did not converge within max_iter={self.max_iter} rounds: raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )


def weigh(sample_weight: ArrayLike | None, m: int) -> Floats:
    """Return the weight of each row, float64[m]."""
    if sample_weight is None:
        return unweighted(m)
    weights = numeric(sample_weight, "sample_weight")
    if weights.ndim == 0:
        weights = np.broadcast_to(weights, (m,))
    if weights.shape != (m,):
        raise DataError(f"sample_weight has shape {weights.shape}; expected ({m},): one weight for each row")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if wrong.size:
        raise DataError(
            f"sample_weight is {weights[wrong[0]]} at row {wrong[0]} (counted from 0); expected finite numbers of at "
            "least 0"
        )
    if not weights.any():
        raise DataError("every sample_weight is zero; expected at least one row that counts")
    return weights


def _repeat(start: Floats | None, n: int) -> Floats | None:
    """Return the same centroids for every device, float64[n, k, d]."""
    return None if start is None else np.broadcast_to(start, (n, *start.shape))


def _are_discrete(values: NDArray[Any]) -> bool:
    """Return whether all values are whole numbers or text."""
    return values.dtype.kind in "iuUS" or (
        values.dtype.kind == "O" and all(isinstance(one, (str, Integral)) for one in values)
    )


def _read_devices(devices: Any, m: int) -> NDArray[Any]:
    """Return the device of each row as an identifier, int64[m] or object[m] of str."""
    given = np.asarray(devices)
    raw = None if given.shape != (m,) else to_raw(devices, "devices")
    if raw is None or find_missing(raw).any() or (given.dtype.kind == "f" and raw.dtype.kind == "O"):
        raise DataError(
            f"devices have shape {given.shape} and dtype {given.dtype}; expected ({m},) whole numbers from 0 or names, "
            "one for each row"
        )
    return raw


def _find_owners(devices: Any, m: int, names: NDArray[Any]) -> Integers:
    """Return the device of each row, int64[m], by the names of a fit.

    Whole numbers are numbers from 0 where the devices have names that are not numbers.
    """
    raw, kinds = _read_devices(devices, m), identify(to_raw(names, "device_names_"))
    owner = np.append(np.argsort(kinds.codes), -1)[locate(raw, kinds.kinds)]
    unknown = identify(raw[owner < 0]).kinds
    if not len(unknown):
        return owner
    if raw.dtype.kind == "i" and not are_numbers(to_raw(names, "device_names_")):
        if raw.min() < 0 or raw.max() >= len(names):
            raise DataError(f"devices are {raw.min()} to {raw.max()}; expected 0 to {len(names) - 1}, as in fit")
        return raw
    told = ", ".join(repr(one) for one in unknown[:_TOLD].tolist())
    raise DataError(
        f"devices are {told}; expected some of device_names_, as in fit: the first call has to name all devices; where "
        "some join later, number devices from 0 and give n_devices"
    )


def list_devices(names: tuple[str, ...] | None, n: int) -> NDArray[Any]:
    """Return what the devices are called, without a server: codes are integers, as they were given."""
    if names is None:
        return np.arange(n)
    own = list(names[:n])
    return np.array([int(name) for name in own] if all(map(is_integer, own)) else own)


def _find_counted(weights: Floats) -> Any:
    """Return which rows count: those of weight above 0."""
    return np.flatnonzero(weights > 0) if any(weights.strides) else slice(None)  # a view of one number: 1


def deal_rows(
    given: Mapping[str, Any], points: Points, weights: Floats, devices: Any
) -> tuple[ResolvedParameters, Shards]:
    """Return method, graph and seed, and the rows that count, dealt to the devices that they were given or at random.

    Parameters
    ----------
    given : mapping
        The parameters of `P2PKMeans`.
    points, weights
        Of all rows, from `weigh`.
    devices
        As of `P2PKMeans.fit`.

    Raises
    ------
    ValueError
        If devices or a parameter cannot be used.
    """
    counted = _find_counted(weights)
    own = points[counted]
    at, all_owners, names = arrange(given, len(own), None if devices is None else _read_devices(devices, len(points)))
    owner = iid(len(own), at.devices, seed=at.seed) if all_owners is None else all_owners[counted]
    return at, _deal(own, owner, weights[counted], at.devices, names)


def _deal(own: Points, owner: Integers, mass: Floats, devices: int, names: tuple[str, ...] | None) -> Shards:
    """Deal the rows that count to their devices."""
    weights = None if (mass == 1.0).all() else mass
    return replace(Shards.deal(own, owner, devices=devices, weights=weights, dtype=own.dtype), names=names)


def _warn_of_devices(y: Any, m: int, n_clusters: Any) -> None:
    """State that y is ignored, if it is more likely the devices of the rows than their classes."""
    given = np.empty(0) if y is None else np.asarray(y)
    if given.shape != (m,) or not _are_discrete(given):
        return
    kinds = len(set(given.tolist()))
    if 1 < kinds <= m // 2 and kinds != n_clusters:
        warnings.warn(
            f"y is ignored, and the rows are dealt to devices at random; if its {kinds} values are the devices of the "
            "rows, give them as devices=",
            UserWarning,
            stacklevel=3,
        )


def _assign(points: Points, weights: Floats, centers: Points) -> tuple[Integers, float]:
    """Return the nearest center of each row, int64[m], and the weighted sum of squared distances to them."""
    sets: Floats = centers[None].astype(np.float64)
    labels, inertia = np.empty(len(points), np.int64), 0.0
    kernels, inputs = pick(1, 1, points.size * len(centers)), (points, weights)
    for block in blocks(len(points), centers.size):
        own, mass = (np.require(part[block], np.float64, ["C", "W"]) for part in inputs)  # as compiled for
        costs, labels[block] = kernels.losses(own, mass, np.array([0, len(own)]), sets)
        inertia += float(costs[0])
    return labels, inertia
