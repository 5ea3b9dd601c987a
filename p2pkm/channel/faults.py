"""A stage under faults: which devices are out in a round, and which messages arrive.

Failures are not announced. An unavailable device neither computes, sends nor receives, and messages to it are lost; a
straggler neither computes nor sends, but receives. Both continue from the state in which they were. A link that is down
loses what is sent over it. A message that is late is received in the exchange so many rounds later; of several that
come at once the newest is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pkm.channel.fault_model import (
    FaultModel,
    build_fault_model,
    check_faults,
    locate,
    rebuild_fault_model,
)
from p2pkm.channel.fault_trace import AWAY, KIND, LINK, ROUNDS, A, B
from p2pkm.channel.stale_policy import StalePolicy
from p2pkm.channel.transform import (
    Condition,
    Order,
    PlacedOnGraph,
    Reasons,
    ReshapesMethod,
    RunScope,
    Settings,
    Transform,
)
from p2pkm.core.batch import Devices, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, Inbox, RaggedArray
from p2pkm.methods.init.pipelines import Stage, find_method_stage
from p2pkm.methods.schedules import Schedule
from p2pkm.network.delay_model import ReceivedTables, SentTables
from p2pkm.network.graph import Topology
from p2pkm.network.halo import LocalSubgraph
from p2pkm.network.transport import Network

_NEVER = np.iinfo(np.int64).max


class FaultInjector(PlacedOnGraph, ReshapesMethod, Transform):
    """The faults of a run, as this rank sees them: a `DelayModel` for each stage that they affect.

    The rounds of the faults run on from stage to stage; the opening of a stage is a round, too.

    Attributes
    ----------
    bound : int
        Tables of a sender that are kept beside its newest one.
    away, rounds : int
        How many devices of the system were away, summed over so many rounds.
    arrives : bool[e]
        The own edges over which what was sent in the last exchange arrives, now or later, even if too late to be used.
    """

    name: ClassVar[str] = "faults"
    order: ClassVar[Order] = Order.DELIVER
    option: ClassVar[str] = "faults"
    delays: ClassVar[bool] = True
    incompatible_with: ClassVar[Reasons] = {
        Condition.LINK_MODEL: "virtual time does not know which devices were unavailable",
    }
    alters = False  # `Devices.has_stale_links` decides what is claimed

    @classmethod
    def configure(cls, options: Settings) -> Settings | None:
        """Read the options `faults` and `stale_policy`."""
        faults, stale = (options.get(name) for name in ("faults", "stale_policy"))
        if faults is None:
            if stale is not None:
                raise ExperimentError(
                    f"stale policy is {str(stale)!r}, but there are no faults; leave it out, or add --faults"
                )
            return None
        return None if faults.empty else {"asked": faults, "stale": stale or StalePolicy.keep()}

    @classmethod
    def check(cls, settings: Settings, algorithm: Any) -> None:
        """Refuse a method that overshoots or needs every message; asked once more when a trace has been read."""
        check_faults(algorithm, absence_only=settings.get("faults", settings["asked"]).absence_only)

    @classmethod
    def place(
        cls, settings: Settings, topology: Topology, seed: int, arrays: Mapping[str, Any] | None = None
    ) -> Settings | None:
        """Read the trace, or prepare the draws, for a graph."""
        asked = settings["asked"]
        if arrays is None:
            faults = build_fault_model(asked, topology, seed)
        else:
            faults = rebuild_fault_model(asked, arrays, topology, seed)
        return None if faults is None else {**settings, "faults": faults}

    @classmethod
    def to_arrays(cls, settings: Settings) -> dict[str, Any]:
        """Return the trace, which other ranks may not be able to read."""
        arrays: dict[str, Any] = settings["faults"].to_arrays()
        return arrays

    @classmethod
    def build(cls, settings: Settings, scope: RunScope) -> "FaultInjector":
        """Return the faults as this rank sees them."""
        return cls(settings["faults"], settings["stale"], scope.topology, scope.network.placement)

    def __init__(self, faults: FaultModel, stale: StalePolicy, topology: Topology, placement: LocalSubgraph) -> None:
        n = topology.n
        self.exposes, self._faults, self._age = faults.stages == "all", faults, stale.age
        self._n, self._clients = n, topology.clients
        self._ids, self._ghosts, self._senders = placement.ids, placement.ghosts, placement.senders
        self._indptr = placement.indptr
        self._receivers = np.repeat(np.arange(len(placement.ids)), np.diff(placement.indptr))
        self._source, self._target = placement.indices, placement.ids[self._receivers]
        self._places = self._target * n + self._source  # ascending
        self._round, self._first, self._turn = -1, 0, 0
        self._until = np.zeros((2, n), np.int64)  # the rounds in which each device is back, and awake again
        self._down = np.zeros(len(self._source), np.int64)  # the round in which each own edge works again
        self._losses = np.zeros(len(placement.ids), np.int64)  # messages to each own device that never came
        self.bound = self.away = self.rounds = 0
        self._clear()

    def _clear(self) -> None:
        """Forget all messages."""
        e = len(self._source)
        self._count = np.zeros(len(self._ids) + len(self._ghosts), np.int64)  # tables that each has sent
        self._held = np.zeros(e, np.int64)  # number of the table that is received over each own edge, 0: none
        self._since = np.full(e, _NEVER)  # the round since which it is old
        self._queue = np.zeros((0, 4), np.int64)  # on their way: round and turn of arrival, own edge, number
        self._fresh = self._unread = self.arrives = np.zeros(e, np.bool_)

    def adapt(self, algorithm: Any, topology: Topology) -> Any:
        """Return the method in the form that bears faults."""
        return algorithm.under_faults(topology)

    def notes(self, stages: Sequence[Stage]) -> list[str]:
        """Return which stages need all messages, and which events of the trace have no effect."""
        own = find_method_stage(stages)
        left = ", ".join(dict.fromkeys(stage.name for stage in stages if stage is not own and not stage.faults_apply))
        notes = []
        if left and self.exposes:
            notes.append(f"faults do not affect {left}: these need all messages, and get them")
        elif left:
            around = "before" if own is stages[-1] else "before or after"
            notes.append(f"faults affect {own.name}, not what comes {around} ({left}); stages=all affects that, too")
        if self._faults.ignored_events:
            count = f"{self._faults.ignored_events:,} events of the fault trace"
            notes.append(f"{count} are about links or a server that are not in the graph")
        return notes

    def begin(self, stage: Stage, *, closing: bool) -> "FaultInjector | None":
        """Affect the method's own stage, and those before it that faults apply to."""
        return self if closing or stage.faults_apply else None

    def wrap(self, algorithm: Any, schedule: Schedule, network: Network) -> tuple[Any, Schedule]:
        """Begin a stage; return its algorithm and schedule under faults."""
        tables = (
            schedule.length if schedule.is_synchronous else 2
        )  # of a device in a round; 2: where links change, all send
        self.bound = self._age + self._faults.longest * tables if self._age else 0
        self._first, self._network, self._not_converged = self._round + 1, network, 0
        self._clear()
        self.enter(0)
        return FaultyAlgorithm(algorithm, self, self._receivers), schedule._replace(
            check_termination=self.check_termination
        )

    def enter(self, step: int) -> None:
        """Begin a round of the stage, unless it has begun."""
        t = self._first + step
        if t == self._round:
            return
        self._round, n = t, self._n
        events = self._faults.begin(t)
        devices = events[events[:, KIND] < LINK]
        np.maximum.at(self._until, ((devices[:, KIND] != AWAY).astype(np.int64), devices[:, A]), t + devices[:, ROUNDS])
        links = events[events[:, KIND] == LINK]
        for one, other in ((A, B), (B, A)):
            at, here = locate(self._places, links[:, one] * n + links[:, other])
            np.maximum.at(self._down, at, t + links[here, ROUNDS])
        self._gone = self._until[0] > t
        self.out = (self._gone | (self._until[1] > t))[self._ids]
        if step:
            self.rounds += 1
            self.away += int(np.count_nonzero(self._gone[: self._clients]))

    def read(self) -> None:
        """Keep what has come to those who are out for when they are back."""
        self._unread = self._fresh & self.out[self._receivers]

    def note(self, turn: int, converged: Mask) -> None:
        """Note the turn of the next exchange, and how many devices have not converged."""
        self._turn, self._not_converged = turn, int(np.count_nonzero(~converged))

    def receive(self, tables: SentTables) -> ReceivedTables:
        """Return what is received after an exchange."""
        sending, t = tables.rows >= 0, self._round
        self._count += sending
        number, sent = self._count[self._senders], sending[self._senders]
        sent = sent if tables.open_edges is None else sent & tables.open_edges
        message_delays = self._fates(sent)
        held = self._held
        came = self._collect(
            np.where(sent & (message_delays == 0), number, 0), np.where(sent, message_delays, 0), number
        )
        self._held = np.maximum(held, came)
        new = self._held > held
        old = (self._held < number) | self._gone[self._source]
        self._since = np.where(old, np.where(new, t, np.minimum(self._since, t)), _NEVER)
        lag = number - self._held
        known = (self._held > 0) & (t - self._since < self._age) & (lag <= self.bound)
        self._fresh = (new | self._unread) & known
        return ReceivedTables(np.where(known, lag, -1), self._fresh)

    def _fates(self, sent: Mask) -> Integers:
        """Return what becomes of what is sent over each own edge: -1: lost, else so many rounds late; count losses."""
        message_delays = self._faults.message_delays(self._round, self._turn, self._source, self._target)
        message_delays[self._gone[self._target] | (self._down > self._round)] = -1
        self.arrives = sent & (message_delays >= 0)
        if not self._age:
            message_delays = -np.minimum(np.abs(message_delays), 1)  # too late
        self._lose(np.flatnonzero(sent & (message_delays < 0)))
        return message_delays

    def _collect(self, came: Integers, message_delays: Integers, number: Integers) -> Integers:
        """Return the number of the newest table that has come over each own edge by now, 0: none."""
        t, late = self._round, np.flatnonzero(message_delays > 0)
        added = np.column_stack((t + message_delays[late], np.full(len(late), self._turn), late, number[late]))
        queue = np.concatenate((self._queue, added))
        due = (queue[:, 0] < t) | ((queue[:, 0] == t) & (queue[:, 1] <= self._turn))
        self._queue, arrived = queue[~due], queue[due]
        missed = self._gone[self._target[arrived[:, 2]]]
        self._lose(arrived[missed, 2])
        np.maximum.at(came, arrived[~missed, 2], arrived[~missed, 3])
        return came

    def _lose(self, edges: Integers) -> None:
        """Count a message lost over each of these own edges."""
        np.add.at(self._losses, self._receivers[edges], 1)

    @property
    def lost(self) -> int:
        """Return how many messages to own devices never came."""
        return int(self._losses.sum())

    def check_termination(self, stop: str) -> str:
        """Return why to stop: silence is no end while something is on its way, or who is out has not converged."""
        if stop != "silent":
            return stop
        coming, not_converged, out = self._network.total(
            np.array([len(self._queue), self._not_converged, int(self.out.any())])
        )
        return "" if coming or (not_converged and out) else stop

    def snapshot(self) -> dict[str, Any]:
        """Return how things stand between two rounds, also of a stage without faults; see `p2pkm.engine.state_tree`."""
        count = np.zeros(self._n, np.int64)
        count[self._ids] = self._count[: len(self._ids)]
        late = self._queue[np.argsort(self._queue[:, 2], kind="stable")]
        owner = self._receivers[late[:, 2]]
        late[:, 2] -= self._indptr[owner]
        return {
            "round": self._round, "first": self._first, "away": self.away, "rounds": self.rounds,
            "store_until": self._until.T, "edge_down": self._down, "store_count": count,
            "edge_held": self._held, "edge_since": self._since, "edge_fresh": self._fresh,
            "queue": RaggedArray(late, np.bincount(owner, minlength=len(self._ids))),
            "losses": self._losses,
        }  # fmt: skip

    def restore(self, kept: dict[str, Any]) -> None:
        """Go on from a snapshot, in the stage that was opened last if it is affected."""
        self._round, self._first, self.away, self.rounds = (kept[name] for name in ("round", "first", "away", "rounds"))
        self._until, self._down = kept["store_until"].T.copy(), kept["edge_down"]
        self._count = kept["store_count"][np.concatenate((self._ids, self._ghosts))]
        self._held, self._since, self._fresh = kept["edge_held"], kept["edge_since"], kept["edge_fresh"]
        self._losses, (self._queue, counts) = kept["losses"], kept["queue"]
        self._queue[:, 2] += np.repeat(self._indptr[:-1], counts)

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the summary figures: messages lost, and the share of the devices away, on average over rounds."""
        lost = int(network.total(np.array([self.lost]))[0])
        away = self.away / (self.rounds * self._clients) if self.rounds else 0.0
        return {"messages_lost": lost, "unavailable_fraction": away}


@dataclass(frozen=True)
class FaultyAlgorithm:
    """An algorithm of which some devices are out: their state stays as it was, and they send nothing."""

    algorithm: Any
    trouble: FaultInjector
    owners: Integers

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Return the state before the opening, also of those who are out: it is what they know by themselves."""
        return self.algorithm.initial_state(devices, start)

    def message(self, state: Any, devices: Devices) -> DenseMessages:
        """Return the messages of the devices that are available."""
        out = self.trouble.out
        self.trouble.note(devices.turn, state.converged)
        messages: DenseMessages = self.algorithm.message(
            state, devices.at_turn(devices.round, devices.turn, devices.active_devices & ~out)
        )
        return messages._replace(rows=np.where(out, -1, messages.rows)) if out.any() else messages

    def update(self, state: Any, inbox: Inbox, devices: Devices) -> Any:
        """Return the state after those have acted who are there."""
        self.trouble.enter(devices.round)
        self.trouble.read()
        out = self.trouble.out
        now = devices.at_turn(devices.round, devices.turn, devices.active_devices & ~out)
        after = self.algorithm.update(state, inbox, now)
        return _freeze_inactive(state, after, out, out[self.owners]) if out.any() else after


def _freeze_inactive(before: Any, after: Any, out: Mask, edges: Mask) -> Any:
    """Return the state after a turn in which the devices `out` did not act; edges: bool[e], their own edges.

    Fields by origin (`store_*`) hold what was sent, whichever device has received it.
    """
    kept = {}
    for name, old, new in zip(after._fields, before, after, strict=True):
        if isinstance(new, tuple):
            kept[name] = _freeze_inactive(old, new, out, edges)
        elif old is not None and new is not old and not name.startswith("store_") and old.shape == new.shape:
            still = edges if name.startswith("edge_") else out
            kept[name] = np.where(still.reshape(-1, *[1] * (new.ndim - 1)), old, new)
    return after._replace(**kept)
