"""Run loop: execute the stages of a run, round by round.

A run is a sequence of stages: initialization stages, the method, optional stages after it. `run` executes them in
order, and each stage starts from the final state of the one before. `run_stage` is the only loop over rounds.

Order within a turn: update the active devices, advance time-varying links, send, deliver. All ranks execute the same
exchanges, so no rank may leave the loop early: every stopping decision is reduced over the ranks first.

The loop depends on no method, transform, transport or file format. See also `p2pkm.methods.schedules` (which devices
act in which turn), `p2pkm.channel.pipeline` (operations on messages) and `p2pkm.engine.checkpointing` (saving).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from signal import SIGTERM
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from p2pkm.channel.pipeline import Channel, StageChannel
from p2pkm.channel.transform import SCALING
from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.contract import guard
from p2pkm.core.messages import DenseMessages, Inbox, SparseMessages
from p2pkm.core.states import optional
from p2pkm.core.termination import STOPPED
from p2pkm.engine.active_links import ActiveLinks
from p2pkm.engine.point_feed import PointFeed
from p2pkm.methods.init.pipelines import Stage, find_method_stage
from p2pkm.methods.schedules import Schedule, make
from p2pkm.metrics.monitor import Monitor
from p2pkm.network.transport import Network

if TYPE_CHECKING:
    from p2pkm.engine.event_driven import Events
    from topologies import TimeVaryingGraph


class Start(NamedTuple):
    """Initial centroids that the user passed, instead of the state of an initialization stage.

    Attributes
    ----------
    centroids : float64[n, k, d]
    converged : bool[n]
        All True.
    """

    centroids: Floats
    converged: Mask


class StageState(NamedTuple):
    """State of a stage between two rounds.

    Attributes
    ----------
    state : NamedTuple
        State of the algorithm.
    inbox : Inbox or Delivery
        Messages of the last exchange.
    stop : str
        Reason why the stage ends after this round; empty if it continues.
    round : int
        Number of the last round; 0 is the initial exchange.
    turn : int
        Number of the last turn of the round, from 1.
    """

    state: Any
    inbox: Any
    stop: str
    round: int = 0
    turn: int = 0


class SupportsCheckpoints(Protocol):
    """Saving and resuming of a run. Rank 0 decides when to save; all ranks save at the same time."""

    @property
    def is_enabled(self) -> bool:
        """Whether any checkpoint will be written from now on."""

    def is_due(self, t: int) -> bool:
        """Check whether a checkpoint must be written after round t of a stage."""

    def save(self, stage_state: StageState, devices: Devices, links: ActiveLinks, *, last: bool) -> None:
        """Write a checkpoint.

        Parameters
        ----------
        stage_state : StageState
        devices : Devices
            Batch with the links that the stage may use.
        links : ActiveLinks
        last : bool
            Whether the run stops after this checkpoint, so that no other one is written.
        """

    def resume(self, devices: Devices) -> tuple[int, Devices] | None:
        """Return the number of the stage to resume, and the batch with its links; None for a new run."""

    def restore(self, links: ActiveLinks) -> StageState | None:
        """Restore the saved state of the run on the first call; None on later calls and for a new run."""


class StageResult(NamedTuple):
    """Final state of a stage, the reason why it ended, and its number of rounds."""

    state: Any
    stop: str
    rounds: int


class RunContext(NamedTuple):
    """Environment of the stages of a run on one rank.

    Attributes
    ----------
    devices : Devices
    colors : int64[N]
        Color of every device of the system.
    monitor : Monitor
    interrupted : callable
        Returns the signal that requested a stop, or 0.
    graph : TimeVaryingGraph or None
        Active links of each round of the method's stage; None if all links are always active.
    checkpointer : SupportsCheckpoints or None
    events : Events or None
        Event-driven execution of the method's stage; None if it proceeds by rounds.
    channel : Channel
    all_rounds : bool
        Whether every stage runs all of its rounds, even after convergence.
    point_feed : PointFeed or None
        Changes of the points during the method's stage.
    """

    devices: Devices
    colors: Integers
    monitor: Monitor
    interrupted: Callable[[], int]
    graph: "TimeVaryingGraph | None" = None
    checkpointer: SupportsCheckpoints | None = None
    events: "Events | None" = None
    channel: Channel = Channel()
    all_rounds: bool = False
    point_feed: PointFeed | None = None

    @property
    def has_stale_links(self) -> bool:
        """Whether messages may be late or lost in the method's stage."""
        return self.events is not None or self.channel.delays


def run(stages: Sequence[Stage], start: Floats | None, context: RunContext) -> StageResult:
    """Run the stages in order, each from the final state of the one before.

    Returns
    -------
    StageResult
        Final state of the last stage. Reason and number of rounds are those of the method's stage, or of the stage in
        which the run was stopped by a signal.
    """
    state: Any = None if start is None else Start(start, np.ones(len(context.devices), np.bool_))
    # A one-element list, so that this frame holds no reference to the start state while a stage runs: with millions of
    # devices every additional copy of the centroids counts.
    previous_state = [state]
    del state, start
    stage_result = StageResult(None, "none", 0)
    method_stage, method_result = find_method_stage(stages), None
    first, context = _find_resume_position(context)
    for number, stage in enumerate(stages[first:], first):
        is_method_stage, is_last = stage is method_stage, number == len(stages) - 1
        # Without `**`, for which Python would hold the arguments, the state before among them, until the call returns.
        stage_result = run_stage(
            stage, previous_state.pop(), context, number, is_method_stage=is_method_stage, is_last=is_last
        )
        previous_state.append(stage_result.state)
        stage_result = stage_result._replace(state=None)
        method_result = stage_result if stage is method_stage else method_result
        if stage_result.stop in STOPPED:
            break
        if stage.algorithm.traits.cuts_links:
            # All later stages use the reduced graph, not only the next one.
            state = previous_state[0]
            context = _activate_links(context, context.devices.with_active_edges(state.edge_active, state.edge_degrees))
            del state
    if method_result is None or stage_result.stop in STOPPED:
        method_result = stage_result
    return method_result._replace(state=previous_state[0])


def _find_resume_position(context: RunContext) -> tuple[int, RunContext]:
    """Return the number of the first stage to run, and the context with its links."""
    position = context.checkpointer and context.checkpointer.resume(context.devices)
    return (position[0], _activate_links(context, position[1])) if position else (0, context)


def _activate_links(context: RunContext, devices: Devices) -> RunContext:
    """Switch network and monitor to the active edges of a batch."""
    context.monitor.network.set_active_edges(devices.active_edges)
    context.monitor.attach(devices, context.monitor.cost_evaluator)
    return context._replace(devices=devices)


def run_stage(
    stage: Stage, start: Any, context: RunContext, number: int = SCALING,
    *, is_method_stage: bool = False, is_last: bool = False,
) -> StageResult:  # fmt: skip
    """Run one stage: all of its rounds, or until it converges or is stopped.

    Parameters
    ----------
    stage : Stage
    start : NamedTuple or None
        Final state of the stage before, or `Start`.
    context : RunContext
    number : int
        Number of the stage in the run, which random draws and checkpoints depend on.
    is_method_stage : bool
        Whether this is the method's own stage, which time-varying links, events and the data stream apply to.
    is_last : bool
        Whether the run ends with this stage.
    """
    network = context.monitor.network
    channel = context.channel.begin(stage, number, closing=is_method_stage)
    context, algorithm, schedule = _prepare_stage(stage, context, channel, is_method_stage)
    checkpointer = context.checkpointer
    links = ActiveLinks(context.devices, network, context.graph if is_method_stage else None)
    restored = checkpointer and checkpointer.restore(links)
    state, inbox, stop, t, turn = restored or _run_initial_exchange(algorithm, start, context, channel, links, schedule)
    point_feed = context.point_feed if is_method_stage else None
    averaging = context.monitor.averaging if is_method_stage else None
    _update_points(point_feed, t, links, context, resumed=True)
    # The last record of the method's stage, and of a stage after it, also contains the metrics that would be too
    # expensive in every record. Initialization stages do without.
    has_full_last_record = is_method_stage or stage.after
    limit = "all-rounds" if context.all_rounds else "round-limit"
    # Drop this frame's reference to the state of the stage before, see `run`.
    del start
    while True:
        stop = stop or (limit if t == stage.rounds else "")
        record = {"stage": stage.name, "round": t, "turn_count": turn}
        closing = has_full_last_record and bool(stop)
        final = closing and (is_last or stop in STOPPED)
        # Nothing has happened in a stage that all devices leave out, and its state is not that of a round.
        if not (stage.may_be_left_out and stop == "silent" and t == 0):
            context.monitor.record(record, state, stage.algorithm, last=bool(stop), closing=closing, final=final)
        if stop:
            return StageResult(state, stop, t)
        t, any_sent, turn = t + 1, False, 0
        _update_points(point_feed, t, links, context)
        for turn, active in enumerate(schedule.turns(t), 1):
            batch = links.devices.at_turn(t, turn - 1, active)
            if averaging is not None:
                averaging.observe(t, turn - 1, state)
            # Update before sending: the devices that act next must receive the tables of this turn. With the colored
            # schedule the objective could increase if a color class used the centroids of the round before.
            state = algorithm.update(state, channel.receive(inbox, state, batch), batch)
            # Time-varying graphs: `update` used the links that its tables arrived on, `message` uses the next ones.
            if links.advance(due=schedule.ends_graph_round(turn)):
                senders = active if schedule.is_request_reply else schedule.opening
                batch = links.devices.at_turn(t, turn - 1, senders)
            messages = channel.send(algorithm.message, state, batch)
            inbox = _deliver(network, messages)
            # In a request-reply schedule only the last turn decides whether anything was sent.
            any_sent = _is_sending(messages) or (any_sent and not schedule.is_request_reply)
        stop, request = _check_termination(context, state, any_sent, t)
        stop = schedule.check_termination(links.check_termination(stop))
        # A checkpoint can hold an Inbox but no sparse delivery. A stage with sparse messages is saved at its end, where
        # the delivery is not read any more. Stages after the method are never saved: a resumed run repeats them.
        is_saveable = not stage.after and (stop or t == stage.rounds or isinstance(inbox, Inbox))
        if request.save and checkpointer and is_saveable:
            stage_state = StageState(state, inbox, stop, t, turn)
            checkpointer.save(stage_state, context.devices, links, last=bool(request.stop))
        stop = request.stop or stop


def _update_points(
    point_feed: PointFeed | None, t: int, links: ActiveLinks, context: RunContext, *, resumed: bool = False
) -> None:
    """Apply the data stream of round t to batch and monitor; resumed: of all rounds up to t."""
    if point_feed is not None and (point_feed.replay_until(t) if resumed else point_feed.advance(t)):
        links.devices = point_feed.with_points(links.devices)
        # The monitor evaluates the objective over all links, also where the active links change from round to round.
        context.monitor.change_points(point_feed.with_points(context.devices), resumed=resumed)


def _run_initial_exchange(
    algorithm: Any, start: Any, context: RunContext, channel: StageChannel, links: ActiveLinks, schedule: Schedule
) -> StageState:
    """Run round 0 of a stage: initialize the state and send it before any update."""
    network = context.monitor.network
    state = algorithm.initial_state(links.devices, start)
    messages = channel.send(algorithm.message, state, links.devices.at_stage_start(schedule.opening))
    inbox = _deliver(network, messages)
    stop, request = _check_termination(context, state, _is_sending(messages), 0)
    return StageState(state, inbox, request.stop or schedule.check_termination(links.check_termination(stop)))


def _prepare_stage(
    stage: Stage, context: RunContext, channel: StageChannel, is_method_stage: bool
) -> tuple[RunContext, Any, Schedule]:
    """Prepare network, algorithm and schedule of a stage."""
    has_any_shape = not is_method_stage or stage.algorithm.traits.derives_features
    algorithm: Any = guard(stage.algorithm, any_shape=has_any_shape)
    network = context.monitor.network
    events = context.events if is_method_stage else None
    delays = events or channel.delay_model
    if delays is not None:
        context = _activate_links(context, replace(context.devices, has_stale_links=True))
    schedule = make(algorithm.schedule, context.devices, context.colors)
    algorithm, schedule = channel.wrap(algorithm, schedule, network)
    network.open(delays)
    # While points change, convergence is not final.
    runs_all_rounds = context.all_rounds or (context.point_feed is not None and is_method_stage)
    context = context._replace(all_rounds=runs_all_rounds)
    if events is not None:
        schedule = events.open(algorithm, context.devices, network)
    return context, algorithm, schedule


def _deliver(network: Network, messages: DenseMessages | SparseMessages) -> Any:
    return network.deliver(messages) if isinstance(messages, SparseMessages) else network.exchange(messages)


def _is_sending(messages: DenseMessages | SparseMessages) -> bool:
    return bool((messages.rows >= 0).any() if messages.senders is None else len(messages.senders))


class _Request(NamedTuple):
    """Requests of signals and checkpointer, identical on all ranks.

    Attributes
    ----------
    stop : str
        "interrupted" or "terminated" if the run must stop now, otherwise empty.
    save : bool
        Whether a checkpoint must be written.
    """

    stop: str
    save: bool


def _check_termination(context: RunContext, state: Any, any_sent: bool, t: int) -> tuple[str, _Request]:
    """Return the reason why the stage ends (empty: it continues), and the requests of signals and checkpointer.

    The reduction belongs to the simulator: it is not a message, and neither counted nor timed.
    """
    converged, checkpointer = state.converged, context.checkpointer
    oscillating = converged | optional(state, "oscillating", default=False)
    signal = context.interrupted()
    is_due = checkpointer is not None and t > 0 and checkpointer.is_due(t)
    is_enabled = checkpointer is not None and checkpointer.is_enabled
    # One integer reduction carries all decisions of a round, so that all ranks take the same ones: a signal may reach
    # one rank only, and integer sums, unlike float sums, do not depend on the order of the ranks.
    counts = [signal != 0, signal == SIGTERM, is_due, is_enabled, any_sent,
              *(len(flags) - np.count_nonzero(flags) for flags in (converged, oscillating))]  # fmt: skip
    totals = context.monitor.network.total(np.array(counts, np.int64))
    signaled, terminated, saves_due, saves_enabled, senders, not_converged, not_oscillating = totals
    stop = ""
    if terminated:
        stop = "terminated"
    elif signaled:
        stop = "interrupted"
    # Round 0 is never saved. With checkpoints a stop request therefore waits for the end of round 1.
    request = _Request(stop if t or not saves_enabled else "", bool(saves_due or (stop and saves_enabled)))
    if context.all_rounds:
        return "", request
    if not senders:
        return "silent", request
    if not t or not_oscillating:
        return "", request
    return "oscillating" if not_converged else "converged", request
