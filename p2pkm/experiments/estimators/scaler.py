"""A scaler for pipelines whose mean and deviation the devices find by messages.

Imported when ``p2pkm.P2PStandardScaler`` is first used: its parents are scikit-learn's.
"""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from p2pkm.experiments.estimators.estimator import KINDS, P2PKMeans, Points, deal_rows, list_devices, weigh
from p2pkm.experiments.estimators.parameters import check
from p2pkm.experiments.simulate import simulate

_STAGE = "standardization"


class P2PStandardScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Standardize features by mean and deviation of all rows, which the devices find without a server.

    Every device floods weight, mean and squared deviations of its own rows (`p2pkm.methods.init.standardization`, the
    stage of ``--scale standard``); so all find the same. In a pipeline with `P2PKMeans`, give both the same graph, the
    same `random_state` and the same `devices`; then centroids are those of ``p2pkm.simulate(..., scale="standard")``.

    Parameters
    ----------
    graph, n_devices, random_state
        As of `P2PKMeans`.

    Attributes
    ----------
    mean_, scale_ : ndarray of shape (n_features,)
        Mean and standard deviation; 1 where the deviation is 0.
    messages_, bytes_ : int
        What was sent for them: messages, and bytes (8 per number).
    device_names_ : ndarray of shape (n_devices,)
        As of `P2PKMeans`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Where the columns have names.

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
        """Let the devices find mean and deviation.

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
        points = validate_data(self, X, dtype=KINDS, order="C")
        given = P2PKMeans(1).get_params(deep=False) | self.get_params(deep=False)
        check(given, len(points))
        at, shards = deal_rows(given, points, weigh(sample_weight, len(points)), devices)
        start = np.zeros((at.devices, 1, points.shape[1]))
        result = simulate(at.method, at.graph, shards, rounds=0, seed=at.seed, baselines=False, scale="standard",
                          start=start)  # fmt: skip
        self.mean_, self.scale_ = (part[0].copy() for part in result.scaling or ())
        own = [record for record in result.rounds if record["stage"] == _STAGE]
        self.messages_, self.bytes_ = int(own[-1]["messages"]), int(own[-1]["bytes"])
        self.device_names_ = list_devices(result.topology.names, at.devices)
        return self

    def transform(self, X: Any) -> Points:  # noqa: N803
        """Return the rows in the units of the deviations, from the means."""
        check_is_fitted(self)
        points = validate_data(self, X, dtype=KINDS, order="C", reset=False)
        return ((points - self.mean_) / self.scale_).astype(points.dtype, copy=False)

    def inverse_transform(self, X: Any) -> Points:  # noqa: N803
        """Return rows, such as centroids, in the units of the data."""
        check_is_fitted(self)
        points = np.asarray(X)
        return points * self.scale_ + self.mean_

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn's tools should know."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = [np.dtype(kind).name for kind in KINDS]
        return tags
