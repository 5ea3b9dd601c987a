"""Linear probe: accuracy of a linear classifier on features, for images that it was not trained on (scikit-learn)."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.validation import as_points, check_integer
from p2pkm.data.random import generator
from p2pkm.data.table import encode
from topologies.single_thread import single_thread

_ITERATIONS = 1000
# Standard deviation below which a feature counts as constant, and is not used.
_LEAST_SD = 1e-9


class Probe(NamedTuple):
    """Accuracies of a linear classifier on held-out images.

    Attributes
    ----------
    accuracy : float
        Trained on the labels of all other images.
    accuracy_few : float
        Trained on a few labels of each class.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.Probe(accuracy=0.95, accuracy_few=0.8).accuracy_few
    0.8
    """

    accuracy: float
    accuracy_few: float


def linear_probe(
    features: ArrayLike, labels: ArrayLike | None, *, seed: int = 0, per_class: int = 5,
    held_out: ArrayLike | None = None,
) -> Probe:  # fmt: skip
    """Measure the accuracy of a linear classifier of the classes on features.

    Multinomial logistic regression (scikit-learn, C = 1) on features standardized by mean and standard deviation of the
    training part. The held-out images do not influence any choice.

    Parameters
    ----------
    features : array_like of float64[m, b]
    labels : array_like of shape (m,)
        Classes, numbers or names.
    seed : int
        Determines the held-out images, and the few labels of the second classifier.
    per_class : int
        Labels of each class for the second classifier; all if a class has fewer images.
    held_out : array_like of bool[m], optional
        Test images; default: one fifth of each class, from `hold_out`.

    Raises
    ------
    DataError
        If labels are missing, there are fewer than two classes, all images of a class are held out, or none is.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.iris()
    >>> p2pkm.linear_probe(X, y, per_class=5).accuracy > 0.8
    True
    """
    values = as_points(features, "features")
    classes = check_labels(labels, len(values))
    few = check_integer(per_class, 1, "per_class")
    tested = hold_out(classes, seed) if held_out is None else np.asarray(held_out, bool)
    count = int(classes.max()) + 1
    if tested.shape != classes.shape:
        raise DataError(f"held_out has shape {tested.shape}; expected {classes.shape}, one entry per image")
    trained = [np.flatnonzero((classes == c) & ~tested) for c in range(count)]
    if not tested.any() or not all(map(len, trained)):
        raise DataError(
            "every class requires an image for training, and some image must be held out. Change held_out, or remove it"
        )
    rng = generator(seed, "probe")
    chosen = np.concatenate([rng.permutation(members)[:few] for members in trained])
    return Probe(*(_fit(values, classes, rows, tested) for rows in (np.concatenate(trained), chosen)))


def hold_out(labels: ArrayLike, seed: int = 0) -> NDArray[np.bool_]:
    """Draw the held-out images, bool[m]: one fifth of each class, at least one image."""
    values, tested = np.asarray(labels), np.zeros(np.shape(labels), bool)
    rng = generator(seed, "hold-out")
    for label in np.unique(values):
        members = rng.permutation(np.flatnonzero(values == label))
        tested[members[: max(1, round(len(members) / 5))]] = True
    return tested


def check_labels(labels: ArrayLike | None, m: int) -> NDArray[np.integer[Any]]:
    """Encode the classes of m images as numbers 0 to c - 1.

    Raises
    ------
    DataError
        If labels are missing, all images have the same class, or a class has only one image.
    """
    if labels is None:
        raise DataError("a linear probe requires the class of every image, but labels is None. Add labels")
    classes = encode(labels, m, "labels")
    sizes = np.bincount(classes)
    if len(sizes) < 2:
        raise DataError("all images are of one class; expected at least two classes. Add images of other classes")
    if sizes.min() < 2:
        raise DataError(
            f"a class has {sizes.min()} image; expected at least 2 in each of the {len(sizes)} classes, to train and "
            "to test. Add images, or remove the class"
        )
    return classes


@single_thread("sklearn.linear_model")
def _fit(values: NDArray[Any], classes: NDArray[Any], rows: NDArray[Any], tested: NDArray[np.bool_]) -> float:
    from sklearn.linear_model import LogisticRegression

    middle, spread = values[rows].mean(axis=0), values[rows].std(axis=0)
    scaled = (values - middle) * np.where(spread > _LEAST_SD, 1 / np.maximum(spread, _LEAST_SD), 0.0)
    fitted = LogisticRegression(C=1.0, max_iter=_ITERATIONS).fit(scaled[rows], classes[rows])
    return float(fitted.score(scaled[tested], classes[tested]))
