"""Every device by itself: the baseline without any message."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask, Stream
from p2pkm.core.expected_messages import Known, Silent
from p2pkm.core.messages import DenseMessages, Inbox, silence
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.core.validation import whole


@register("local")
class AloneState(NamedTuple):
    """centroids: float64[n, k, d]; converged: bool[n]."""

    centroids: Floats
    converged: Mask


@dataclass(frozen=True)
class LocalOnly(MethodBase):
    """Let every device run k-means on its own points.

    ``W_i <- argmin_W L_i(W)``, (6), greedy k-means++ seeds and Lloyd's algorithm, the best of `n_init`. What a method
    with messages gains, it gains over this. Fewer than k distinct points leave rows absent; the hub, if there is one,
    has none.

    Message: none.

    Link weights: ignored; devices exchange no messages.

    Privacy: a guarantee, for nothing leaves a device.

    Parameters
    ----------
    k : int
        Number of clusters.
    n_init : int
        The best of so many seedings; 5 is the baseline that the ratios of other methods are printed with.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    S. P. Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information Theory 28, 1982; D. Arthur,
    S. Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, y)  # each device has one of the clusters
    >>> result = p2pkm.simulate(p2pkm.LocalOnly(3), None, shards)
    >>> result.summary["bytes"], result.summary["ratio_mean"] > 10
    (0, True)
    """

    k: int
    _: KW_ONLY
    n_init: int = 5

    name: ClassVar[str] = "local"
    traits: ClassVar[MethodTraits] = MethodTraits(needs_hub=True)
    schedule: ClassVar[str] = "star"
    default_rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        whole(self.k, 1, "clusters")
        whole(self.n_init, 1, "n_init")

    def expected_messages(self, known: Known) -> Silent:
        """Return that nothing is sent."""
        return Silent()

    def initial_state(self, devices: Devices, start: Any) -> AloneState:
        """Cluster the own points."""
        centroids, _, _ = devices.kmeans(self.k, Stream.LOCAL_ONLY, starts=self.n_init)
        return AloneState(centroids, np.ones(len(devices), np.bool_))

    def message(self, state: AloneState, devices: Devices) -> DenseMessages:
        """Send nothing."""
        return silence(len(devices), 1, devices.d)

    def update(self, state: AloneState, inbox: Inbox, devices: Devices) -> AloneState:
        """Change nothing."""
        return state
