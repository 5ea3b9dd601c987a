"""Run the stages of one experiment, round by round; independent of the method."""

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
    """Given centroids, float64[n, k, d], in the place of a seeding stage's state; converged: bool[n]."""

    centroids: Floats
    converged: Mask


class StageState(NamedTuple):
    """Where a stage stands between two rounds; inbox: of the last exchange; stop: why the stage ends here, if it does.

    turn: number of the last turn, 1 for the first one.
    """

    state: Any
    inbox: Any
    stop: str
    round: int = 0
    turn: int = 0


class SupportsCheckpoints(Protocol):
    """What keeps a run that it may be taken up again; on rank 0 it decides when, and all ranks keep at once."""

    @property
    def open(self) -> bool:
        """Return whether anything will be kept from now on."""

    def due(self, t: int) -> bool:
        """Return whether it is time after round t of a stage."""

    def keep(self, scene: StageState, devices: Devices, links: ActiveLinks, *, last: bool) -> None:
        """Keep a scene; devices: with the links in use in the stage; last: nothing follows it."""

    def resume(self, devices: Devices) -> tuple[int, Devices] | None:
        """Return in which stage a run is taken up, and with which links; None if at its start."""

    def restore(self, links: ActiveLinks) -> StageState | None:
        """Return the scene that a run is taken up from, once: then None, and at its start."""


class StageResult(NamedTuple):
    """The last state, why the last stage stopped, and after how many rounds."""

    state: Any
    stop: str
    rounds: int


class RunContext(NamedTuple):
    """Where stages are played: the batch, the colors of all devices, the monitor, and whether to stop early.

    graph: which links the last stage uses in which round, None: all; events: the clocks it goes by, None: by rounds;
    channel: what messages pass on their way; interrupted: the signal that asks to stop, if any; all_rounds: whether
    every stage plays all of its rounds, whatever has converged; feed: how the points change in the last stage, None:
    they stay.
    """

    devices: Devices
    colors: Integers
    monitor: Monitor
    interrupted: Callable[[], int]
    graph: "TimeVaryingGraph | None" = None
    keeper: SupportsCheckpoints | None = None
    events: "Events | None" = None
    channel: Channel = Channel()
    all_rounds: bool = False
    feed: PointFeed | None = None

    @property
    def has_stale_links(self) -> bool:
        """Return whether messages may be late, or lost, in the last stage."""
        return self.events is not None or self.channel.delays


def run(stages: Sequence[Stage], start: Floats | None, context: RunContext) -> StageResult:
    """Run the stages one after another, each from the state of the one before; the run closes with the last one."""
    state: Any = None if start is None else Start(start, np.ones(len(context.devices), np.bool_))
    ending = StageResult(None, "none", 0)
    whole, handed = context, [state]  # handed over: what a stage started from is not kept while it runs
    del state, start
    first, context = _take_up(context)
    own, ended = find_method_stage(stages), None
    for number, stage in enumerate(stages[first:], first):
        context = _use(whole, whole.devices) if stage.all_links else context
        ending = run_stage(stage, handed.pop(), context, number, closing=stage is own)
        handed.append(ending.state)
        ending = ending._replace(state=None)
        ended = ending if stage is own else ended
        if ending.stop in STOPPED:
            break
        if stage.algorithm.traits.cuts_links:
            context = _use(context, context.devices.with_active_edges(handed[0].edge_active, handed[0].edge_degrees))
    return (ending if ended is None or ending.stop in STOPPED else ended)._replace(state=handed[0])


def _take_up(context: RunContext) -> tuple[int, RunContext]:
    """Return with which stage a run begins, or goes on, and over which links."""
    found = context.keeper and context.keeper.resume(context.devices)
    return (found[0], _use(context, found[1])) if found else (0, context)


def _use(context: RunContext, devices: Devices) -> RunContext:
    """Let the devices send over those links from now on that they have in use."""
    context.monitor.network.set_active_edges(devices.active_edges)
    context.monitor.attach(devices, context.monitor.prices)
    return context._replace(devices=devices)


def run_stage(
    stage: Stage, start: Any, context: RunContext, number: int = SCALING, *, closing: bool = False
) -> StageResult:
    """Update, THEN send: after a round every device has received every device's newest table."""
    network, channel = context.monitor.network, context.channel.begin(stage, number, closing=closing)
    context, algorithm, schedule = _begin(stage, context, channel, closing)
    keeper = context.keeper
    links = ActiveLinks(context.devices, network, context.graph if closing else None)
    taken_up = keeper and keeper.restore(links)
    state, inbox, stop, t, turn = taken_up or _open(algorithm, start, context, (channel, links, schedule))
    feed = context.feed if closing else None
    _change_points(feed, t, links, context, resumed=True)
    whole = closing or stage.after  # the ends of these are measured in full
    limit = "all-rounds" if context.all_rounds else "round-limit"
    del start
    while True:
        stop = stop or (limit if t == stage.rounds else "")
        record = {"stage": stage.name, "round": t, "turn_count": turn}
        context.monitor.record(record, state, stage.algorithm, last=bool(stop), closing=whole and bool(stop))
        if stop:
            return StageResult(state, stop, t)
        t, sending, turn = t + 1, False, 0
        _change_points(feed, t, links, context)
        for turn, awake in enumerate(schedule.turns(t), 1):
            now = links.devices.at_turn(t, turn - 1, awake)
            state = algorithm.update(state, channel.receive(inbox, state, now), now)
            if links.advance(due=schedule.is_synchronous or turn == schedule.length):
                now = links.devices.at_turn(t, turn - 1, schedule.opening)
            messages = channel.send(algorithm.message, state, now)
            inbox = _deliver(network, messages)
            sending = _sends(messages) or (sending and not schedule.is_request_reply)
        stop, asked = _check_termination(context, state, sending, t)
        stop = schedule.check_termination(links.check_termination(stop))
        if (
            asked.keep and keeper and not stage.after and (stop or t == stage.rounds or isinstance(inbox, Inbox))
        ):  # sparse messages are not kept
            keeper.keep(StageState(state, inbox, stop, t, turn), context.devices, links, last=bool(asked.stop))
        stop = asked.stop or stop


def _change_points(
    feed: PointFeed | None, t: int, links: ActiveLinks, context: RunContext, *, resumed: bool = False
) -> None:
    """Go on with the points of round t, if they change; resumed: they did so in all rounds up to it.

    The monitor looks at all links, also where those in use change from round to round.
    """
    if feed is not None and (feed.catch_up(t) if resumed else feed.advance(t)):
        links.devices = feed.equip(links.devices)
        context.monitor.change_points(feed.equip(context.devices), resumed=resumed)


def _open(
    algorithm: Any, start: Any, context: RunContext, at: tuple[StageChannel, ActiveLinks, Schedule]
) -> StageState:
    """Let every device send at the opening what is known from the stage before."""
    network, (channel, links, schedule) = context.monitor.network, at
    state = algorithm.initial_state(links.devices, start)
    messages = channel.send(algorithm.message, state, links.devices.at_stage_start(schedule.opening))
    inbox = _deliver(network, messages)
    stop, asked = _check_termination(context, state, _sends(messages), 0)
    return StageState(state, inbox, asked.stop or schedule.check_termination(links.check_termination(stop)))


def _begin(stage: Stage, context: RunContext, channel: StageChannel, closing: bool) -> tuple[RunContext, Any, Schedule]:
    """Begin a stage on the network; return where it is played, as what, and who is awake when."""
    played: Any = guard(stage.algorithm, any_shape=not closing or stage.algorithm.traits.derives_features)
    network = context.monitor.network
    events = context.events if closing else None
    delays = events or channel.delay_model
    if delays is not None:
        context = _use(context, replace(context.devices, has_stale_links=True))
    schedule = make(played.schedule, context.devices, context.colors)
    played, schedule = channel.wrap(played, schedule, network)
    network.open(delays)
    context = context._replace(all_rounds=context.all_rounds or (context.feed is not None and closing))
    if events is not None:
        schedule = events.open(played, context.devices, network)
    return context, played, schedule


def _deliver(network: Network, messages: DenseMessages | SparseMessages) -> Any:
    return network.deliver(messages) if isinstance(messages, SparseMessages) else network.exchange(messages)


def _sends(messages: DenseMessages | SparseMessages) -> bool:
    return len(messages.senders) > 0 if isinstance(messages, SparseMessages) else bool((messages.rows >= 0).any())


class _StopRequest(NamedTuple):
    """What signals and the keeper ask for: an end of the run, and to keep it."""

    stop: str
    keep: bool


def _check_termination(context: RunContext, state: Any, sending: bool, t: int) -> tuple[str, _StopRequest]:
    """Return why to stop, or nothing, and what is asked for.

    A logical AND over all devices, the simulator's convenience, uncounted. No checkpoint is written of an opening, so
    with checkpoints a run that is asked to stop goes on to the end of the round.
    """
    converged, keeper = state.converged, context.keeper
    oscillating = converged | optional(state, "oscillating", default=False)
    signal, due = context.interrupted(), keeper is not None and t > 0 and keeper.due(t)
    counts = np.array([
        signal != 0, signal == SIGTERM, due, keeper is not None and keeper.open,
        sending, np.sum(~converged), np.sum(~oscillating),
    ], np.int64)  # fmt: skip
    asked, ended, wanted, kept, senders, not_converged, moving = context.monitor.network.total(counts)
    word = "terminated" if ended else "interrupted" if asked else ""
    found = _StopRequest(word if t or not kept else "", bool(wanted or (word and kept)))
    if context.all_rounds:
        return "", found
    if not senders:
        return "silent", found
    if not t or moving:
        return "", found
    return "oscillating" if not_converged else "converged", found
