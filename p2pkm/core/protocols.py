"""Interfaces of methods: three pure functions on a batch of devices, and a state that consists of arrays.

`Algorithm` and `ServerMethod` are the interfaces. Methods inherit the hooks of `MethodBase` or `ServerMethodBase`,
whose defaults suit most methods, and declare `p2pkm.core.traits.MethodTraits`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, wraps
from inspect import isabstract
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self, Union, get_args, get_origin

import numpy as np

from p2pkm.core.averaging_step import AveragingStep
from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.card import Card
from p2pkm.core.errors import ContractError
from p2pkm.core.expected_messages import EveryTurn, Known, Pattern, Reports
from p2pkm.core.keywords import check_keywords
from p2pkm.core.messages import DenseMessages, SparseMessages
from p2pkm.core.traits import MethodTraits
from p2pkm.core.validation import check_scalar

# Beginning of the names of modules of this package.
_PACKAGE = "p2pkm."


class State(Protocol):
    """State of a method or stage: a NamedTuple of arrays.

    The first axis of an array is the device axis; fields named `edge_*` have an edge axis and fields named `store_*` an
    origin axis instead. Field names are part of checkpoints.

    Attributes
    ----------
    edge_active : bool[e]
        Last state of a stage with the trait `cuts_links`: edges that stay active, equal at both ends of a link.
    edge_degrees : int64[e]
        Same: number of active edges of the neighbor at each edge.

    Notes
    -----
    Optional fields, read by `p2pkm.core.states.optional`:

    * `oscillating`, bool[n]: devices that do not converge but repeat a cycle. Default: none.
    * `edge_limit`, float64[e], last state of a stage: total variation above which a link yields. Default: never.
    * `coupling`, float64[n] or None, last state of a stage: coupling from the points.
    * `shares`, last state of a stage: its field `penalties`, float64[n, k], adds to squared distances in assignments.
    * `edge_alpha`, float64[e], last state of a stage: strength of each link, if it was estimated.
    * `edge_estimated`, float64[e] or None, last state of a run: estimated weight of each link, 1 for a usual one.
    * `edge_weight`, float64[e] or None, last state of a run: remaining strength of each link, 0 to 1 (None: all 1).
      Groups of a result are the components of the links above 1/2.
    * `group`, int64[n] or None, last state of a run: group of each device.
    * `derived`, with the trait `derives_features`: NamedTuple of arrays [n, ...] and RaggedArrays [m, ...] for
      `Result.derived`; its field `features`, float64[m, D], replaces the points.
    * `held`, int64[n], server methods: number of rows that the server last aggregated, 0 at other devices.
    """

    @property
    def centroids(self) -> Floats:
        """Centroids, float64[n, k, d]; absent rows are +inf."""

    @property
    def converged(self) -> Mask:
        """Devices that have converged, bool[n]."""


class RunOutline(NamedTuple):
    """Properties of a run on which defaults of a method may depend.

    Attributes
    ----------
    topology : p2pkm.network.Topology
    disturbed : str
        Reason why messages may be changed, late or lost, or links may change; empty: none of these.
    seeded : bool
        Whether the user supplied initial centroids.
    complete : bool
        Whether messages contain all rows, without suppression of small clusters.
    streamed : bool
        Whether points arrive, leave or move during the run.
    rounds : int or None
        Largest number of rounds of the method; None: unknown.
    image : tuple of int or None
        Shape of points that are images, (height, width) or with channels; None: unknown.
    points : int or None
        Number of points of all devices, once the number of clusters is final; None before.
    on_root : callable, optional
        Calls a function without arguments on rank 0, and returns its result, float64[...], on all ranks. For
        computations on the whole graph that need much memory. None: each rank calls it.
    """

    topology: Any
    disturbed: str = ""
    seeded: bool = False
    complete: bool = True
    streamed: bool = False
    rounds: int | None = None
    image: tuple[int, ...] | None = None
    points: int | None = None
    on_root: Callable[[Callable[[], Floats]], Floats] | None = None


class Pipeline(NamedTuple):
    """Additional stages of a method, of `p2pkm.methods.init.pipelines.Stage`.

    Attributes
    ----------
    seeding : tuple of Stage or None
        Stages that replace those of the initialization; None: not replaced. Skipped if the user supplies initial
        centroids.
    before : tuple of Stage
        Stages between the initialization and the method.
    after : tuple of Stage
        Stages after the method.
    """

    seeding: tuple[Any, ...] | None = None
    before: tuple[Any, ...] = ()
    after: tuple[Any, ...] = ()


class PointCount(NamedTuple):
    """Size of a run: n devices (server included), m points, d features."""

    n: int
    m: int
    d: int


@cache
def _list_scalars(kind: Any) -> dict[str, bool]:
    """Return the parameters of a dataclass in their order, and whether each is declared as a number or a string."""
    return {item.name: _is_scalar(item.type) for item in fields(kind) if item.init} if is_dataclass(kind) else {}


def _is_scalar(kind: Any) -> bool:
    """Return whether a declared type has numbers and strings only; False for annotations that are text."""
    if get_origin(kind) in (Union, UnionType):
        return all(map(_is_scalar, get_args(kind)))
    return get_origin(kind) is Literal or kind in (int, float, str, bool, NoneType)


def _build_once(build: Callable[[Any], MethodTraits]) -> Callable[[Any], MethodTraits]:
    """Return a function that builds the traits of a method at its first call, and returns them at later ones."""

    @wraps(build)
    def traits(method: Any) -> MethodTraits:
        built: MethodTraits | None
        try:
            built = method._traits
        except AttributeError:  # an empty slot
            built = None
        if built is None:
            built = build(method)
            object.__setattr__(method, "_traits", built)
        return built

    return traits


class Objective:
    """Objective of a method, as evaluated by the monitor: losses of all devices plus penalties of all edges.

    Default: the pooled cost without penalties, for methods whose devices all hold the same centroids.
    """

    def link_alpha(self, devices: Devices, state: Any = None) -> Floats:
        """Return the coupling alpha of every edge, float64[e]."""
        return np.zeros(len(devices.indices))

    def loss_weights(self, devices: Devices) -> Floats:
        """Return the factor of the local loss of every device in the objective, float64[n]."""
        return np.ones(len(devices))

    def variation(self, devices: Devices, tables: Floats, slots: Integers, state: Any = None) -> Floats | None:
        """Compute the total variation of every link, float64[e], stored at its lower end; None: equation (4).

        Other parameters as in `p2pkm.kernels.reference.gtv`: tables of the batch and its neighbors.
        """
        return None

    def penalties(self, state: Any, devices: Devices, gtv: Floats) -> Floats:
        """Compute the penalty of each edge, float64[e], given its total variation."""
        return np.zeros(len(devices.indices))

    def add_terms(self, state: Any, devices: Devices) -> Floats | None:
        """Compute what the objective adds to the local loss (6) of each device, float64[n]; None: nothing."""
        return None

    def predict_excess(self, topology: Any, points: int) -> float | None:
        """Return the excess (mean cost ratio minus 1) predicted by theory; None without a theorem."""
        return None

    def divides_new_links(self, state: Any) -> Mask | None:
        """Return how strong a link of a device that joins after the run is at each device of the run, bool[n].

        True: alpha is divided by the root of the product of the degrees of both ends, False: it is that of the other
        links. None: a device cannot join, because its update is not that of `p2pkm.metrics.adaptation`.
        """
        return None


class MethodBase:
    """Base class of methods, server methods and stages: hooks with defaults that suit most methods."""

    # Traits that were declared as a property are built once for each method. The slot is not in `vars(method)`, so
    # copies with changed parameters build them again.
    __slots__ = ("__dict__", "__weakref__", "_traits")

    def __init_subclass__(cls, **options: Any) -> None:
        """Build traits that are a property only once for each method."""
        super().__init_subclass__(**options)
        declared = vars(cls).get("traits")
        if isinstance(declared, property) and declared.fget is not None:
            cls.traits = property(_build_once(declared.fget))  # type: ignore[assignment, method-assign]

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Reject missing functions, unknown keywords, and arrays and lists for numbers or strings."""
        kind: Any = cls
        if isabstract(kind):
            raise ContractError(
                f"{cls.__name__} lacks {', '.join(sorted(kind.__abstractmethods__))}, which its base class leaves to "
                "it. Define the function; docs/tutorial/write-a-method.md has a complete method"
            )
        check_keywords(kind.__init__, options, cls.__name__)
        scalars = _list_scalars(kind)
        for name, value in [*zip(scalars, args, strict=False), *options.items()]:
            if scalars.get(name):
                check_scalar(value, name)
        return super().__new__(cls)

    if TYPE_CHECKING:

        @property
        def k(self) -> int:
            """Number of clusters."""

    # Facts for catalogue and documentation, a card for each name on the command line. None: from traits and docstring.
    card: ClassVar[Card | tuple[Card, ...] | None] = None
    # Largest move of a converged device (or of the model of a server); 0: never converged.
    tol: float = 0.0
    # Whether messages are integers by default; set by `configure`, overruled by the user.
    prefers_integers: bool = False

    @property
    def traits(self) -> MethodTraits:
        """Traits; every method declares them as a class variable, or as a property if they depend on parameters."""
        raise ContractError(f"{type(self).__name__} does not declare its traits, a p2pkm.core.traits.MethodTraits")

    @property
    def objective(self) -> Objective | None:
        """Objective that the method minimizes, None if unknown. A class variable, or a property."""
        return None

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters for copies and other processes, without the traits."""
        return vars(self)

    def with_k(self, k: int) -> Self:
        """Return the method with another number of clusters."""
        return self.replaced(k=k)

    def replaced(self, **changes: Any) -> Self:
        """Return the method with changed parameters."""
        # Faster than `copy` or `dataclasses.replace`; `settle` calls this in every turn.
        changed = object.__new__(type(self))
        vars(changed).update(vars(self), **changes)
        return changed

    @property
    def preferred(self) -> Mapping[str, Any]:
        """Parameters that a run fills in unless something excludes them (`p2pkm.engine.conflicts`)."""
        return {}

    def list_substitutes(self, topology: Any) -> Mapping[str, Any]:
        """Return the parameters that a run uses, by name, where it cannot use `preferred`; called after `configure`."""
        return {}

    def check_parameters(self) -> None:
        """Reject parameters that exclude each other, for `preferred`; other parameters were checked when created."""

    def configure(self, run: RunOutline) -> Self:
        """Return the method with defaults that depend on the run.

        Called after validation of the run, and again with `run.points` once the number of clusters is final. Must be
        idempotent: ``m.configure(run).configure(run) == m.configure(run)``.
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
        """Return the algorithm bound to a graph, for methods whose senders depend on the whole graph."""
        return self

    def under_faults(self, topology: Any) -> Any:
        """Return the fault-tolerant variant of the method, if it has a separate one."""
        return self

    def averaging_step(self, topology: Any) -> AveragingStep | None:
        """Return the step that the method repeats on a static graph with undisturbed messages; None if it does not.

        A run then reports the factor by which disagreement shrinks, and its bound by the eigenvalues of the step.
        """
        return None

    def tree_sums(self, state: Any, devices: Devices) -> tuple[Floats, Floats] | None:
        """Return integer sums that each device has sent along a tree, and those that its roots hold; None without.

        Both float64[n, ...], the second 0 at other devices. A run then reports whether the roots lack any of them.
        """
        return None

    def flops(self, work: "Work") -> Integers | None:
        """Count the operations of a turn of every device, int64[n]; None: one pass over the local points."""
        return None

    def expected_messages(self, known: Known) -> Pattern | None:
        """Return the pattern of the messages, for `p2pkm plan`; None: unknown.

        Default: k rows of d numbers to each neighbor in every turn. For a class that defines `message` and leaves this
        to the default, `plan` prints "about", because it cannot know.
        """
        return EveryTurn(self.k, known.features)

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return whether every device is guaranteed to hold k centroids from the first round; before: at the start.

        Default: as at the start. For a class of another package that defines `message`, `plan` takes the default as
        unknown, and prints "at most" for the bytes of rows that may be absent.
        """
        return before

    def check(self, run: RunOutline, points: PointCount) -> None:
        """Reject a graph or points that the method does not support, or computations that would take too long.

        Called before the run starts; `run.disturbed` is not set yet.
        """

    def resolved_parameters(self, devices: Devices) -> dict[str, Any]:
        """Return resolved parameters for the summary: alpha, coupling, relaxation, local_steps."""
        return {}

    # Fields of the state that `settle` reads.
    settle_from: ClassVar[tuple[str, ...]] = ()

    def settle(self, found: Mapping[str, Any], topology: Any) -> Any:
        """Return the method with parameters that were determined during the run.

        Parameters
        ----------
        found : mapping
            The fields of the final state that `settle_from` names and that the state has, of all devices of the graph
            and equal on all ranks: a rank may host no device.
        topology : Topology
            Communication graph.
        """
        return self


@dataclass(frozen=True)
class OnGraph(MethodBase):
    """Method bound to a graph, see `MethodBase.on`."""

    method: Any

    @property
    def k(self) -> int:
        """Number of clusters."""
        return int(self.method.k)

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        traits: MethodTraits = self.method.traits
        return traits

    @property
    def objective(self) -> Objective | None:
        """Objective of the method."""
        objective: Objective | None = self.method.objective
        return objective


def declares(method: Any, name: str) -> bool:
    """Check whether the class that sends the messages of a method declares them, instead of a class that it inherits.

    A default of a base class holds for the methods of this package that leave it to the base. For the method of another
    package it is a guess.

    Parameters
    ----------
    method : Algorithm
    name : {"expected_messages", "finds_all"}
    """
    while isinstance(method, OnGraph) and type(method).__module__.startswith(_PACKAGE):
        method = method.method
    bases = type(method).__mro__
    sender = next((place for place, base in enumerate(bases) if vars(base).keys() & {"message", "report"}), 0)
    declarer = next(place for place, base in enumerate(bases) if name in vars(base))
    return declarer <= sender or bases[sender].__module__.startswith(_PACKAGE)


class Algorithm(Protocol):
    """Method: a frozen dataclass of hyper-parameters, with pure functions.

    Methods inherit `MethodBase`. They must not use network, rank, clock or files, and must not write to arguments,
    except as described in `update`.
    """

    @property
    def k(self) -> int:
        """Return the number of clusters."""

    @property
    def name(self) -> str:
        """Name on the command line, or of the stage."""

    @property
    def schedule(self) -> str:
        """Name of the default schedule."""

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method."""

    def expected_messages(self, known: Known) -> Pattern | None:
        """Return the pattern of the messages, for `p2pkm plan`."""

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return whether every device is guaranteed to end with k centroids."""

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Return the state before the initial exchange; `start`: state of the previous stage, or None."""

    def message(self, state: Any, devices: Devices) -> DenseMessages | SparseMessages:
        """Return the messages of the active devices, of the same type in all turns of a stage."""

    def update(self, state: Any, inbox: Any, devices: Devices) -> Any:
        """Update the state of the active devices with the received tables, an `Inbox` or a `Delivery`.

        From the second turn of a round on (``devices.turn > 0``), the loop holds the only reference to the state, so
        arrays that the previous turn created may be written to; an array sent with `DenseMessages.is_stable` at active
        devices only. All other arguments are read-only.
        """


class Report(NamedTuple):
    """Reports of the clients of a batch to the server.

    Attributes
    ----------
    values : float64[n, r, w]
        Message tables.
    rows : int64[n]
        Number of rows; 0: an empty table, which is sent, too.
    local : float64[n, q, d]
        Local centroids of each client; absent rows are +inf. Not sent; used by metrics.
    """

    values: Floats
    rows: Integers
    local: Floats


class ServerMethodBase(MethodBase):
    """Base class of server methods."""

    schedule: ClassVar[str] = "star"

    @property
    def labels_by_local_rows(self) -> bool:
        """Whether metrics label a point by the server centroid nearest to its nearest local centroid.

        Default: by the server centroid nearest to the point.
        """
        return False

    def expected_messages(self, known: Known) -> Pattern | None:
        """Return the pattern of the reports, for `p2pkm plan`. Default: at most k centroids, each with a count."""
        return Reports(known.clients * self.k, known.features + 1)

    def has_settled(self, after: Floats, before: Floats, span: Floats, devices: Devices) -> Mask:
        """Check at which devices the server's centroids have converged, bool[n].

        Default: they moved by less than `tol` (Frobenius norm).

        Parameters
        ----------
        after, before : float64[n, k, d]
            Last two tables of each device; absent rows are +inf.
        span : float64[n, 1, d]
            Units of the method.
        """
        with np.errstate(invalid="ignore"):
            moves = (after - before) / span
        moves[np.isinf(after) & np.isinf(before)] = 0.0
        result: Mask = np.sqrt((moves * moves).sum(axis=(1, 2))) < self.tol
        return result


class ServerMethod(Protocol):
    """Server method: a frozen dataclass of hyper-parameters with two pure functions, run by `star.Star`.

    Server methods inherit `ServerMethodBase`; their traits are `p2pkm.core.traits.ServerTraits`. Clients report at the
    initial exchange, and again after every message of the server, unless the method is one-shot. The server aggregates
    and sends after it received reports.
    """

    @property
    def k(self) -> int:
        """Return the number of clusters."""

    @property
    def name(self) -> str:
        """Name on the command line."""

    @property
    def labels_by_local_rows(self) -> bool:
        """Whether metrics label points through local centroids."""

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method."""

    @property
    def default_rounds(self) -> int:
        """Default number of aggregations at the server."""

    @property
    def tol(self) -> float:
        """Tolerance of `has_settled`; 0: the method never converges."""

    def has_settled(self, after: Floats, before: Floats, span: Floats, devices: Devices) -> Mask:
        """Check at which devices the server's centroids have converged, bool[n]."""

    def expected_messages(self, known: Known) -> Pattern | None:
        """Return the pattern of the reports, for `p2pkm plan`."""

    def report(self, clients: Devices, model: Floats) -> Report:
        """Compute the reports of all clients.

        The batch may contain devices without points and the server; the report of the server is ignored.

        Parameters
        ----------
        clients : Devices
        model : float64[n, k, d]
            Last centroids that each client received, all +inf at the initial exchange.
        """

    def aggregate(self, server: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Compute the new centroids of the server, float64[k', d] with k' <= k.

        Parameters
        ----------
        server : Devices
            Batch that contains the server, for `shared_key`, `kernels`, `round` and `total`. Points of the batch must
            not be used.
        tables : list of float64[r, w]
            Last table of every client, in ascending id; tables may be empty.
        model : float64[k, d]
            Previous centroids; absent rows are +inf.
        """


class Work(NamedTuple):
    """Amount of data of a turn of every device, for `MethodBase.flops`.

    Attributes
    ----------
    sizes : int64[n]
        Local points.
    neighbors : int64[n]
        Active links.
    rows : int64[n]
        Rows received since the last active turn.
    d : int
        Number of features.
    """

    sizes: Integers
    neighbors: Integers
    rows: Integers
    d: int
