"""Scaler for pipelines whose means and standard deviations are computed by messages between the devices.

Imported when ``p2pkm.P2PStandardScaler`` is first used, because its base classes require scikit-learn.
"""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from p2pkm.core.errors import DataError
from p2pkm.core.validation import check_values
from p2pkm.data.readers.frame import CATEGORY
from p2pkm.experiments.estimators.estimator import P2PKMeans, assign_rows, check_weights, list_devices
from p2pkm.experiments.estimators.parameters import check
from p2pkm.experiments.estimators.rows import KINDS, Points, read_rows
from p2pkm.experiments.estimators.table import Column
from p2pkm.experiments.simulate import simulate

_STAGE = "standardization"  # name of the stage in the records


class P2PStandardScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Standardize features by mean and standard deviation of all rows, computed without a server.

    Weight, mean and squared deviations of the rows are merged up a spanning tree, and the result is sent down to all
    devices (`p2pkm.methods.init.standardization`, the stage of ``--scale standard``). In a pipeline with `P2PKMeans`,
    use the same `graph`, `random_state` and `devices` for both: then the centroids equal those of
    ``p2pkm.simulate(..., scale="standard")``.

    Parameters
    ----------
    graph, n_devices, random_state
        As in `P2PKMeans`.

    Attributes
    ----------
    mean_, scale_ : ndarray of shape (n_features,)
        Mean and standard deviation of each feature; a scale of 1 replaces a deviation of 0.
    messages_, bytes_ : int
        Messages sent by `fit`, and their plain bytes (8 per value).
    device_names_ : ndarray of shape (n_devices,)
        As in `P2PKMeans`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Only if the columns have names.

    Examples
    --------
    >>> import p2pkm
    >>> from sklearn.pipeline import make_pipeline
    >>> X, y = p2pkm.blobs(clusters=3, points=40, seed=0)
    >>> scaler = p2pkm.P2PStandardScaler(random_state=0)
    >>> pipeline = make_pipeline(scaler, p2pkm.P2PKMeans(3, random_state=0)).fit(X)
    >>> scaler.messages_ > 0, len(pipeline[-1].cluster_centers_)
    (True, 3)
    """

    def __init__(self, *, graph: Any = "ring", n_devices: int | None = None, random_state: Any = None) -> None:
        self.graph = graph
        self.n_devices = n_devices
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, devices: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Compute mean and standard deviation by messages between the devices.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
        y : Ignored
        devices : array_like of int or str of shape (n_samples,), optional
            As in `P2PKMeans.fit`.
        sample_weight : array_like of shape (n_samples,), optional
            As in `P2PKMeans.fit`.

        Raises
        ------
        ValueError
            If rows, devices or graph cannot be used.
        """
        params = P2PKMeans(1).get_params(deep=False) | self.get_params(deep=False)
        check(params)
        points = self._read(X, reset=True)
        resolved, shards = assign_rows(params, points, check_weights(sample_weight, len(points)), devices)
        # A run of no rounds: only the scaling stage is needed, so initialization is skipped as well.
        result = simulate(
            resolved.method,
            resolved.graph,
            shards,
            rounds=0,
            seed=resolved.seed,
            baselines=False,
            scale="standard",
            start=np.zeros((resolved.devices, 1, points.shape[1])),
        )
        self.mean_, self.scale_ = (part[0].copy() for part in result.scaling or ())
        records = [record for record in result.rounds if record["stage"] == _STAGE]
        self.messages_ = int(records[-1]["messages"])
        self.bytes_ = int(records[-1]["bytes"])
        self.device_names_ = list_devices(result.topology.names, resolved.devices)
        return self

    def transform(self, X: Any) -> Points:  # noqa: N803
        """Subtract the means and divide by the standard deviations."""
        check_is_fitted(self)
        points = self._read(X, reset=False)
        return ((points - self.mean_) / self.scale_).astype(points.dtype, copy=False)

    def inverse_transform(self, X: Any) -> Points:  # noqa: N803
        """Convert rows, such as centroids, back to the units of the data."""
        check_is_fitted(self)
        check_values(X, "X")
        points = np.asarray(X)
        return points * self.scale_ + self.mean_

    def _read(self, X: Any, *, reset: bool) -> Points:  # noqa: N803
        """Read rows as `P2PKMeans` reads them, but refuse what would change the number of columns or lose zeros."""
        if hasattr(X, "toarray"):
            raise TypeError(
                "X is a sparse matrix, whose zeros would not stay zeros; expected an array. Use X.toarray()"
            )
        points, columns = read_rows(self, X, None if reset else self._columns, reset=reset, missing=False)
        category = next((column.name for column in columns or () if column.kind == CATEGORY), None)
        if category is not None:
            raise DataError(
                f"column {category!r} contains categories; expected numbers or times. Encode it, for example with "
                "sklearn.preprocessing.OneHotEncoder, or scale the other columns alone with a ColumnTransformer"
            )
        self._columns: tuple[Column, ...] | None = columns
        return points

    def __sklearn_tags__(self) -> Any:
        """Declare capabilities to the tools of scikit-learn."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = [np.dtype(kind).name for kind in KINDS]
        return tags
