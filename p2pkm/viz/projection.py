"""Projection of points with many features to the plane of a figure."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats
from topologies.single_thread import single_thread

if TYPE_CHECKING:
    from p2pkm.metrics.result import Result

# Most values that a principal component analysis reads; of larger samples every second, third ... point is used.
_ANALYZED = 2_000_000


class Projection2D(NamedTuple):
    """Linear map from features to the plane of a figure.

    Attributes
    ----------
    middle : float64[d]
        Point that is mapped to the origin.
    axes : float64[d, 2]
        Directions of the axes.
    names : tuple of str
        Labels of the axes; with one feature, the second is empty.
    note : str
        Share of the variance that is shown; empty if all features are.
    """

    middle: Floats
    axes: Floats
    names: tuple[str, str]
    note: str

    @single_thread()
    def place(self, table: Floats) -> Floats:
        """Project the rows of a table, float64[rows, 2]; absent rows become NaN."""
        present = np.isfinite(table).all(axis=-1, keepdims=True)
        return np.where(present, np.where(present, table - self.middle, 0.0) @ self.axes, np.nan)


def choose_projection(result: "Result") -> Projection2D:
    """Choose the projection: identity for up to two features, else two principal components of the sample."""
    sample = result.census.sample
    d = sample.shape[1]
    if d <= 2:
        units = "" if result.scaling is None else " (scaled)"
        labels = [f"{name}{units}" for name in result.feature_names]
        return Projection2D(np.zeros(d), np.eye(d, 2), (labels[0], labels[1] if d == 2 else ""), "")
    return find_components(sample)


@single_thread()
def find_components(sample: Floats) -> Projection2D:
    """Compute the projection of points, float64[m, d], to their two principal components."""
    d = sample.shape[1]
    step = max(1, -(-sample.size // _ANALYZED))
    middle = sample.mean(axis=0) if len(sample) else np.zeros(d)
    _, lengths, axes = np.linalg.svd(sample[::step] - middle, full_matrices=False)
    axes = np.concatenate((axes, np.eye(d)))[:2]
    # The sign of a singular vector is arbitrary; its largest entry is made positive.
    axes = axes * np.where(axes[np.arange(2), np.abs(axes).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
    total = float((lengths**2).sum())
    shares = [100 * float(length) ** 2 / total if total > 0 else 0.0 for length in [*lengths, 0.0, 0.0][:2]]
    names = (f"principal component 1 ({shares[0]:.0f} %)", f"principal component 2 ({shares[1]:.0f} %)")
    note = f"principal components 1 and 2 of {d} features: {sum(shares):.0f} % of the variance"
    return Projection2D(middle, axes.T, names, note)
