"""Traits: properties that a method or stage declares, for all packages that must not depend on its equations."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from p2pkm.core.errors import ContractError


class MessageContent(Enum):
    """Content of the rows of a message.

    Attributes
    ----------
    OTHER
        No centroids: quartiles, losses, bounds, masked sums; or no message.
    CENTROIDS
        Centroids of the sender: d coordinates, optionally more columns.
    OPENING_CENTROIDS
        Centroids of the sender in the initial exchange of the stage, other content later.
    FORWARDED_CENTROIDS
        Centroids that another device computed, optionally with counts.
    KEYED_POINTS
        Forwarded points, each preceded by a key.
    SUMS
        Sums and counts; the last column is the weight of the row.
    SUMMARIES
        Centroids and counts, flooded; stored in the field `flood` of the state.
    """

    OTHER = ""
    CENTROIDS = "centroids"
    OPENING_CENTROIDS = "opening"
    FORWARDED_CENTROIDS = "forwarded"
    KEYED_POINTS = "keyed"
    SUMS = "mass"
    SUMMARIES = "pairs"


@dataclass(frozen=True, kw_only=True)
class MethodTraits:
    """Traits of a method, server method or stage: a class variable, or a property if they depend on parameters.

    A trait of type str that gives a reason is the predicate of a sentence whose subject is the method, such as "sends
    raw points"; empty: not limited.

    Parameters
    ----------
    message_content : MessageContent
        Content of the rows; determines what Byzantine devices change and which rows are suppressed.
    suppresses_small_clusters : bool
        The method itself excludes points of small clusters from all rows (`Devices.min_count`); otherwise the channel
        removes these rows.
    no_suppression : str
        Reason why rows must not be missing; suppression is then rejected.
    floods : bool
        Tables are forwarded through the graph or a tree, and every device holds one bit per origin.
    hops : int or None
        Largest number of links over which a table is forwarded; None: no limit. For forwarded content only.
    needs_reliable_links : str
        Reason why messages must not be lost; faults are then rejected.
    tolerates_absence : bool
        With `needs_reliable_links`: devices may nevertheless be unavailable, if messages between available devices
        arrive.
    ends_under_faults : bool
        A stage before the method that ends regardless of lost messages, so that faults may affect it.
    one_round : bool
        A stage before the method that always ends after one round (of many turns).
    needs_static_links : str
        Reason why links must not change between rounds; time-varying graphs are then rejected.
    robust_neighbors : int
        Smallest number of neighbors for which the robust aggregation of the method has an effect; 0: not robust. A
        graph whose devices all have fewer neighbors is rejected.
    needs_shared_start : bool
        All devices must start from the same centroids; other initial centroids are rejected.
    needs_honest_messages : bool
        Both ends of a link must make the same decision, so Byzantine devices send honest messages in this stage.
    needs_hub : bool
        Runs on a star whose center is a server without points.
    is_server_method : bool
        Has `report` and `aggregate` (see `p2pkm.core.protocols.ServerMethod`); implies `needs_hub`.
    one_shot : bool
        Clients report only once.
    normalization : str or tuple of float
        Scaling of the points, for server methods. "none": not scaled. "coordinate": each coordinate to [0, 1], by its
        smallest and largest value over all clients. "entries": all coordinates by one common pair. Two numbers: by
        this pair, which is public and costs no messages.
    induced_labels : bool
        Metrics label a point by the server centroid nearest to its nearest local centroid; otherwise by the server
        centroid nearest to the point.
    init : p2pkm.Init or None
        Initialization; None: the method starts from local points.
    groups : int, str or False
        Groups of devices, found by stages before the method that include the initialization: their number, or "auto";
        False: not grouped.
    relaxation : float or None
        Relaxation factor set by the user; above 1 it is over-relaxation, which diverges with faults or delays.
    coupling_choice : str
        Origin of the coupling: "given", "usual" (from the number of devices), "auto" or "rehearsal" (calibrated);
        empty: the method lacks a coupling.
    needs_agreed_start : bool
        A calibrated coupling or an acceptance test requires equal initial centroids on all devices.
    no_stream : str
        Parameter that cannot be combined with points that change, and the reason; a stream is then rejected.
    cuts_links : bool
        Later stages use fewer links; the last state has `edge_active` and `edge_degrees`.
    link_weights : str
        Effect of link weights, such as "multiply alpha_ij"; empty: ignored.
    moves_on_grid : bool
        `update` moves centroids by multiples of the step of `Devices.grid`, if it is not None.
    counts_on_grid : bool
        For stages around the method: sends integers and sets their encoded bytes, if `Devices.grid` is not None.
    no_quantization : str
        Reason why messages cannot be encoded as integers; `quantize` is then rejected.
    no_weights : str
        Reason why point weights are rejected.
    ignores_weights : bool
        Point weights do not matter; every point counts once.
    no_measuring : str
        Reason why statistics of the points must not be computed before the method; scaling of points and choice of k
        are then rejected.
    needs_parameters : str
        Required parameters that are not set, such as "epsilon and radius".
    common_centroids : bool
        At the end of the stage, all devices of a component hold the same centroids, which are thus known to neighbors.
    follows_points : bool
        `update` (server methods: `report`) recomputes statistics of the local points in every round, so points may
        change during a run.
    derives_features : bool
        Clusters features derived from the points: states have the field `derived`, and metrics, labels and figures are
        in the space of the features.
    guarantees_descent : bool
        The objective provably never increases with these parameters.
    draws_secrets : bool
        Draws noise or masks of a privacy guarantee from `Devices.secrets`, seeded by the operating system.
    noise_seed : int or None
        Replaces the seed of `Devices.secrets`: runs are repeatable, without a privacy guarantee. None: seeded by the
        operating system.
    """

    message_content: MessageContent = MessageContent.OTHER
    suppresses_small_clusters: bool = False
    no_suppression: str = ""
    floods: bool = False
    hops: int | None = None
    needs_reliable_links: str = ""
    tolerates_absence: bool = False
    ends_under_faults: bool = False
    one_round: bool = False
    needs_static_links: str = ""
    robust_neighbors: int = 0
    needs_shared_start: bool = False
    needs_honest_messages: bool = False
    needs_hub: bool = False
    is_server_method: bool = False
    one_shot: bool = False
    normalization: str | tuple[float, float] = "none"
    induced_labels: bool = False
    init: Any = None
    groups: int | str | bool = False
    relaxation: float | None = None
    coupling_choice: str = ""
    needs_agreed_start: bool = False
    no_stream: str = ""
    cuts_links: bool = False
    link_weights: str = ""
    moves_on_grid: bool = False
    counts_on_grid: bool = False
    no_quantization: str = ""
    no_weights: str = ""
    ignores_weights: bool = False
    no_measuring: str = ""
    needs_parameters: str = ""
    common_centroids: bool = False
    follows_points: bool = False
    derives_features: bool = False
    guarantees_descent: bool = False
    draws_secrets: bool = False
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        """Reject an initialization given as text."""
        if isinstance(self.init, str):
            raise ContractError(
                f"init of the traits is {self.init!r}; expected p2pkm.Init, or None. Use p2pkm.Init.of({self.init!r})"
            )

    @property
    def is_secret(self) -> bool:
        """Whether a run uses random numbers of the operating system, so that it can be neither repeated nor resumed."""
        return self.draws_secrets and self.noise_seed is None


@dataclass(frozen=True, kw_only=True)
class ServerTraits(MethodTraits):
    """Traits with the defaults of server methods, whose clients send centroids."""

    message_content: MessageContent = MessageContent.CENTROIDS
    needs_hub: bool = True
    is_server_method: bool = True
