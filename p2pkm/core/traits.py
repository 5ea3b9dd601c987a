"""What a method or stage declares about itself: everything that others need to know of it beside its equations."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from p2pkm.core.errors import ContractError


class MessageContent(Enum):
    """What the rows of a message stand for.

    Attributes
    ----------
    OTHER
        Nothing that stands for centroids: quartiles, losses, bounds, masked sums; or no message at all.
    CENTROIDS
        Centroids of the sender, d coordinates, perhaps more columns.
    OPENING_CENTROIDS
        Centroids of the sender in the first exchange of the stage, nothing of the kind after it.
    FORWARDED_CENTROIDS
        Centroids that another device computed, perhaps with counts.
    KEYED_POINTS
        Points behind a key, forwarded.
    SUMS
        Sums and counts: the last column is the weight of the row.
    SUMMARIES
        Centroids and counts, flooded from the field `flood` of the state.
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
    """What a method, a server method or a stage is; a class variable of it, or a property where parameters decide.

    Reasons are the predicate of a sentence about the method, such as "sends raw points"; empty: it has no such limit.

    Parameters
    ----------
    message_content : MessageContent
        What rows stand for: decides what Byzantine devices change and which rows are suppressed.
    suppresses_small_clusters : bool
        The method itself leaves points of clusters of few out of all rows (`Devices.min_count`); else the channel
        removes such rows of centroids.
    no_suppression : str
        Why it cannot send without single rows, so that suppression is refused.
    floods : bool
        Tables are forwarded through the whole graph or a tree, and a device keeps a bit per origin.
    hops : int or None
        Over how many links a forwarded table travels at most; None: any number. Of no meaning for other content.
    needs_reliable_links : str
        Why no message may be lost, so that faults are refused.
    tolerates_absence : bool
        Devices may leave and return all the same, as long as messages between those who are there arrive.
    ends_under_faults : bool
        A stage before the method that ends whatever is lost, so that faults of all stages affect it, too.
    one_round : bool
        A stage before the method that is done after one round of many turns, whatever the points are.
    needs_static_links : str
        Why links must not change from round to round, so that time-varying graphs are refused.
    robust_neighbors : int
        Neighbors that a device needs so that the method's robust rule acts there; 0: no such rule. A graph
        where it acts nowhere is rejected.
    needs_shared_start : bool
        All devices must start from the same centroids: a given start with different ones is refused.
    needs_honest_messages : bool
        Both ends of a link must come to the same verdict: Byzantine devices send honest messages in this stage.
    needs_hub : bool
        It runs on a star around a hub without points instead of on a graph of equals.
    is_server_method : bool
        It has `report` and `aggregate` (see `p2pkm.core.protocols.ServerMethod`); implies `needs_hub`.
    one_shot : bool
        Clients report once only.
    normalization : str or tuple of float
        The units of a server method: "none": as they are; "coordinate": every coordinate scaled to [0, 1] by the
        smallest and largest value of all clients; "entries": all coordinates by one such pair; two numbers: by these,
        which no device needs to send.
    induced_labels : bool
        Scores label a point by the server's centroid nearest to its nearest local centroid, otherwise by the server's
        centroid nearest to the point.
    init : p2pkm.Init or None
        The stages that give the devices their first centroids; None: it starts from its own points alone.
    groups : int, str or False
        Stages before it find groups of devices, so many if it is a number, which bring their own initialization.
    relaxation : float or None
        The relaxation factor that was asked for; above 1 it overshoots, which neither faults nor late messages allow.
    coupling_choice : str
        Where the strength of its links is from: "given", "usual" (by the number of devices), "auto" or "rehearsal";
        empty: it has none.
    needs_agreed_start : bool
        A calibrated coupling or an acceptance test needs initial centroids that all devices agreed on.
    no_stream : str
        Which of its parameters, and why, cannot be combined with points that change, so that a stream is refused.
    cuts_links : bool
        Later stages use fewer links: its last state has `edge_active` and `edge_degrees`.
    link_weights : str
        What the weights of links do in the method, such as "multiply alpha_ij"; empty: they are ignored.
    moves_on_grid : bool
        `update` moves the centroids by whole steps of `Devices.grid` where there is one.
    counts_on_grid : bool
        Beside the run's method: it sends whole numbers, and says how long they are, where there is a `Devices.grid`.
    no_quantization : str
        Why its messages cannot be integers, so that `quantize` is refused.
    no_weights : str
        Why points must not have weights.
    ignores_weights : bool
        Weights of points change nothing: it counts every point once.
    no_measuring : str
        Why devices must not scale their points or choose k beforehand, so that both are refused.
    needs_parameters : str
        Parameters without a default that were not given, such as "epsilon and radius".
    common_centroids : bool
        All devices of a component have the same centroids at the end of the stage, so that neighbors know them.
    follows_points : bool
        `update` (of a server method `report`) measures the own points anew in every round, so that it goes on where
        points change during a run.
    derives_features : bool
        It clusters features that it derives from the points: its states have `derived`, and what is measured from
        outside (costs, labels, pictures) is in the space of the features.
    guarantees_descent : bool
        The objective provably never rises with these parameters.
    draws_secrets : bool
        It draws noise or masks of a guarantee from `Devices.secrets`, which come from a secret of the operating system.
    noise_seed : int or None
        Replaces this secret, so that runs repeat and guarantee nothing; None: the secret of the operating system.
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
        """Reject the text of an initialization in place of its value."""
        if isinstance(self.init, str):
            raise ContractError(
                f"init of the traits is {self.init!r}; expected p2pkm.Init, or None. Use p2pkm.Init.of({self.init!r})"
            )

    @property
    def is_secret(self) -> bool:
        """Return whether a run draws from a secret of the operating system: it cannot be repeated or resumed."""
        return self.draws_secrets and self.noise_seed is None


@dataclass(frozen=True, kw_only=True)
class ServerTraits(MethodTraits):
    """The same with the defaults of a server method, whose clients send centroids."""

    message_content: MessageContent = MessageContent.CENTROIDS
    needs_hub: bool = True
    is_server_method: bool = True
