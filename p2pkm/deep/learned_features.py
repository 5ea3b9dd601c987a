"""What deep clustering learned, as `Result.learned` has it."""

from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.brief import short_repr
from p2pkm.metrics.result import Result


class LearnedFeatures(NamedTuple):
    """What a method learned that clusters features of a network, see `p2pkm.deep`.

    Attributes
    ----------
    theta : float32[n, P]
        Last parameters of every device, of a star the hub's too.
    features : float64[m, D]
        What is clustered, of every point under the last parameters of its device, in the order of `Census.device`.
    labels : int64[T + 1, m]
        Pseudo-labels by every clustering: row t is what round t + 1 was trained on, the last row belongs to the last
        parameters; -1: none. Without any round of shape [0, m].
    """

    theta: Any
    features: Floats
    labels: Integers

    def __repr__(self) -> str:
        return short_repr(self)


def collect_learned(result: Result) -> LearnedFeatures | None:
    """Return parameters, features and labels of a run of deep clustering, None of other methods."""
    derived = result.derived
    if "theta" not in derived:
        return None
    return LearnedFeatures(derived["theta"], derived["features"], np.ascontiguousarray(derived["labels"].T))
