"""Ditto: centroids of each client near those of a common clustering at a server (Li et al. 2021)."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

from p2pkm.core.card import Card
from p2pkm.core.validation import check_integer
from p2pkm.methods.init.value import Init
from p2pkm.methods.server.fedlloyd import FedLloyd


@dataclass(frozen=True)
class Ditto(FedLloyd):
    r"""Centroids of each client, pulled to those of a common clustering at a server.

    After `FedLloyd`, clients take Lloyd steps on their local points, with a pull to the common centroids.

    Parameters
    ----------
    k : int
        Number of clusters.
    init, tol, search
        As in `TreeLloyd`, for the common clustering.
    local_steps : int, default=100
        Largest number of Lloyd steps of a client; fewer if its labels do not change.
    pull : float, default=1.0
        lambda: weight of a common centroid, in points, in the mean by which a client computes its own. 0: the common
        clustering is only the initialization of k-means at the client.

    Raises
    ------
    ExperimentError
        If a parameter is out of range, or the initialization gives devices different centroids.

    See Also
    --------
    FedLloyd
        The common clustering, which ``local_steps=3`` refines without a pull.
    GTVMin
        Centroids of each device, near those of its neighbors, without a server.

    Notes
    -----
    **Objective.** Of client i, with the local loss L_i and the common centroids w, [1]_::

        L_i(v_i) + pull sum_c |v_ic - w_c|^2,   where w has least pooled cost sum_i L_i(w)

    **Update.** First w, by the rounds of `FedLloyd`. Then client i starts from v_i = w and repeats: assign its points
    to the nearest v_ic; with n_ic of them at c, ``v_ic = (their sum + pull w_c) / (n_ic + pull)``. Cluster c of a
    client is cluster c of all others.

    If per coordinate points have the variance s2 around the centers of their client, and these centers the variance t2
    around the common ones, pull = s2 / t2 gives the maximum a posteriori estimate.

    **Messages.** As in `FedLloyd`. Local steps send nothing.

    **Convergence.** Neither the pooled cost of w nor, in local steps, the objective of a client increases.

    **Privacy.** No guarantee, as in `FedLloyd`.

    **Differences from the paper.** Its solver takes gradient steps on v_i and w in turns; here w is computed first. The
    loss is a sum over points: pull is m_i lambda / 2 with m_i points and the lambda of the paper.

    References
    ----------
    .. [1] T. Li, S. Hu, A. Beirami, V. Smith, "Ditto: fair and robust federated learning through personalization",
       ICML 2021: equation (Ditto) and Algorithm 1.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.Ditto(3), None, shards)
    >>> result.summary["centroid_sets"], result.summary["wire_bytes"]
    (3, 250)
    """

    k: int
    _: KW_ONLY
    init: Init | str = "rows:lean=true"
    tol: float = 1e-5
    search: Literal["none", "breathing"] = "none"
    local_steps: int = 100
    pull: float = 1.0

    card = Card(
        "ditto",
        family="server",
        sends="sums",
        points="none",
        line="local steps pulled to a common clustering at a server",
    )
    name: ClassVar[str] = card.name

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.local_steps, 1, "local_steps")
        super().__post_init__()
