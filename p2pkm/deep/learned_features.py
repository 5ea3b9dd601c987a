"""Result of deep clustering: parameters, features and labels in `Result.learned`."""

from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.brief import short_repr
from p2pkm.metrics.result import Result


class LearnedFeatures(NamedTuple):
    """Parameters, features and labels that a method of `p2pkm.deep` learned.

    Attributes
    ----------
    theta : float32[n, P]
        Final parameters of each device, including a server.
    features : float64[m, D]
        Features of each point under the final parameters of its device, in the order of `Census.device`.
    labels : int64[T + 1, m]
        Labels by each clustering: round t + 1 was trained on row t, and the last row belongs to the final parameters.
        -1 without a label. Shape [0, m] without any round.
    """

    theta: Any
    features: Floats
    labels: Integers

    def __repr__(self) -> str:
        return short_repr(self)


def collect_learned(result: Result) -> LearnedFeatures | None:
    """Collect parameters, features and labels of a run of deep clustering; None for other methods."""
    derived = result.derived
    if "theta" not in derived:
        return None
    return LearnedFeatures(derived["theta"], derived["features"], np.ascontiguousarray(derived["labels"].T))
