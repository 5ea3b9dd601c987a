"""Lloyd's algorithm on the pooled points by integer sums at a server."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Literal

from p2pkm.core.card import Card
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.init.value import Init
from p2pkm.methods.tree.treelloyd import TreeLloyd


@dataclass(frozen=True)
class FedLloyd(TreeLloyd):
    r"""Lloyd's algorithm on the pooled points, by integer sums at a server.

    `TreeLloyd` on a star whose root is a server without points: the baseline with a server for methods without one.

    Parameters
    ----------
    k : int
        Number of clusters.
    init, tol, search, local_steps, pull
        As in `TreeLloyd`.

    Raises
    ------
    ExperimentError
        If a parameter is out of range, or the initialization gives devices different centroids.

    See Also
    --------
    TreeLloyd
        The same sums without a server.
    Ditto
        With local steps and a pull.
    FKM
        k-means of the clients' centroids at the server.

    Notes
    -----
    **Update.** As in `TreeLloyd` [1]_, with the server as parent of every client.

    **Messages.** As in `TreeLloyd`, with one link for each client.

    **Convergence.** As in `TreeLloyd`. For the same initial centroids both methods compute the same centroids in the
    same number of rounds.

    **Privacy.** No guarantee. The server receives local sums and counts of each client, then their changes, as the
    parent of a leaf in `TreeLloyd`. The default `init` sends rounded points as there.

    References
    ----------
    .. [1] S. P. Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information Theory 28, 1982.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.FedLloyd(3), None, shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["wire_bytes"]
    (1.003, 250)
    """

    k: int
    _: KW_ONLY
    init: Init | str = "rows:lean=true"
    tol: float = 1e-5
    search: Literal["none", "breathing"] = "none"
    local_steps: int = 0
    pull: float = 0.0

    # Not a parameter: groups of devices are found along a tree of devices with points.
    groups: ClassVar[bool] = False  # type: ignore[misc]
    card = Card(
        "fedlloyd",
        family="server",
        sends="sums",
        points="none",
        line="Lloyd steps on pooled points, integer sums at a server",
    )
    name: ClassVar[str] = card.name

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return replace(super().traits, needs_hub=True, tolerates_absence=False, follows_points=False)
