"""What a method is: three pure functions on a batch of devices, and a state of arrays."""

from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self, Union, get_args, get_origin

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import EveryTurn, Known, Pattern, Reports
from p2pkm.core.messages import DenseMessages, SparseMessages
from p2pkm.core.traits import MethodTraits
from p2pkm.core.validation import check_scalar


class State(Protocol):
    """A NamedTuple of arrays, device axis first (own edge axis if named `edge_*`, origin axis if named `store_*`).

    Of a stage with the trait `cuts_links` the last state has `edge_active`, bool[e], alike at both ends: which edges
    are in use from then on; and `edge_degrees`, int64[e]: how many the neighbor at each edge then has.

    Optional fields, read by `p2pkm.core.states.optional`: `oscillating`, bool[n]: not converged, but going round in
    circles (default: none). Of the last state of a stage `edge_limit`, float64[e]: the variation from which on each
    link gives way (default: never); `rehearsed`, float64[n, 2]: the coupling and the excess expected with it (default:
    not rehearsed). Of the last state of a run `edge_weight`, float64[e] or None: how much of the
    strength of each link is left, 0 to 1 (None: all of it); the groups of a result are what links above a half connect
    (default: no groups), or `group`, int64[n] or None, where there is one; `reverted`, bool[n]: who has taken the start
    back (default: nobody). With the trait `derives_features` `derived`: a NamedTuple of arrays [n, ...] and
    RaggedArrays [m, ...] that `Result.derived` has, one of them `features`, float64[m, D], which stand for the points.
    Of a server method `held`, int64[n]: the rows that the hub last aggregated, elsewhere 0.
    """

    @property
    def centroids(self) -> Floats:
        """Return the centroids, float64[n, k, d]; absent rows are +inf."""

    @property
    def converged(self) -> Mask:
        """Return which devices see no reason to go on, bool[n]."""


class RunOutline(NamedTuple):
    """What a run is, as far as the defaults of a method depend on it.

    Attributes
    ----------
    topology : p2pkm.network.Topology
    disturbed : str
        Why messages may be changed, late or lost, or links come and go; empty: nothing of the kind.
    seeded : bool
        Whether centroids to start from are given.
    complete : bool
        Whether no row is left out of a message, no matter how few points it has.
    streamed : bool
        Whether points arrive, leave or move during the run.
    rounds : int or None
        Largest number of rounds of the method; None: not known.
    image : tuple of int or None
        Shape of points that are images, (height, width) or with channels, if it is known.
    points : int or None
        Number of all points, once the number of clusters is final; None before.
    """

    topology: Any
    disturbed: str = ""
    seeded: bool = False
    complete: bool = True
    streamed: bool = False
    rounds: int | None = None
    image: tuple[int, ...] | None = None
    points: int | None = None


class Pipeline(NamedTuple):
    """Stages that a method needs around itself, of `p2pkm.methods.init.pipelines.Stage`.

    Attributes
    ----------
    seeding : tuple of Stage or None
        In the place of the stages of its initialization; None: these. A run from given centroids has neither.
    before : tuple of Stage
        Between the initialization and the method.
    after : tuple of Stage
    """

    seeding: tuple[Any, ...] | None = None
    before: tuple[Any, ...] = ()
    after: tuple[Any, ...] = ()


class PointCount(NamedTuple):
    """Number of points with d features on n devices, a hub among them."""

    n: int
    m: int
    d: int


@cache
def _list_scalars(kind: Any) -> dict[str, bool]:
    """Return the parameters of a dataclass in their order, and whether each is declared as one number or word."""
    return {one.name: _is_scalar(one.type) for one in fields(kind) if one.init} if is_dataclass(kind) else {}


def _is_scalar(kind: Any) -> bool:
    """Return whether a declared type holds numbers and words alone; of one that is written as text nothing is known."""
    if get_origin(kind) in (Union, UnionType):
        return all(map(_is_scalar, get_args(kind)))
    return get_origin(kind) is Literal or kind in (int, float, str, bool, NoneType)


class Objective:
    """Objective of a method: the losses of all devices and the penalties of all edges, as the monitor measures them.

    Here: the cost of all points without penalties, of a method whose devices all hold the same centroids.
    """

    def link_alpha(self, devices: Devices, state: Any = None) -> Floats:
        """Return the strength of every own edge, float64[e]."""
        return np.zeros(len(devices.indices))

    def loss_weights(self, devices: Devices) -> Floats:
        """Return the factor of the loss of every device in the objective, float64[n]."""
        return np.ones(len(devices))

    def variation(self, devices: Devices, tables: Floats, slots: Integers) -> Floats | None:
        """Return the variation of every link, float64[e], 0 at its upper end; None: equation (4).

        Parameters are those of `p2pkm.kernels.reference.gtv`: the tables of the batch and its neighbors.
        """
        return None

    def penalties(self, state: Any, devices: Devices, gtv: Floats) -> Floats:
        """Return the term of each own edge, float64[e], given its variation."""
        return np.zeros(len(devices.indices))

    def predict_excess(self, topology: Any, points: int) -> float | None:
        """Return the expected excess of the mean cost ratio over 1, None without a theorem for it."""
        return None


class MethodBase:
    """What every method, server method and stage inherits: hooks that few need, with what holds for the others."""

    def __new__(cls, *given: Any, **options: Any) -> Self:
        """Reject an array or a list where a parameter is one number or word."""
        kind: Any = cls
        scalars = _list_scalars(kind)
        for name, value in [*zip(scalars, given, strict=False), *options.items()]:
            if scalars.get(name):
                check_scalar(value, name)
        return super().__new__(cls)

    if TYPE_CHECKING:

        @property
        def k(self) -> int:
            """Return the number of clusters."""

    tol: float = 0.0  # below which moves a device, or the model of a server, has converged; 0: never
    prefers_integers: bool = False  # whether tables travel as integers unless the user decides; `configure` sets it

    @property
    def traits(self) -> MethodTraits:
        """Return what it is. Every method declares it: a class variable, or a property where parameters decide."""
        raise NotImplementedError(
            f"{type(self).__name__} does not declare its traits, a p2pkm.core.traits.MethodTraits"
        )

    @property
    def objective(self) -> Objective | None:
        """Objective that it minimizes; None: none that is known. A class variable, or a property."""
        return None

    def with_k(self, k: int) -> Self:
        """Return the same method with another number of clusters."""
        return self.replaced(k=k)

    def replaced(self, **others: Any) -> Self:
        """Return the same method with some other parameters."""
        other = object.__new__(type(self))  # quicker than `copy`: methods settle in every turn
        vars(other).update(vars(self), **others)
        return other

    def configure(self, run: RunOutline) -> Self:
        """Return the method with the parameters that are left to the run filled in.

        Called once the run has been checked, and again with `run.points` once the number of clusters is final; what was
        filled in stays: ``m.configure(run).configure(run) == m.configure(run)``.
        """
        return self

    def stages(self, at: Any) -> Pipeline:
        """Return the stages around the method in a run on `at.topology` (`p2pkm.methods.init.registry.InitContext`).

        Raises
        ------
        ExperimentError
            If the graph is too large for one of them.
        """
        return Pipeline()

    def on(self, topology: Any) -> Any:
        """Return the algorithm that the loop runs on a graph, where who sends depends on all of it."""
        return self

    def under_faults(self, topology: Any) -> Any:
        """Return the method in the form that bears faults, if it has one of its own."""
        return self

    def flops(self, work: "Work") -> Integers | None:
        """Return the operations of a turn of every device, int64[n]; None: one pass over the own points."""
        return None

    def expected_messages(self, known: Known) -> Pattern | None:
        """Return what it sends, for `plan`; None: unknown.

        Here: in every turn k rows of d numbers to each neighbor. Other messages need a hook of their own.
        """
        return EveryTurn(self.k, known.features)

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return whether every device has k centroids in the end, for sure; before: so when the stage began."""
        return before

    def check(self, run: RunOutline, points: PointCount) -> None:
        """Reject a graph or points that the method cannot work with, or arithmetic that would take too long.

        Called before any work starts, while it is not known yet whether messages are disturbed.
        """

    def resolved_parameters(self, devices: Devices) -> dict[str, Any]:
        """Return what the summary shows of the parameters as used: alpha, coupling, relaxation, local_steps."""
        return {}

    def settle(self, state: Any) -> Any:
        """Return the method with what a run has found for parameters that were left to it."""
        return self


@dataclass(frozen=True)
class OnGraph(MethodBase):
    """A method in the form that the loop runs on a graph, see `MethodBase.on`; it has k and traits of the method."""

    method: Any

    @property
    def k(self) -> int:
        """Return the number of clusters."""
        return int(self.method.k)

    @property
    def traits(self) -> MethodTraits:
        """Return what the method is, see `p2pkm.core.traits`."""
        found: MethodTraits = self.method.traits
        return found

    @property
    def objective(self) -> Objective | None:
        """Objective of the method."""
        found: Objective | None = self.method.objective
        return found


class Algorithm(Protocol):
    """A method: a frozen dataclass of its hyper-parameters. It never sees network, rank, clock or file.

    It inherits `MethodBase`. No function writes into an array that it was given.
    """

    @property
    def k(self) -> int:
        """Return the number of clusters."""

    @property
    def name(self) -> str:
        """Return the name on the command line, or of the stage."""

    @property
    def schedule(self) -> str:
        """Return the name of the default schedule."""

    @property
    def traits(self) -> MethodTraits:
        """Return what the method is."""

    def expected_messages(self, known: Known) -> Pattern | None:
        """Return what the method sends, for `plan`."""

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return whether every device has k centroids in the end, for sure."""

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Return the state before the opening; `start` is the last stage's state, or None."""

    def message(self, state: Any, devices: Devices) -> DenseMessages | SparseMessages:
        """Return what the active devices send, in every turn of a stage of the same kind."""

    def update(self, state: Any, inbox: Any, devices: Devices) -> Any:
        """Return the state after the active devices have acted on what they received: an `Inbox`, or a `Delivery`.

        From the second turn of a round on (``devices.turn > 0``) nobody else has seen the state: arrays that the turn
        before has made may be written to, those sent as messages that stand (`DenseMessages`) at active devices alone.
        Nothing else that is given is ever written to.
        """


class Report(NamedTuple):
    """What the clients of a batch send to the server.

    Attributes
    ----------
    values : float64[n, r, w]
    rows : int64[n]
        0: an empty table, which travels too.
    local : float64[n, q, d]
        The centroids that each client clustered its own points by; absent rows are +inf. They are not sent: scores ask
        for them.
    """

    values: Floats
    rows: Integers
    local: Floats


class ServerMethodBase(MethodBase):
    """What every server method inherits."""

    schedule: ClassVar[str] = "star"

    def expected_messages(self, known: Known) -> Pattern | None:
        """Return what the clients report, for `plan`: here at most k centroids, each with a count."""
        return Reports(known.clients * self.k, known.features + 1)


class ServerMethod(Protocol):
    """A method with a server: a frozen dataclass of its hyper-parameters and two pure functions, run by `star.Star`.

    It inherits `ServerMethodBase`, and its traits are `p2pkm.core.traits.ServerTraits`.

    The server aggregates and sends when clients have reported; clients report at the opening, and, unless the method
    is one-shot, whenever the server has sent.
    """

    @property
    def k(self) -> int:
        """Return the number of clusters."""

    @property
    def name(self) -> str:
        """Return the name on the command line."""

    @property
    def traits(self) -> MethodTraits:
        """Return what the method is."""

    @property
    def default_rounds(self) -> int:
        """Return how many times the server aggregates, unless configured otherwise."""

    @property
    def tol(self) -> float:
        """Return below which Frobenius norm of the move of the server's table all devices have converged; 0: never."""

    def expected_messages(self, known: Known) -> Pattern | None:
        """Return what the clients report, for `plan`."""

    def report(self, clients: Devices, model: Floats) -> Report:
        """Return what each client sends; model: float64[n, k, d], what each last received, all +inf at the opening.

        Works on any batch, devices without points and the hub among them; what the hub would send is ignored.
        """

    def aggregate(self, hub: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Return the server's new centroids, float64[k', d] with k' <= k.

        Parameters
        ----------
        hub : Devices
            The batch that the hub is in: for `shared_key`, `kernels`, `step`, `total`. Its points are none of its
            business.
        tables : list of float64[r, w]
            The last table of every client, in ascending id; some may be empty.
        model : float64[k, d]
            The centroids so far; absent rows are +inf.
        """


class Work(NamedTuple):
    """What a turn of every device works on, for methods that count their operations by `flops(work)`, int64[n].

    Attributes
    ----------
    sizes : int64[n]
        Own points.
    neighbors : int64[n]
        Links in use.
    rows : int64[n]
        Received since the last turn awake.
    d : int
        Number of features.
    """

    sizes: Integers
    neighbors: Integers
    rows: Integers
    d: int
