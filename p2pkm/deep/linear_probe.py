"""How much of the classes features hold: a linear classifier on them (scikit-learn), on images that it has not seen."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.validation import as_points, check_integer
from p2pkm.data.random import generator
from p2pkm.data.table import encode
from topologies.single_thread import single_thread

_ITERATIONS = 1000
_LEAST = 1e-9  # standard deviation below which a feature is constant and does not count


class Probe(NamedTuple):
    """Accuracies of a linear classifier on images held out.

    Attributes
    ----------
    accuracy : float
        Trained on the labels of all other images.
    accuracy_few : float
        Trained on a few of each class.

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
    """Return how well a linear classifier tells classes by features.

    Multinomial logistic regression (scikit-learn, C = 1) on features that are standardized by mean and standard
    deviation of the training part. Nothing is chosen by the images held out.

    Parameters
    ----------
    features : array_like of float64[m, b]
    labels : array_like of shape (m,)
        Classes, numbers or names.
    seed : int
        Which images are held out, and which few are taken.
    per_class : int
        Images of each class that the second classifier is trained on; all, of a class with fewer.
    held_out : array_like of bool[m], optional
        Images to test on; None: a fifth of every class, from `hold_out`.

    Raises
    ------
    DataError
        If there are no labels, fewer than two classes, or a class with all of its images or none held out.

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
        raise DataError("every class needs an image to train on, and some image must be held out; hold out fewer")
    rng = generator(seed, "probe")
    chosen = np.concatenate([rng.permutation(own)[:few] for own in trained])
    return Probe(*(_fit(values, classes, rows, tested) for rows in (np.concatenate(trained), chosen)))


def hold_out(labels: ArrayLike, seed: int = 0) -> NDArray[np.bool_]:
    """Return which images are held out: a fifth of every class, at least one, drawn from the seed; bool[m]."""
    values, tested = np.asarray(labels), np.zeros(np.shape(labels), bool)
    rng = generator(seed, "hold-out")
    for one in np.unique(values):
        own = rng.permutation(np.flatnonzero(values == one))
        tested[own[: max(1, round(len(own) / 5))]] = True
    return tested


def check_labels(labels: ArrayLike | None, m: int) -> NDArray[np.integer[Any]]:
    """Return the classes of m images as numbers 0 to c - 1.

    Raises
    ------
    DataError
        If there are none, of one class alone, or a class has one image.
    """
    if labels is None:
        raise DataError("a linear probe needs the class of every image, and there are no labels; give labels")
    classes = encode(labels, m, "labels")
    sizes = np.bincount(classes)
    if len(sizes) < 2:
        raise DataError("all images are of one class, so there is nothing to tell apart; expected two classes or more")
    if sizes.min() < 2:
        raise DataError(
            f"a class has {sizes.min()} image; expected two or more in each of the {len(sizes)}, to train and to test"
        )
    return classes


@single_thread("sklearn.linear_model")
def _fit(values: NDArray[Any], classes: NDArray[Any], rows: NDArray[Any], tested: NDArray[np.bool_]) -> float:
    from sklearn.linear_model import LogisticRegression

    middle, spread = values[rows].mean(axis=0), values[rows].std(axis=0)
    scaled = (values - middle) * np.where(spread > _LEAST, 1 / np.maximum(spread, _LEAST), 0.0)
    fitted = LogisticRegression(C=1.0, max_iter=_ITERATIONS).fit(scaled[rows], classes[rows])
    return float(fitted.score(scaled[tested], classes[tested]))
