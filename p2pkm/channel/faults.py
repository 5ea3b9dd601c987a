"""Execution of a stage under faults: availability of devices, loss and delay of messages.

Failures are not announced. An unavailable device neither computes, sends nor receives, and messages to it are lost. A
straggler receives, but neither computes nor sends. Both continue later from their last state. Messages over a link that
is down are lost. A delayed message is received in the exchange of the same turn, a number of rounds later. If several
messages of a sender arrive at once, the newest is received.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pkm.channel.availability import Availability
from p2pkm.channel.fault_model import FaultModel, build_fault_model, rebuild_fault_model
from p2pkm.channel.sampled_faults import Faults, SampledFaults
from p2pkm.channel.stale_policy import StalePolicy
from p2pkm.channel.transform import Order, PlacedOnGraph, ReshapesMethod, RunScope, SavesItself, Settings, Transform
from p2pkm.core.batch import Devices, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, Inbox, RaggedArray
from p2pkm.methods.init.pipelines import Stage, find_method_stage
from p2pkm.methods.schedules import Schedule
from p2pkm.network.delay_model import ReceivedTables, SentTables
from p2pkm.network.graph import Topology
from p2pkm.network.halo import LocalSubgraph
from p2pkm.network.transport import Network

# Larger than any round.
_NEVER = np.iinfo(np.int64).max


class FaultInjector(PlacedOnGraph, ReshapesMethod, SavesItself, Transform):
    """Faults of a run on one rank: the `DelayModel` of each stage that they affect.

    Rounds of the fault model are numbered over all stages; the initial exchange of a stage is a round, too.

    Parameters
    ----------
    faults : FaultModel
    stale : StalePolicy
    topology : Topology
    placement : LocalSubgraph
    round_clock : RoundClock, optional
        Clock that knows when a round begins and which messages miss its deadline, see
        `p2pkm.channel.transform.RunScope`.
    only_deadline : bool
        Nothing fails; messages can only miss the deadline.

    Attributes
    ----------
    bound : int
        Tables of a sender that are stored in addition to its newest one.
    unavailable_total, rounds : int
        Unavailable devices of the system, summed over `rounds` rounds.
    inactive : bool[n]
        Local devices that do not act in the current round: unavailable ones and stragglers.
    arrives : bool[e]
        Local edges whose message of the last exchange arrives, now or later, even if it is too late to be used.
    """

    name: ClassVar[str] = "faults"
    order: ClassVar[Order] = Order.DELIVER
    option: ClassVar[str] = "faults"
    further_options: ClassVar[tuple[str, ...]] = ("deadline",)
    delays: ClassVar[bool] = True
    # A delayed message is unchanged. Claims of descent depend on `Devices.has_stale_links` instead.
    alters = False

    @classmethod
    def configure(cls, options: Settings) -> Settings | None:
        """Read the options `faults` and `stale_policy`."""
        faults, stale = options.get("faults"), StalePolicy.of(options.get("stale_policy"))
        deadline = options.get("deadline")
        if deadline is not None and options.get("link_model") is None:
            raise ExperimentError(
                f"deadline {deadline:g} requires a link model, whose time it limits. Remove --deadline, or add for "
                "example --link-model wan"
            )
        if faults is None and deadline is None:
            if stale is not None:
                raise ExperimentError(
                    f"stale policy {stale} requires faults or a deadline. Remove --stale-policy, or add for example "
                    "--faults loss=0.1"
                )
            return None
        faults = faults or Faults()
        if faults.empty and deadline is None:
            return None
        return {"options": faults, "stale": stale or StalePolicy.keep(), "deadline": deadline}

    @classmethod
    def place(
        cls, settings: Settings, topology: Topology, seed: int, arrays: Mapping[str, Any] | None = None
    ) -> Settings | None:
        """Build the fault model on the graph; None if nothing ever fails."""
        options = settings["options"]
        if arrays is None:
            faults = build_fault_model(options, topology, seed)
        else:
            faults = rebuild_fault_model(options, arrays, topology, seed)
        if faults is None and settings["deadline"] is not None:
            # Nothing fails, but messages may miss the deadline.
            faults = SampledFaults(Faults(), topology, seed)
        return None if faults is None else {**settings, "faults": faults}

    @classmethod
    def to_arrays(cls, settings: Settings) -> dict[str, Any]:
        """Collect the events of a trace, which other ranks may be unable to read."""
        arrays: dict[str, Any] = settings["faults"].to_arrays()
        return arrays

    @classmethod
    def build(cls, settings: Settings, scope: RunScope) -> "FaultInjector":
        """Build the injector of this rank."""
        return cls(
            settings["faults"], settings["stale"], scope.topology, scope.network.placement, scope.round_clock,
            only_deadline=settings["options"].empty,
        )  # fmt: skip

    def __init__(
        self, faults: FaultModel, stale: StalePolicy, topology: Topology, placement: LocalSubgraph,
        round_clock: Any = None, *, only_deadline: bool = False,
    ) -> None:  # fmt: skip
        n = topology.n
        self._round_clock = round_clock
        self._has_deadline = round_clock is not None and round_clock.deadline is not None
        self._timed: Any = faults if faults.in_seconds else None
        self._replayed: Settings = {"faults": faults, "stale": stale}
        self._only_deadline = only_deadline
        # Messages to local devices that missed the deadline.
        self._late = 0
        self.exposes = faults.stages == "all"
        self._ignored_events = faults.ignored_events
        self._max_delay = max(faults.max_delay, int(self._has_deadline))
        self._stale = stale.place(topology.indices, topology.sources)
        self._age = self._stale.age
        self._n = n
        self._clients = topology.clients
        self._ids = placement.ids
        self._ghosts = placement.ghosts
        self._senders = placement.senders
        self._indptr = placement.indptr
        self._receivers = np.repeat(np.arange(len(placement.ids)), np.diff(placement.indptr))
        # A local edge is a link seen from its receiver, a local device.
        self._source = placement.indices
        self._target = placement.ids[self._receivers]
        self._availability = Availability(faults, n, self._source, self._target)
        # Round of the fault model at the start of the stage, and the turn of the next exchange.
        self._first, self._turn = 0, 0
        # Messages to each local device that were lost.
        self._losses = np.zeros(len(placement.ids), np.int64)
        self.bound = self.unavailable_total = self.rounds = 0
        self._clear()

    def _clear(self) -> None:
        """Discard all messages at the start of a stage."""
        e = len(self._source)
        # Number of tables that each local device, and each halo device, has sent.
        self._count = np.zeros(len(self._ids) + len(self._ghosts), np.int64)
        # Number of the last table received over each local edge; 0: none.
        self._held = np.zeros(e, np.int64)
        # Round in which that table became outdated.
        self._since = np.full(e, _NEVER)
        # Messages in transit: round and turn of arrival, local edge, number of the table.
        self._queue = np.zeros((0, 4), np.int64)
        self._fresh = self._unread = self.arrives = np.zeros(e, np.bool_)

    def adapt(self, algorithm: Any, topology: Topology) -> Any:
        """Return the method in the form that tolerates faults."""
        return algorithm.under_faults(topology)

    def notes(self, stages: Sequence[Stage]) -> list[str]:
        """Write notes on stages without faults, and on ignored events of the trace."""
        method_stage = find_method_stage(stages)
        unaffected = ", ".join(
            dict.fromkeys(stage.name for stage in stages if stage is not method_stage and not stage.faults_apply)
        )
        notes = []
        if self._has_deadline:
            notes.append(f"the deadline limits the rounds of {method_stage.name}")
        if self._only_deadline:
            return notes
        if unaffected and self.exposes:
            notes.append(f"faults do not affect {unaffected}: these stages require all messages, and receive them")
        elif unaffected:
            around = "before" if method_stage is stages[-1] else "before or after"
            notes.append(
                f"faults affect {method_stage.name}, not the stages {around} it ({unaffected}); stages=all affects "
                "them, too"
            )
        if self._ignored_events:
            count = f"{self._ignored_events:,} events of the fault trace"
            notes.append(f"{count} are about links or a server that are not in the graph")
        return notes

    def closing_notes(self) -> list[str]:
        """Write a note if the trace lasts much longer than the run, or ends much earlier."""
        faults: FaultModel = self._replayed["faults"]
        note = faults.describe_end(self._availability.round)
        return [note] if note else []

    def begin(self, stage: Stage, *, closing: bool) -> "FaultInjector | None":
        """Return the injector for the method's stage and the stages that faults apply to, None for others."""
        self._stage = stage if closing else None
        return self if closing or stage.faults_apply else None

    def wrap(self, algorithm: Any, schedule: Schedule, network: Network) -> tuple[Any, Schedule]:
        """Start a stage; return its algorithm and schedule under faults."""
        # Tables that a device sends in a round: one per turn if all act in every turn, otherwise one when it acts, and
        # one at the end of the round if the links change.
        tables = schedule.length if schedule.is_synchronous else 2
        self.bound = self._age + self._max_delay * tables if self._age else 0
        self._first = self._availability.round + 1
        self._network = network
        self._not_converged = 0
        self._clear()
        self.start_round(0)
        if self._round_clock is not None and self._stage is not None:
            self._round_clock.open(self._stage, schedule, self._replayed, network)
        return FaultyAlgorithm(algorithm, self, self._receivers), schedule._replace(
            check_termination=self.check_termination
        )

    def start_round(self, stage_round: int) -> None:
        """Start a round of the stage, unless it has started: apply the faults that begin in it."""
        t = self._first + stage_round
        if t == self._availability.round:
            return
        if self._timed is not None:
            self._timed.move_to(self._round_clock.find_start(self._first) if stage_round else 0.0)
        self._availability.start_round(t)
        self.absent = self._availability.absent
        self.inactive = self._availability.inactive[self._ids]
        # Initial exchanges do not count as rounds of the summary metric.
        if stage_round:
            self.rounds += 1
            # Devices of the system, without stragglers and server.
            self.unavailable_total += int(np.count_nonzero(self._availability.absent[: self._clients]))

    def hold_unread(self) -> None:
        """Keep tables that arrived at a device that does not act marked as fresh until it acts."""
        self._unread = self._fresh & self.inactive[self._receivers]

    def set_turn(self, turn: int, converged: Mask) -> None:
        """Store the turn of the next exchange, and count the local devices that have not converged."""
        self._turn = turn
        self._not_converged = int(np.count_nonzero(~converged))

    def receive(self, tables: SentTables) -> ReceivedTables:
        """Return the table that is received over each local edge after an exchange."""
        sending, t = tables.rows >= 0, self._availability.round
        self._count += sending
        number, sent = self._count[self._senders], sending[self._senders]
        sent = sent if tables.open_edges is None else sent & tables.open_edges
        message_delays = self._message_delays(sent)
        held = self._held
        arrived = self._collect_arrived(
            np.where(sent & (message_delays == 0), number, 0), np.where(sent, message_delays, 0), number
        )
        # A delayed message never replaces a newer one.
        self._held = np.maximum(held, arrived)
        is_new = self._held > held
        # A table is outdated if its sender has sent a newer one, or is unavailable.
        is_outdated = (self._held < number) | self._availability.absent[self._source]
        self._since = np.where(is_outdated, np.where(is_new, t, np.minimum(self._since, t)), _NEVER)
        lag = number - self._held
        is_used = self._stale.is_used(t - self._since, self._source, self._target)
        is_usable = (self._held > 0) & is_used & (lag <= self.bound)
        self._fresh = (is_new | self._unread) & is_usable
        return ReceivedTables(np.where(is_usable, lag, -1), self._fresh)

    def _message_delays(self, sent: Mask) -> Integers:
        """Return the delay of the message over each local edge in rounds, -1 if it is lost; count losses."""
        message_delays = self._availability.delay_messages(self._turn)
        if self._round_clock is not None and self._stage is not None:
            overdue = self._round_clock.find_overdue(self._first) & (message_delays == 0)
            self._late += int(np.count_nonzero(overdue & sent))
            message_delays[overdue] = 1
        self.arrives = sent & (message_delays >= 0)
        # Stale policy "drop": a delayed message would not be used, so it counts as lost.
        if not self._age:
            message_delays = -np.minimum(np.abs(message_delays), 1)
        self._count_losses(np.flatnonzero(sent & (message_delays < 0)))
        return message_delays

    def _collect_arrived(self, arrived: Integers, message_delays: Integers, number: Integers) -> Integers:
        """Add delayed messages that arrive now; return the newest table number that arrived over each edge, 0: none."""
        t, delayed = self._availability.round, np.flatnonzero(message_delays > 0)
        arrival = t + message_delays[delayed], np.full(len(delayed), self._turn)
        added = np.column_stack((*arrival, delayed, number[delayed]))
        queue = np.concatenate((self._queue, added))
        is_due = (queue[:, 0] < t) | ((queue[:, 0] == t) & (queue[:, 1] <= self._turn))
        self._queue, due = queue[~is_due], queue[is_due]
        # The receiver may have become unavailable in the meantime.
        is_lost = self._availability.absent[self._target[due[:, 2]]]
        self._count_losses(due[is_lost, 2])
        np.maximum.at(arrived, due[~is_lost, 2], due[~is_lost, 3])
        return arrived

    def _count_losses(self, edges: Integers) -> None:
        """Count one lost message over each of these local edges."""
        np.add.at(self._losses, self._receivers[edges], 1)

    @property
    def lost(self) -> int:
        """Number of lost messages to local devices."""
        return int(self._losses.sum())

    def check_termination(self, stop: str) -> str:
        """Return the reason to stop, empty to continue."""
        if stop != "silent":
            return stop
        # An exchange without messages does not end the stage while a delayed message is in transit, whose receiver may
        # answer, or while a device does not act and some device has not converged, since it may act when it is back.
        in_transit, not_converged, any_inactive = self._network.total(
            np.array([len(self._queue), self._not_converged, int(self.inactive.any())])
        )
        return "" if in_transit or (not_converged and any_inactive) else stop

    def snapshot(self) -> dict[str, Any]:
        """Return the state between two rounds, also of stages without faults, see `p2pkm.engine.state_tree`."""
        count = np.zeros(self._n, np.int64)
        count[self._ids] = self._count[: len(self._ids)]
        # Messages in transit are stored with their receiver, and their edge as its number among those of the receiver:
        # positions of edges on a rank depend on the rank partition.
        in_transit = self._queue[np.argsort(self._queue[:, 2], kind="stable")]
        owner = self._receivers[in_transit[:, 2]]
        in_transit[:, 2] -= self._indptr[owner]
        return {
            "round": self._availability.round, "first": self._first,
            "away": self.unavailable_total, "rounds": self.rounds,
            "store_until": self._availability.until.T, "edge_down": self._availability.down, "store_count": count,
            "edge_held": self._held, "edge_since": self._since, "edge_fresh": self._fresh,
            "queue": RaggedArray(in_transit, np.bincount(owner, minlength=len(self._ids))),
            "losses": self._losses, "late": self._late,
        }  # fmt: skip

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot, in the last stage that was started if faults affect it."""
        self._availability.restore(snapshot["round"], snapshot["store_until"].T.copy(), snapshot["edge_down"])
        self.absent = self._availability.absent
        self._first = snapshot["first"]
        self.unavailable_total = snapshot["away"]
        self.rounds = snapshot["rounds"]
        self._count = snapshot["store_count"][np.concatenate((self._ids, self._ghosts))]
        self._held = snapshot["edge_held"]
        self._since = snapshot["edge_since"]
        self._fresh = snapshot["edge_fresh"]
        self._losses = snapshot["losses"]
        self._late = snapshot["late"]
        self._queue, counts = snapshot["queue"]
        self._queue[:, 2] += np.repeat(self._indptr[:-1], counts)

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the summary metrics: lost messages, and the mean share of unavailable devices over the rounds."""
        lost = int(network.total(np.array([self.lost]))[0])
        unavailable = self.unavailable_total / (self.rounds * self._clients) if self.rounds else 0.0
        figures = {"messages_lost": lost, "unavailable_fraction": unavailable}
        if not self._has_deadline:
            return figures
        return figures | {"messages_late": int(network.total(np.array([self._late]))[0])}


@dataclass(frozen=True)
class FaultyAlgorithm:
    """Algorithm under faults: devices that do not act keep their state and send nothing.

    Attributes
    ----------
    algorithm : Algorithm
    injector : FaultInjector
    owners : int64[e]
        Position of the receiver of each local edge.
    """

    algorithm: Any
    injector: FaultInjector
    owners: Integers

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Return the state before the initial exchange, also of unavailable devices: it needs no messages."""
        return self.algorithm.initial_state(devices, start)

    def message(self, state: Any, devices: Devices) -> DenseMessages:
        """Return the messages of the devices that act."""
        inactive = self.injector.inactive
        self.injector.set_turn(devices.turn, state.converged)
        messages: DenseMessages = self.algorithm.message(
            state, devices.at_turn(devices.round, devices.turn, devices.active_devices & ~inactive)
        )
        return messages._replace(rows=np.where(inactive, -1, messages.rows)) if inactive.any() else messages

    def update(self, state: Any, inbox: Inbox, devices: Devices) -> Any:
        """Return the state after a turn of the devices that act."""
        self.injector.start_round(devices.round)
        self.injector.hold_unread()
        inactive = self.injector.inactive
        batch = devices.at_turn(devices.round, devices.turn, devices.active_devices & ~inactive)
        updated = self.algorithm.update(state, inbox, batch)
        if not inactive.any():
            return updated
        return _freeze_inactive(state, updated, inactive, inactive[self.owners])


def _freeze_inactive(before: Any, after: Any, inactive: Mask, edges: Mask) -> Any:
    """Return the state after a turn, with the fields of inactive devices as before it.

    Parameters
    ----------
    before, after : NamedTuple
    inactive : bool[n]
    edges : bool[e]
        Local edges of the inactive devices.
    """
    frozen = {}
    for name, old, new in zip(after._fields, before, after, strict=True):
        if isinstance(new, tuple):
            frozen[name] = _freeze_inactive(old, new, inactive, edges)
        # Fields `store_*` hold tables by origin, whichever device has received them, and are never taken back.
        elif old is not None and new is not old and not name.startswith("store_") and old.shape == new.shape:
            is_frozen = edges if name.startswith("edge_") else inactive
            frozen[name] = np.where(is_frozen.reshape(-1, *[1] * (new.ndim - 1)), old, new)
    return after._replace(**frozen)
