"""Estimator with the interface of scikit-learn: k-means on a communication graph.

Imported when ``p2pkm.P2PKMeans`` is first used, because its base classes require scikit-learn.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.chunks import add_penalties, widen
from p2pkm.core.errors import DataError
from p2pkm.core.keywords import suggest_keywords
from p2pkm.core.sorting import blocks, sort_by
from p2pkm.core.validation import as_floats, check_magnitude, check_near, name_features
from p2pkm.data.held_out import hold_out
from p2pkm.data.identifiers import (
    UNASSIGNED,
    are_numbers,
    find_missing,
    identify,
    is_integer,
    locate,
    require_assigned,
    require_complete,
    to_raw,
)
from p2pkm.data.partition import iid
from p2pkm.data.schema import find_fill_values
from p2pkm.data.shards import Shards, unweighted
from p2pkm.experiments.estimators.parameters import (
    ResolvedParameters,
    arrange,
    check,
    check_size,
    count_runs,
    derive_seeds,
    find_k_max,
    make_start,
    split_init,
)
from p2pkm.experiments.estimators.rounds_text import list_rounds
from p2pkm.experiments.estimators.rows import KINDS, Points, fill_in, read_rows, split_rows
from p2pkm.experiments.simulate import simulate
from p2pkm.experiments.warn_once import warn
from p2pkm.kernels import select_kernels
from p2pkm.metrics.clusters import arrange as order_rows
from p2pkm.metrics.result import Result
from p2pkm.network.graph import LARGE
from p2pkm.network.world import connect

_MOST = 5  # names listed in a message


_REQUESTS = {"devices": True}


class P2PKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Decentralized k-means on a communication graph.

    Each row belongs to a device. Each device clusters its local rows and exchanges centroids with its neighbors. Under
    ``mpirun`` the devices are distributed over the ranks: every rank calls `fit` with the same data and gets the same
    result, bit-identical to that of one process.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        "auto": the devices first choose the number by messages; see `p2pkm.methods.init.choose_k`.
    graph : str, networkx.Graph, CSRGraph, TimeVaryingGraph or Topology, default="ring"
        A spec as on the command line, such as ``"small-world:degree=4"``, or a graph. Device i is the i-th node in
        sorted order. If nodes and `devices` of `fit` both have names, they are matched by name. Server methods use
        their star: do not set `graph` for them.
    n_devices : int, default=None
        None: the number of nodes of the graph. If its spec leaves that open: the number of different `devices` of
        `fit`, otherwise 16, or the number of rows if that is smaller.
    algorithm : str or Algorithm, default=None
        Name or spec of a method (``p2pkm algorithms`` lists them), or a method such as ``p2pkm.GTVMin(8)``. Its
        parameters take precedence over the defaults of `coupling`, `init` and `tol`. None: "gtvmin" with
        `personalized`, `coupling` or `groups`; otherwise "treelloyd": of the best methods without a server for
        one clustering the one with the fewest bytes, see docs/results/benchmark.md; "tracking" where links change.
    coupling : float or str, default=None
        Link strength of GTVMin, dimensionless, or the name of a choice, see `p2pkm.GTVMin`. None: the default of the
        method; for GTVMin it is chosen from the points.
    init : str, Init, callable or array_like of shape (n_clusters, n_features), default=None
        Initialization.

        * None: the default of the method.
        * "global": chosen among clusterings of the summaries of all devices.
        * "local": each device starts from its local points.
        * "k-means++", "random": drawn from the points of all devices, as in KMeans, by messages
          (``d2-sampling`` and ``d2-sampling:greedy=false,draw=uniform``).
        * Other names: see `p2pkm.Init`.
        * An array: initial centroids of all devices. A centroid that is nearest to no point stays where it is.
        * A callable: returns this array when it is called with X, n_clusters and a `random_state`, without messages.
    n_init : int or "auto", default="auto"
        Number of runs with different initial centroids. The attributes describe the run of lowest inertia. Graph and
        devices of the rows are the same in all runs. "auto": 10 if `init` is "random" or a callable, otherwise 1.
    groups : int, "auto" or bool, default=False
        For GTVMin and TreeLloyd: separate clusterings for groups of devices with different points, instead of one for
        all. An int sets the number of groups; "auto" and True let the devices choose it.
    max_iter : int, default=150
        Maximum number of rounds.
    tol : float, default=1e-3
        A device has converged if its centroids move by less than `tol`, relative to the scale of the data. Methods with
        another default tolerance ignore the default of this parameter.
    missing : {"refuse", "mean", "median"}, default="refuse"
        Treatment of missing values. "mean", "median": the devices compute this statistic of each feature by messages
        and fill it in.
    k_max : int, default=25
        Largest number of clusters considered for ``n_clusters="auto"``, at most the number of rows; else ignored.
    test_share : float, default=0.0
        Share of the rows of each device, from 0 to below 1, on which nothing is fitted. ``result_.summary`` and
        ``result_.devices`` have the scores of each device on these test rows, beside one clustering for all devices and
        each device alone. `labels_` has all rows, `inertia_` the others.
    personalized : bool, default=False
        Whether the answer is a clustering for each device instead of one for all: `labels_`, `inertia_`, `predict`,
        `transform` and `score` then use the centroids of the device of each row in `device_centers_`, and `fit` and
        these methods require `devices`. Row c of `device_centers_` is then cluster c on all devices, as in
        ``result_.clusters``. `cluster_centers_` stays the clustering that suits the rows of all devices best.
    verbose : int, default=0
        1: print the rounds of each run, in the form of KMeans.
    random_state : int, RandomState, Generator or None, default=None
        Determines random graphs, the partition and all draws of the method. The same int gives bit-identical results
        on any number of ranks or threads, and is the `seed` of `p2pkm.simulate` and of the command line. None: a new
        seed for each call.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centroids of the device with the lowest cost on the rows of all devices (the first of them; for very many
        devices and rows, on a sample). If the method finds fewer clusters than requested, there are fewer rows.
    labels_ : ndarray of shape (n_samples,)
        Index of the nearest row of `cluster_centers_`; with `personalized` as in `predict` with `devices`.
    inertia_ : float
        Sum of squared distances to this row, weighted by `sample_weight`.
    n_clusters_ : int
        Number of clusters, as given or chosen. Rows of `cluster_centers_` without points count.
    n_iter_ : int
        Rounds of the method, without initialization.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns. Only if all columns have names.
    center_names_ : ndarray of shape (n_features,)
        Names of the columns of `cluster_centers_`: those of X, or ``ward=icu`` for the category icu of the column
        ward. Only if X is a table with names.
    fill_values_ : ndarray of shape (n_features,)
        Values that replace missing ones, also in `predict`, `transform` and `score`. Only if `missing` is a statistic.
    device_centers_ : ndarray of shape (n_devices, n_clusters, n_features)
        Centroids of each device; absent rows are +inf.
    device_names_ : ndarray of shape (n_devices,)
        Names of the devices in `devices` of `fit` or in the graph, sorted. Integers if all names are integers; 0 to
        n_devices - 1 for devices without names.
    groups_ : ndarray of shape (n_devices,) or None
        Group of each device, numbered by the lowest device in it; None for a method without groups.
    graph_ : networkx.Graph or CSRGraph
        Devices and links with points, cost, total variation and traffic as attributes; above 100,000 devices, only the
        links.
    history_ : list of dict
        Record of each round of each stage, with objective, messages and bytes.
    ledger_ : p2pkm.metrics.result.Traffic
        Messages, bytes and rows of each directed edge.
    result_ : p2pkm.Result
        Complete result of the run: summary, clusters aligned across devices, figures (``result_.plot()``).
    wire_bytes_ : int
        Encoded bytes of all runs of `fit` and of all later calls of `partial_fit`.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=40, seed=0)
    >>> model = p2pkm.P2PKMeans(3, graph="small-world", random_state=0).fit(X)
    >>> model.cluster_centers_.shape, model.device_centers_.shape
    ((3, 2), (16, 3, 2))
    """

    # Metadata that scikit-learn routes to each method by default: without, a search that passes devices in a pipeline
    # ends with NaN scores, and requests of fit and predict that differ cannot be combined in fit_predict.
    __metadata_request__fit: ClassVar = _REQUESTS
    __metadata_request__partial_fit: ClassVar = _REQUESTS
    __metadata_request__predict: ClassVar = _REQUESTS
    __metadata_request__transform: ClassVar = _REQUESTS
    __metadata_request__score: ClassVar = _REQUESTS
    # Attributes that only some fits set.
    center_names_: NDArray[Any]
    fill_values_: Floats

    @suggest_keywords
    def __init__(
        self, n_clusters: Any = 8, *, graph: Any = "ring", n_devices: int | None = None, algorithm: Any = None,
        coupling: float | str | None = None, init: Any = None, n_init: int | str = "auto",
        groups: int | str | bool = False, max_iter: int = 150, tol: float = 1e-3, missing: str = "refuse",
        k_max: int = 25, test_share: float = 0.0, personalized: bool = False, verbose: int = 0,
        random_state: Any = None,
    ) -> None:  # fmt: skip
        self.n_clusters = n_clusters
        self.graph = graph
        self.n_devices = n_devices
        self.algorithm = algorithm
        self.coupling = coupling
        self.init = init
        self.n_init = n_init
        self.groups = groups
        self.max_iter = max_iter
        self.tol = tol
        self.missing = missing
        self.k_max = k_max
        self.test_share = test_share
        self.personalized = personalized
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, devices: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Cluster the rows.

        Parameters
        ----------
        X : array_like, sparse matrix or table of shape (n_samples, n_features)
            Tables are DataFrames of pandas and polars and Arrow tables. Each category of a column of categories is a
            feature of 0 and 1. Times are days since 1970-01-01. float32 and float64 are not converted. A sparse matrix
            is clustered as a dense array; an error says if that does not fit into memory. `predict`, `transform` and
            `score` read a large one in blocks of rows.
        y : Ignored
            A warning is issued if it looks like the devices of the rows: whole numbers or text with more than one
            different value, at most half as many values as rows, and not exactly `n_clusters`.
        devices : array_like of int or str of shape (n_samples,), optional
            Device of each row: numbers from 0, or names, which are numbered in sorted order.

            * Numbers with gaps, such as the site codes 101, 205 and 309, are names, unless all are below `n_devices`,
              or below the number of nodes of a graph object. Then devices may be without rows.
            * None: rows are assigned to devices at random, in equal numbers; an error with `personalized`.
        sample_weight : array_like of shape (n_samples,), optional
            Weight of each row. Rows of weight 0 are ignored.

        Raises
        ------
        ValueError
            If rows, graph or a parameter cannot be used; `p2pkm.core.errors` lists the subclasses.
        """
        check(self.get_params(deep=False))
        self._require_devices(devices)
        params, centroids = split_init(self.get_params(deep=False))
        points, columns = read_rows(self, X, None, reset=True, missing=self.missing != "refuse")
        weights = check_weights(sample_weight, len(points))
        rows = len(points[_select_weighted(weights)])
        check_size(params, len(points), rows)
        if devices is None:
            _warn_of_devices(y, len(points), self.n_clusters)
        self._columns = columns
        resolved, shards = assign_rows(params, points, weights, devices)
        shards = replace(shards, features=self._name_features(X))
        shards, weights = self._hold_out(shards, weights, resolved.seed)
        k_max = find_k_max(params, shards.m)
        points = self._learn_fill_values(points, weights)
        self._n_init, self.wire_bytes_, lowest = count_runs(self.get_params(deep=False)), 0, np.inf
        for seed in derive_seeds(resolved.seed, self._n_init):
            start = None if centroids is None else make_start(centroids, points, self.n_clusters, seed)
            result = self._run(resolved, resolved.graph, shards, seed, k_max, _repeat(start, resolved.devices))
            labels, inertia = self._label_rows(result, points, weights, devices)
            if inertia < lowest or seed == resolved.seed:
                lowest, self.inertia_, self.labels_, best = inertia, inertia, labels, result
        _check_centroids(best)
        self._store(best, points.dtype)
        self._warn(resolved, weights)
        return self

    def partial_fit(self, X: Any, y: Any = None, *, devices: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Continue from the centroids of the last fit on new rows, which replace the earlier rows.

        Devices, graph and number of clusters remain those of the first fit; a device may be without rows. Each device
        starts from its last centroids, without initialization. Without an earlier fit this is `fit`. Attributes
        describe this call, except `wire_bytes_`, to which its bytes are added.

        Parameters
        ----------
        X : array_like, sparse matrix or table of shape (n_samples, n_features)
            At least as many rows of positive weight as clusters.
        y : Ignored
        devices : array_like of int or str of shape (n_samples,), optional
            Device of each row, by its name in `device_names_`, or by its number from 0. Only devices of the first call
            are accepted: if devices join later, number them from 0 in all calls and set `n_devices`. None: rows are
            assigned at random, in equal numbers.
        sample_weight : array_like of shape (n_samples,), optional
            As in `fit`.

        Raises
        ------
        ValueError
            If rows or devices cannot be used, or the method does not accept initial centroids, such as server methods
            and methods with groups.
        """
        if "device_centers_" not in vars(self):
            return self.fit(X, y, devices=devices, sample_weight=sample_weight)
        check(self.get_params(deep=False))
        self._require_devices(devices)
        points, (n, k, _) = self._check(X, fill=False), self.device_centers_.shape
        weights = check_weights(sample_weight, len(points))
        weighted = _select_weighted(weights)
        rows = points[weighted]
        params, _ = split_init(self.get_params(deep=False))
        params |= {"n_devices": n} | ({} if self.n_clusters != "auto" else {"n_clusters": k})
        check_size(params, len(rows), len(rows))
        resolved = arrange(params, len(rows), None)[0]
        if devices is None:
            owner = iid(len(rows), n, seed=resolved.seed)
        else:
            owner = _find_owners(devices, len(points), self.device_names_)[weighted]
        names = None if self._topology is None else self._topology.names
        shards = _build_shards(rows, owner, weights[weighted], n, names)
        shards, weights = self._hold_out(shards, weights, resolved.seed)
        start = self.device_centers_.astype(np.float64)
        result = self._run(resolved, self._topology, shards, resolved.seed, None, start)
        _check_centroids(result)
        self._store(result, points.dtype)
        points = self._learn_fill_values(points, weights)
        self.labels_, self.inertia_ = self._label_rows(result, points, weights, devices)
        self._warn(resolved, weights)
        return self

    def fit_predict(self, X: Any, y: Any = None, *, devices: Any = None, sample_weight: Any = None) -> Integers:  # noqa: N803
        """Fit and return `labels_`, int64[n_samples]; arguments as in `fit`."""
        return self.fit(X, y, devices=devices, sample_weight=sample_weight).labels_

    def fit_transform(self, X: Any, y: Any = None, *, devices: Any = None, sample_weight: Any = None) -> Points:  # noqa: N803
        """Fit and return the distance of each row to each row of `cluster_centers_`; arguments as in `fit`.

        With `personalized` to the rows of `device_centers_` of the device of the row.
        """
        fitted = self.fit(X, y, devices=devices, sample_weight=sample_weight)
        return fitted.transform(X, devices if self.personalized else None)

    def predict(self, X: Any, devices: Any = None) -> Integers:  # noqa: N803
        """Return the nearest centroid of each row, int64[n_samples].

        Parameters
        ----------
        X : array_like, sparse matrix or table of shape (n_samples, n_features)
        devices : array_like of int or str of shape (n_samples,), optional
            Device of each row, by its name in `device_names_`, or by its number from 0. Labels then refer to the rows
            of `device_centers_` of this device, -1 if all its centroids are absent. None: to `cluster_centers_`; an
            error with `personalized`. For a device that was not in `fit` see ``result_.adapt``.
        """
        parts = [self._label(points, unweighted(len(points)), owner)[0]
                 for points, owner, *_ in self._read_blocks(X, devices)]  # fmt: skip
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def transform(self, X: Any, devices: Any = None) -> Points:  # noqa: N803
        """Return the distance of each row to each centroid, of shape (n_samples, n_clusters).

        Parameters
        ----------
        X : array_like, sparse matrix or table of shape (n_samples, n_features)
        devices : array_like of int or str of shape (n_samples,), optional
            As in `predict`: distances to the rows of `device_centers_` of the device of the row, +inf to absent
            centroids. Unless `personalized`, equal columns of different devices need not be the same cluster. None:
            distances to `cluster_centers_`.
        """
        sets = (self.cluster_centers_[None] if devices is None else self.device_centers_).astype(np.float64)
        parts = list[Points]()
        for points, owner, *_ in self._read_blocks(X, devices):
            distances = np.empty((len(points), sets.shape[1]), points.dtype)
            for block in blocks(*points.shape):
                for j in range(sets.shape[1]):
                    center = sets[0, j] if owner is None else sets[owner[block], j]
                    distances[block, j] = np.sqrt(((points[block] - center) ** 2).sum(axis=1))
            parts.append(distances)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def score(self, X: Any, y: Any = None, *, devices: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the negative inertia of the rows: larger is better.

        Parameters
        ----------
        X : array_like, sparse matrix or table of shape (n_samples, n_features)
        y : Ignored
        devices : array_like of int or str of shape (n_samples,), optional
            As in `predict`: inertia with the centroids of the device of each row; -inf if such a device has no
            centroids. None: with `cluster_centers_`, as `inertia_`.
        sample_weight : array_like of shape (n_samples,), optional
            As in `fit`.
        """
        inertia, weights = 0.0, None
        for points, owner, rows, m in self._read_blocks(X, devices):
            weights = check_weights(sample_weight, m) if weights is None else weights
            inertia += self._label(points, weights[rows], owner)[1]
        return -inertia

    def report(self) -> Any:
        """Create the HTML report of the last fit, for notebooks; see `Result.report`."""
        check_is_fitted(self)
        return self.result_.report()

    def __sklearn_tags__(self) -> Any:
        """Declare capabilities to the tools of scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = [np.dtype(kind).name for kind in KINDS]
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.missing != "refuse"
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _read_blocks(self, X: Any, devices: Any) -> Iterator[tuple[Points, Integers | None, slice, int]]:  # noqa: N803
        """Check rows, in blocks if they are sparse; yield points, their devices, rows and the number of all rows."""
        check_is_fitted(self)
        self._require_devices(devices)
        owner = None
        for rows, block, total in split_rows(X):
            try:
                points = self._check(block)
            except DataError as error:
                if not rows.start:
                    raise
                raise DataError(f"in the rows of X from row {rows.start} on, of which it is 0: {error}") from None
            m = len(points) if total is None else total
            if devices is not None and owner is None:
                owner = _find_owners(devices, m, self.device_names_)
            yield points, None if owner is None else owner[rows], rows, m

    def _label(self, points: Points, weights: Floats, owner: Integers | None) -> tuple[Integers, float]:
        """Find the centroid of each row as in `Result.predict`, int64[m], and the inertia."""
        if owner is None:
            return _assign(points, weights, self.cluster_centers_)
        return _assign_by_device(points, weights, owner, self.device_centers_, self._penalties)

    def _label_rows(self, result: Result, points: Points, weights: Floats, devices: Any) -> tuple[Integers, float]:
        """Find the centroid of each row of the fit, int64[m], and the inertia."""
        if not self.personalized:
            return _assign(points, weights, _find_centers(result).astype(points.dtype))
        names = list_devices(result.topology.names, len(result.centroids))
        owner = _find_owners(devices, len(points), names)
        centers, penalties = self._find_device_centers(result)
        return _assign_by_device(points, weights, owner, centers.astype(points.dtype), penalties)

    def _find_device_centers(self, result: Result) -> tuple[Floats, Floats | None]:
        """Find the centroids of all devices, float64[n, k, d], and the penalties of labels, float64[n, k] or None."""
        if not self.personalized:
            return result.centroids, result.label_penalties
        parts = (
            None if part is None else order_rows(part, result.cluster_numbers)
            for part in (result.centroids, result.label_penalties)
        )
        return cast(Any, tuple(parts))

    def _require_devices(self, devices: Any) -> None:
        """Reject rows without devices if the answer depends on them."""
        if self.personalized and devices is None:
            raise DataError(
                "personalized=True requires the device of each row, but devices is None. Pass devices=, or use "
                "personalized=False"
            )

    def _check(self, X: Any, *, fill: bool = True) -> Points:  # noqa: N803
        """Check rows of the same columns as those of `fit`, and fill in missing values."""
        check_is_fitted(self)
        points = read_rows(self, X, self._columns, reset=False, missing=self.missing != "refuse")[0]
        points = fill_in(points, self._fill_values) if fill else points
        check_near(check_magnitude(points, "X", missing=not fill), self.cluster_centers_, "X and the centroids")
        return points

    def _learn_fill_values(self, points: Points, weights: Floats) -> Points:
        """Set `fill_values_`, and return the rows without missing values."""
        self._fill_values = None if self.missing == "refuse" else find_fill_values(points, weights, self.missing)
        self._set_optional("fill_values_", self._fill_values)
        return fill_in(points, self._fill_values)

    def _set_optional(self, name: str, value: Any) -> None:
        """Set a fitted attribute, or remove that of an earlier fit if the value is None."""
        self.__dict__.pop(name, None)
        if value is not None:
            setattr(self, name, value)

    def _name_features(self, X: Any) -> tuple[str, ...] | None:  # noqa: N803
        """Name the features and set `center_names_`; None if the columns have no names."""
        features = None
        if self._columns is not None and name_features(X) is not None:
            features = tuple(name for column in self._columns for name in column.features)
        self._set_optional("center_names_", None if features is None else np.array(features, object))
        return features

    def _hold_out(self, shards: Shards, weights: Floats, seed: int) -> tuple[Shards, Floats]:
        """Turn a share of the rows of each device into test rows; the weights of these become 0."""
        if not self.test_share:
            return shards, weights
        tested, _ = hold_out(shards, self.test_share, seed)
        remaining = np.array(weights)
        remaining[np.arange(len(weights))[_select_weighted(weights)][tested.tests.rows]] = 0.0
        return tested, remaining

    def _run(
        self, resolved: ResolvedParameters, graph: Any, shards: Shards, seed: int, k_max: int | None, start: Any
    ) -> Result:
        """Run the method, and print its rounds if asked to."""
        result = simulate(
            resolved.method,
            graph,
            shards,
            rounds=self.max_iter,
            seed=seed,
            baselines=self.test_share > 0.0,
            missing=cast(Any, self.missing),
            clusters=None if k_max is None else "auto",
            k_max=k_max,
            start=start,
        )
        self.wire_bytes_ += int(result.summary["wire_bytes"])
        if self.verbose and connect().rank == 0:
            print(list_rounds(result, resolved.method))
        return result

    def _store(self, result: Result, dtype: Any) -> None:
        """Set the fitted attributes from the result of a run; centroids have the type of the rows."""
        self.result_: Any = result
        self.cluster_centers_ = _find_centers(result).astype(dtype)
        centers, self._penalties = self._find_device_centers(result)
        self.device_centers_ = centers.astype(dtype, copy=False)
        names = result.topology.names
        self.device_names_ = list_devices(names, len(result.centroids))
        self.groups_ = result.groups
        self.n_clusters_, self.n_iter_ = int(result.summary["clusters"]), int(result.summary["rounds"])
        self.graph_ = result.to_networkx() if result.topology.n <= LARGE else result.graph
        self.history_, self.ledger_ = result.rounds, result.ledger
        self._topology = result.topology if result.topology.hub < 0 else None

    def _warn(self, resolved: ResolvedParameters, weights: Floats) -> None:
        """Warn if the run has reached the round limit, or has found fewer clusters than requested."""
        if self.result_.summary["termination"] == "round-limit" and resolved.method.tol > 0.0:
            text = f"{resolved.method.name} did not converge within max_iter={self.max_iter} rounds."
            warn(f"{text} Increase max_iter or tol", ConvergenceWarning, "rounds")
        clusters = np.count_nonzero(np.bincount(1 + self.labels_[_select_weighted(weights)]))
        # The centroids of one device need not fit the rows of other groups.
        if clusters < self.n_clusters_ and (self.groups_ is None or not self.groups_.any()):
            warn(
                f"Number of distinct clusters ({clusters}) found smaller than n_clusters ({self.n_clusters_}). "
                "Possibly due to duplicate points in X.",
                ConvergenceWarning,
                "clusters",
            )


def _check_centroids(result: Result) -> None:
    """Reject a run in which no device has a centroid: it has no clusters and no labels."""
    if not (result.centroids < np.inf).any():
        raise DataError(result.summary["failure"] or "no device has a centroid")


def check_weights(sample_weight: ArrayLike | None, m: int) -> Floats:
    """Check and return the weight of each row, float64[m].

    Raises
    ------
    DataError
        If the shape is wrong, or weights are not finite numbers of at least 0, one of them positive.
    """
    if sample_weight is None:
        return unweighted(m)
    weights = as_floats(sample_weight, "sample_weight")
    if weights.ndim == 0:
        weights = np.broadcast_to(weights, (m,))
    if weights.shape != (m,):
        raise DataError(f"sample_weight has shape {weights.shape}; expected ({m},): one for each row")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if wrong.size:
        raise DataError(
            f"sample_weight is {weights[wrong[0]]} at row {wrong[0]} (counted from 0); expected finite numbers of at "
            "least 0"
        )
    if not weights.any():
        raise DataError("every sample_weight is zero; expected at least one positive weight")
    return weights


def _find_centers(result: Result) -> Floats:
    """Find the centroids of the device of lowest cost, without absent ones."""
    best: Floats = result.centroids[result.best]
    return best[best[:, 0] < np.inf]


def _repeat(start: Floats | None, n: int) -> Floats | None:
    """Repeat centroids for each device, float64[n, k, d]."""
    return None if start is None else np.broadcast_to(start, (n, *start.shape))


def _are_discrete(values: NDArray[Any]) -> bool:
    """Check whether all values are whole numbers or text."""
    return values.dtype.kind in "iuUS" or (
        values.dtype.kind == "O" and all(isinstance(value, (str, Integral)) for value in values)
    )


def _read_devices(devices: Any, m: int) -> NDArray[Any]:
    """Convert the device of each row to an identifier, int64[m] or object[m] of str."""
    array = np.asarray(devices)
    raw = None if array.shape != (m,) else to_raw(devices, "devices")
    if raw is not None:
        require_complete(raw, "devices")
        require_assigned(raw, "devices", UNASSIGNED)
    if raw is None or find_missing(raw).any() or (array.dtype.kind == "f" and raw.dtype.kind == "O"):
        raise DataError(
            f"devices has shape {array.shape} and dtype {array.dtype}; expected ({m},) whole numbers from 0 or names, "
            "one for each row"
        )
    return raw


def _find_owners(devices: Any, m: int, names: NDArray[Any]) -> Integers:
    """Find the number of the device of each row, int64[m], by the names of the fit.

    If the names are not numbers, whole numbers are device numbers from 0.
    """
    raw, kinds = _read_devices(devices, m), identify(to_raw(names, "device_names_"))
    owner = np.append(np.argsort(kinds.codes), -1)[locate(raw, kinds.kinds)]
    unknown = identify(raw[owner < 0]).kinds
    if not len(unknown):
        return owner
    if raw.dtype.kind == "i" and not are_numbers(to_raw(names, "device_names_")):
        if raw.min() < 0 or raw.max() >= len(names):
            raise DataError(
                f"devices are {raw.min()} to {raw.max()}; expected 0 to {len(names) - 1}, as in fit. For the centroids "
                "of another device use result_.adapt(X, neighbors=[...])"
            )
        return raw
    listed = ", ".join(repr(name) for name in unknown[:_MOST].tolist())
    raise DataError(
        f"devices contains {listed}; expected names in device_names_: the first fit must name all devices. For the "
        "centroids of another device use result_.adapt(X, neighbors=[...]). If devices join later, number them from 0 "
        "and set n_devices"
    )


def list_devices(names: tuple[str, ...] | None, n: int) -> NDArray[Any]:
    """List the names of the devices, without a server; names that are all integers become integers again."""
    if names is None:
        return np.arange(n)
    of_devices = list(names[:n])
    return np.array([int(name) for name in of_devices] if all(map(is_integer, of_devices)) else of_devices)


def _select_weighted(weights: Floats) -> Any:
    """Select the rows of positive weight."""
    # Without given weights, the array is a zero-stride view of the number 1: all rows, without a copy.
    return np.flatnonzero(weights > 0) if any(weights.strides) else slice(None)


def assign_rows(
    params: Mapping[str, Any], points: Points, weights: Floats, devices: Any
) -> tuple[ResolvedParameters, Shards]:
    """Resolve the parameters, and assign the rows of positive weight to their devices, or at random.

    Parameters
    ----------
    params : mapping
        Parameters of `P2PKMeans`.
    points : float64[m, d] or float32[m, d]
        All rows.
    weights : float64[m]
        Weight of each row, from `check_weights`.
    devices : array_like or None
        As in `P2PKMeans.fit`.

    Raises
    ------
    ValueError
        If devices or a parameter cannot be used.
    """
    weighted = _select_weighted(weights)
    rows = points[weighted]
    identifiers = None if devices is None else _read_devices(devices, len(points))
    resolved, all_owners, names = arrange(params, len(rows), identifiers)
    owner = iid(len(rows), resolved.devices, seed=resolved.seed) if all_owners is None else all_owners[weighted]
    return resolved, _build_shards(rows, owner, weights[weighted], resolved.devices, names)


def _build_shards(
    points: Points, owner: Integers, weights: Floats, devices: int, names: tuple[str, ...] | None
) -> Shards:
    """Assign rows to their devices; weights that are all 1 are not stored."""
    stored = None if (weights == 1.0).all() else weights
    shards = Shards.deal(points, owner, devices=devices, weights=stored, dtype=points.dtype, missing=True)
    return replace(shards, names=names)


def _warn_of_devices(y: Any, m: int, n_clusters: Any) -> None:
    """Warn that y is ignored if it is more likely to be the devices of the rows than their classes."""
    array = np.empty(0) if y is None else np.asarray(y)
    if array.shape != (m,) or not _are_discrete(array):
        return
    kinds = len(set(array.tolist()))
    if 1 < kinds <= m // 2 and kinds != n_clusters:
        warn(
            f"y is ignored, and rows are assigned to devices at random. If its {kinds} values are the devices of the "
            "rows, pass them as devices=",
            UserWarning,
            "y",
        )


def _assign_by_device(
    points: Points, weights: Floats, owner: Integers, centers: Points, penalties: Floats | None
) -> tuple[Integers, float]:
    """Find the centroid of its device for each row, int64[m], and the weighted sum of squared distances.

    Parameters
    ----------
    owner : int64[m]
        Device of each row.
    centers : float[n, k, d]
    penalties : float64[n, k] or None
        Penalties of the labels, as in `Result.label_penalties`.
    """
    n = len(centers)
    rows, offsets = sort_by(owner, n)
    sets, labels = centers.astype(np.float64), np.empty(len(points), np.int64)
    kernels = select_kernels(1, n, points.size * sets.shape[1])
    sorted_points, sorted_weights = points[rows].astype(np.float64), np.ascontiguousarray(weights[rows])
    if penalties is not None:
        sorted_points, sets = widen(sorted_points), add_penalties(sets, penalties)
    costs, labels[rows] = kernels.losses(sorted_points, sorted_weights, offsets, sets)
    inertia = float(np.cumsum(costs)[-1])
    if penalties is not None:
        inertia -= float((weights * penalties[owner, labels]).sum())
    return labels, inertia


def _assign(points: Points, weights: Floats, centers: Points) -> tuple[Integers, float]:
    """Find the nearest center of each row, int64[m], and the weighted sum of squared distances."""
    sets: Floats = centers[None].astype(np.float64)
    labels, inertia = np.empty(len(points), np.int64), 0.0
    kernels, inputs = select_kernels(1, 1, points.size * len(centers)), (points, weights)
    for block in blocks(len(points), centers.size):
        # The compiled kernel accepts only contiguous, writable float64 arrays.
        block_points, block_weights = (np.require(array[block], np.float64, ["C", "W"]) for array in inputs)
        costs, labels[block] = kernels.losses(block_points, block_weights, np.array([0, len(block_points)]), sets)
        inertia += float(costs[0])
    return labels, inertia
