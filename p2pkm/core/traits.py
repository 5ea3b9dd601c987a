"""Traits: properties that a method or stage declares, for all packages that must not depend on its equations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from p2pkm.core.errors import ContractError

# Default of a trait that every method must declare.
_UNDECLARED: Any = None


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


class Condition(Enum):
    """Property of a run that methods and transforms exclude by `incompatible_with`.

    Attributes
    ----------
    LOSSY_LINKS
        Messages may be lost or late: faults, or a link model with schedule async.
    CHANGING_LINKS
        The links of the graph change from round to round.
    CHANGED_MESSAGES
        Transforms only. Another transform changes or replaces what is sent: noise, integers, Byzantine devices, a
        plug-in.
    LINK_MODEL
        Transforms only. Simulated time is computed.
    MEASURED_POINTS
        Methods only. Statistics of the points are computed before the method: scaling, filling in, choice of k.
    POINT_WEIGHTS
        Methods only. Points have weights.
    """

    LOSSY_LINKS = "lossy links"
    CHANGING_LINKS = "changing links"
    CHANGED_MESSAGES = "changed messages"
    LINK_MODEL = "link model"
    MEASURED_POINTS = "measured points"
    POINT_WEIGHTS = "point weights"


# Reason for each condition, or for each transform, by its name.
Reasons = Mapping["Condition | str", str]
# What methods may exclude: conditions, and transforms of this package by their names.
_OF_METHODS = (
    Condition.LOSSY_LINKS,
    Condition.CHANGING_LINKS,
    Condition.MEASURED_POINTS,
    Condition.POINT_WEIGHTS,
    "suppression",
    "quantization",
    "compression",
)


@dataclass(frozen=True, kw_only=True)
class MethodTraits:
    """Traits of a method, server method or stage: a class variable, or a property if they depend on parameters.

    Parameters
    ----------
    message_content : MessageContent
        Content of the rows; determines what Byzantine devices change and which rows are suppressed. It has no default.
    suppresses_small_clusters : bool
        The method itself excludes points of small clusters from all rows (`Devices.min_count`); otherwise the channel
        removes these rows.
    incompatible_with : mapping of Condition or str to str
        What the method cannot be combined with: `Condition.LOSSY_LINKS`, ``CHANGING_LINKS``, ``MEASURED_POINTS``,
        ``POINT_WEIGHTS``, ``"suppression"`` (rows must not be missing), ``"quantization"`` (messages cannot be
        integers) or ``"compression"`` (tables must be sent whole). The reason is a predicate of the method, such as
        "sends raw points", or "with swaps=true tries local points" if one parameter is the cause; empty: can be
        combined. Such a run is refused (`p2pkm.engine.conflicts`).
    floods : bool
        Tables are forwarded through the graph or a tree, and every device holds one bit per origin.
    hops : int or None
        Largest number of links over which a table is forwarded; None: no limit. For forwarded content only.
    tolerates_absence : bool
        With `Condition.LOSSY_LINKS` in `incompatible_with`: devices may nevertheless be unavailable, if messages
        between available devices arrive.
    ends_under_faults : bool
        A stage before the method that ends regardless of lost messages, so that faults may affect it.
    one_round : bool
        A stage before the method that always ends after one round (of many turns).
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
    init : p2pkm.Init or None
        Initialization; None: the method starts from local points.
    groups : int, str or False
        Groups of devices, found by stages before the method that include the initialization: their number, or "auto";
        False: not grouped.
    coupling_choice : str
        Origin of the coupling: "given", "usual" (from the number of devices), or the name of a choice; empty: the
        method lacks a coupling.
    needs_agreed_start : bool
        Stages before the method require initial centroids that all devices agreed on by messages.
    cuts_links : bool
        Later stages use fewer links; the last state has `edge_active` and `edge_degrees`.
    link_weights : str
        Effect of link weights, such as "multiply alpha_ij"; empty: ignored.
    moves_on_grid : bool
        `update` moves centroids by multiples of the step of `Devices.grid`, if it is not None.
    ignores_weights : bool
        Point weights do not matter; every point counts once.
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
    no_correspondence : str
        Reason why cluster c of a device need not be cluster c of its neighbors; scores over all devices together that
        need common cluster numbers are then left out.
    guarantees_descent : bool
        The objective provably never increases with these parameters.
    guarantee : str
        Privacy guarantee: what it protects, and against whom; empty: none. A method with a guarantee draws its noise
        and masks from `Devices.secrets`, seeded by the operating system. All lists of such methods follow from here.
    noise_seed : int or None
        Replaces the seed of `Devices.secrets`: runs are repeatable, without a privacy guarantee. None: seeded by the
        operating system.
    """

    # Declared by every method: no default is safe, because suppression of small clusters depends on it.
    message_content: MessageContent = _UNDECLARED
    suppresses_small_clusters: bool = False
    incompatible_with: Reasons = field(default_factory=dict)
    floods: bool = False
    hops: int | None = None
    tolerates_absence: bool = False
    ends_under_faults: bool = False
    one_round: bool = False
    robust_neighbors: int = 0
    needs_shared_start: bool = False
    needs_honest_messages: bool = False
    needs_hub: bool = False
    is_server_method: bool = False
    one_shot: bool = False
    normalization: str | tuple[float, float] = "none"
    init: Any = None
    groups: int | str | bool = False
    coupling_choice: str = ""
    needs_agreed_start: bool = False
    cuts_links: bool = False
    link_weights: str = ""
    moves_on_grid: bool = False
    ignores_weights: bool = False
    needs_parameters: str = ""
    common_centroids: bool = False
    follows_points: bool = False
    derives_features: bool = False
    no_correspondence: str = ""
    guarantees_descent: bool = False
    guarantee: str = ""
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        """Reject traits without a message content, unknown conditions, and an initialization given as text."""
        if not isinstance(self.message_content, MessageContent):
            raise ContractError(
                f"message_content of the traits is {self.message_content!r}; expected a p2pkm.core.traits."
                "MessageContent, because suppression of small clusters, noise and Byzantine devices depend on it. Add "
                "message_content=MessageContent.CENTROIDS if rows are centroids (each row begins with the d "
                "coordinates), SUMS for sums with a weight, or OTHER if nothing sent is a centroid. See "
                "docs/tutorial/write-a-method.md"
            )
        unknown = [key for key in self.incompatible_with if key not in _OF_METHODS]
        if unknown:
            known = ", ".join(str(key) if isinstance(key, Condition) else repr(key) for key in _OF_METHODS)
            raise ContractError(
                f"incompatible_with of the traits has the key {unknown[0]!r}; expected one of {known}, see "
                "docs/tutorial/write-a-method.md"
            )
        if isinstance(self.init, str):
            raise ContractError(
                f"init of the traits is {self.init!r}; expected p2pkm.Init, or None. Use p2pkm.Init.of({self.init!r})"
            )

    @property
    def draws_secrets(self) -> bool:
        """Whether noise and masks are drawn from `Devices.secrets`."""
        return bool(self.guarantee)

    @property
    def is_secret(self) -> bool:
        """Whether a run uses random numbers of the operating system, so that it can be neither repeated nor resumed."""
        return self.draws_secrets and self.noise_seed is None


@dataclass(frozen=True, kw_only=True)
class ServerTraits(MethodTraits):
    """Traits with the defaults of server methods."""

    needs_hub: bool = True
    is_server_method: bool = True
