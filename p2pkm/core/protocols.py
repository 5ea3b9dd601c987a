"""What a method is: three pure functions on a batch of devices, and a state of arrays."""

from typing import Any, NamedTuple, Protocol

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import DenseMessages, SparseMessages


class State(Protocol):
    """A NamedTuple of arrays, device axis first (own edge axis if named `edge_*`, origin axis if named `store_*`).

    A state may have a field `stalled`, bool[n]: unsettled, but going round in circles. The last state of a stage may
    say which edges are in use from then on: `edge_active`, bool[e], alike at both ends, and `edge_degrees`, int64[e],
    how many the neighbour at each edge then has. The last state of a run may have `edge_weight`, float64[e]: how much
    of the strength of each link is left, 0 to 1; the groups of a result are what links above a half connect.
    """

    @property
    def centroids(self) -> Floats:
        """Return the centroids, float64[n, k, d]; absent rows are +inf."""

    @property
    def settled(self) -> Mask:
        """Return which devices see no reason to go on, bool[n]."""


class Algorithm(Protocol):
    """A method: a frozen dataclass of its hyper-parameters. It never sees network, rank, clock or file.

    No function writes into an array that it was given.

    Where rows of centroids are said, `says` tells what stands in them: "centroids" (d coordinates, perhaps more
    columns), "opening" (so in the opening alone), "forwarded" (centroids of somebody else), "keyed" (points behind a
    key, forwarded), "mass" (sums and counts) or "pairs" (centroids and counts, flooded from the `flood` of the state).
    A stage with ``agreed = True`` decides on links by what both ends have said; nobody lies in it.
    A server method whose reports are not centroids has ``says = ""``. `no_min_count` says why a method cannot leave
    single rows out; where rows hold nothing of the points of rows of few, ``spares = True``.
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

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Return the state before the opening; `start` is the last stage's state, or None."""

    def message(self, state: Any, devices: Devices) -> DenseMessages | SparseMessages:
        """Return what the awake devices say, in every turn of a stage of the same kind."""

    def update(self, state: Any, inbox: Any, devices: Devices) -> Any:
        """Return the state after the awake devices have acted on what they heard: an `Inbox`, or a `Delivery`."""


class Report(NamedTuple):
    """What the clients of a batch say to the server.

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


class ServerMethod(Protocol):
    """A method with a server: a frozen dataclass of its hyper-parameters and two pure functions, run by `star.Star`.

    The server aggregates and speaks when clients have reported; clients report at the opening, and, unless the method
    is `one_shot`, whenever the server has spoken.

    A method may have an attribute ``labels``: with "induced" the scores label a point by the server's centroid nearest
    to its nearest local centroid, otherwise by the server's centroid nearest to the point.
    """

    @property
    def k(self) -> int:
        """Return the number of clusters."""

    @property
    def name(self) -> str:
        """Return the name on the command line."""

    @property
    def one_shot(self) -> bool:
        """Return whether clients report once only."""

    @property
    def default_rounds(self) -> int:
        """Return how many times the server aggregates, unless somebody says otherwise."""

    @property
    def tol(self) -> float:
        """Return below which Frobenius norm of the move of the server's table everybody is settled; 0: never."""

    @property
    def frame(self) -> str | tuple[float, float]:
        """Return in which units the points come.

        "none": as they are; "coordinate": every coordinate scaled to [0, 1] by the smallest and largest value of all
        clients; "entries": all coordinates by one such pair; two numbers: by these, which nobody needs to send.
        """

    def report(self, clients: Devices, model: Floats) -> Report:
        """Return what each client says; model: float64[n, k, d], what each last heard, all +inf at the opening.

        Works on any batch, devices without points and the hub among them; what the hub would say is ignored.
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
        Heard since the last turn awake.
    d : int
        Number of features.
    """

    sizes: Integers
    neighbors: Integers
    rows: Integers
    d: int
