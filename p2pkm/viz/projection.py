"""From many features to the two directions of a picture."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats
from topologies.single_thread import single_thread

if TYPE_CHECKING:
    from p2pkm.metrics.result import Result

_ANALYZED = 2_000_000  # numbers; the principal components are those of at most so many


class Projection2D(NamedTuple):
    """Where points stand in a picture.

    Attributes
    ----------
    middle : float64[d]
    axes : float64[d, 2]
    names : tuple of str
        Of the axes of the picture; of one feature the second has none.
    note : str
        What the picture leaves out.
    """

    middle: Floats
    axes: Floats
    names: tuple[str, str]
    note: str

    @single_thread()
    def place(self, table: Floats) -> Floats:
        """Return the rows of a table in the picture, float64[rows, 2]; absent ones at NaN."""
        there = np.isfinite(table).all(axis=-1, keepdims=True)
        return np.where(there, np.where(there, table - self.middle, 0.0) @ self.axes, np.nan)


def choose_projection(result: "Result") -> Projection2D:
    """Return how tables of so many features are drawn: as they are, or on two principal components of the sample."""
    sample = result.census.sample
    d = sample.shape[1]
    if d <= 2:
        units = "" if result.scaling is None else " (scaled)"
        called = [f"{name}{units}" for name in result.feature_names]
        return Projection2D(np.zeros(d), np.eye(d, 2), (called[0], called[1] if d == 2 else ""), "")
    return find_components(sample)


@single_thread()
def find_components(sample: Floats) -> Projection2D:
    """Return how points, float64[m, d], are drawn on their two principal components."""
    d, step = sample.shape[1], max(1, -(-sample.size // _ANALYZED))
    middle = sample.mean(axis=0) if len(sample) else np.zeros(d)
    _, lengths, axes = np.linalg.svd(sample[::step] - middle, full_matrices=False)
    axes = np.concatenate((axes, np.eye(d)))[:2]
    axes = axes * np.where(axes[np.arange(2), np.abs(axes).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
    total = float((lengths**2).sum())
    shares = [100 * float(length) ** 2 / total if total > 0 else 0.0 for length in [*lengths, 0.0, 0.0][:2]]
    names = (f"principal component 1 ({shares[0]:.0f} %)", f"principal component 2 ({shares[1]:.0f} %)")
    note = f"principal components 1 and 2 of {d} features: {sum(shares):.0f} % of the variance"
    return Projection2D(middle, axes.T, names, note)
