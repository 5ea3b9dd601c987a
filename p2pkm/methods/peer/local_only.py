"""Local-only k-means: the baseline without messages."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask, Stream
from p2pkm.core.card import Card
from p2pkm.core.expected_messages import Known, NoMessages
from p2pkm.core.messages import DenseMessages, Inbox, no_messages
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import check_integer


@register("local")
class LocalOnlyState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
    converged : bool[n]
    """

    centroids: Floats
    converged: Mask


@dataclass(frozen=True)
class LocalOnly(MethodBase):
    """Independent k-means on each device: the baseline without messages.

    Every run prints its cost ratio as ``local-only baseline``.

    Parameters
    ----------
    k : int
        Number of clusters.
    n_init : int, default=5
        Number of initializations; the result of least cost is taken. The baseline in summaries of other methods uses 5.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    Central
        k-means on the pooled points.

    Notes
    -----
    **Objective.** The local loss L_i of each device, equation (6) of Jung 2025.

    **Update.** Greedy k-means++ seeding [2]_ and Lloyd's algorithm [1]_ on the local points, the best of `n_init`. With
    fewer than k distinct points the other rows are absent.

    **Messages.** None.

    **Convergence.** Lloyd steps never increase the local loss. Nothing is guaranteed for the cost on the pooled points.

    **Privacy.** Complete: no device sends anything.

    References
    ----------
    .. [1] S. P. Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information Theory 28, 1982.
    .. [2] D. Arthur, S. Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007.

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

    card = Card(
        "local",
        family="baseline",
        sends="nothing",
        points="none",
        line="k-means on every device without messages",
    )
    name: ClassVar[str] = card.name
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.OTHER,
        needs_hub=True,
        no_correspondence="clusters the points of each device alone",
    )
    schedule: ClassVar[str] = "star"
    default_rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        check_integer(self.n_init, 1, "n_init")

    def expected_messages(self, known: Known) -> NoMessages:
        """Expect no messages."""
        return NoMessages()

    def initial_state(self, devices: Devices, start: Any) -> LocalOnlyState:
        """Cluster the local points."""
        centroids, _, _ = devices.kmeans(self.k, Stream.LOCAL_ONLY, starts=self.n_init)
        return LocalOnlyState(centroids, np.ones(len(devices), np.bool_))

    def message(self, state: LocalOnlyState, devices: Devices) -> DenseMessages:
        """Send nothing."""
        return no_messages(len(devices), 1, devices.d)

    def update(self, state: LocalOnlyState, inbox: Inbox, devices: Devices) -> LocalOnlyState:
        """Return the state unchanged: the first clustering is the result."""
        return state
