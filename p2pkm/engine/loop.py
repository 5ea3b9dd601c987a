"""Run the stages of one experiment, round by round; independent of the method."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from signal import SIGTERM
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from p2pkm.channel.pipeline import Channel, StageChannel
from p2pkm.channel.transform import SCALING
from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import DenseMessages, Inbox, SparseMessages
from p2pkm.core.states import optional
from p2pkm.core.termination import STOPPED
from p2pkm.engine.active_links import ActiveLinks
from p2pkm.engine.point_feed import PointFeed
from p2pkm.methods.init.pipelines import Stage, find_own
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


class Checkpointer(Protocol):
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
    channel: what messages pass on their way; interrupted: the signal that asks to stop, if any; all_rounds: whether the
    method plays all of its rounds, whatever has converged; feed: how the points change in the last stage, None: they
    stay.
    """

    devices: Devices
    colors: Integers
    referee: Monitor
    interrupted: Callable[[], int]
    graph: "TimeVaryingGraph | None" = None
    keeper: Checkpointer | None = None
    events: "Events | None" = None
    channel: Channel = Channel()
    all_rounds: bool = False
    feed: PointFeed | None = None

    @property
    def late(self) -> bool:
        """Return whether messages may be late, or lost, in the last stage."""
        return self.events is not None or self.channel.delays


def run(stages: Sequence[Stage], start: Floats | None, field: RunContext) -> StageResult:
    """Run the stages one after another, each from the state of the one before; the run closes with the last one."""
    state: Any = None if start is None else Start(start, np.ones(len(field.devices), np.bool_))
    ending = StageResult(state, "none", 0)
    whole, handed = field, [state]  # handed over: what a stage started from is not kept while it runs
    del state, start
    first, field = _take_up(field)
    own, ended = find_own(stages), None
    for number, stage in enumerate(stages[first:], first):
        field = _use(whole, whole.devices) if stage.all_links else field
        ending = run_stage(stage, handed.pop(), field, number, closing=stage is own)
        ended = ending if stage is own else ended
        handed.append(ending.state)
        if ending.stop in STOPPED:
            break
        if stage.algorithm.traits.cuts_links:
            field = _use(field, field.devices.with_active_edges(ending.state.edge_active, ending.state.edge_degrees))
    return ending if ended is None or ending.stop in STOPPED else ended._replace(state=ending.state)


def _take_up(field: RunContext) -> tuple[int, RunContext]:
    """Return with which stage a run begins, or goes on, and over which links."""
    found = field.keeper and field.keeper.resume(field.devices)
    return (found[0], _use(field, found[1])) if found else (0, field)


def _use(field: RunContext, devices: Devices) -> RunContext:
    """Let the devices send over those links from now on that they have in use."""
    field.referee.network.set_active_edges(devices.active_edges)
    field.referee.attach(devices, field.referee.prices)
    return field._replace(devices=devices)


def run_stage(
    stage: Stage, start: Any, field: RunContext, number: int = SCALING, *, closing: bool = False
) -> StageResult:
    """Update, THEN send: after a round every device has received every device's newest table."""
    network, channel = field.referee.network, field.channel.begin(stage, number, closing=closing)
    field, algorithm, schedule = _begin(stage, field, channel, closing)
    keeper = field.keeper
    links = ActiveLinks(field.devices, network, field.graph if closing else None)
    taken_up = keeper and keeper.restore(links)
    state, inbox, stop, t, turn = taken_up or _open(algorithm, start, field, (channel, links, schedule))
    feed = field.feed if closing else None
    _change_points(feed, t, links, field.referee, resumed=True)
    whole = closing or stage.after  # the ends of these are measured in full
    limit = "all-rounds" if field.all_rounds else "round-limit"
    del start
    while True:
        stop = stop or (limit if t == stage.rounds else "")
        record = {"stage": stage.name, "round": t, "turn_count": turn}
        field.referee.record(record, state, stage.algorithm, last=bool(stop), closing=whole and bool(stop))
        if stop:
            return StageResult(state, stop, t)
        t, spoke, turn = t + 1, False, 0
        _change_points(feed, t, links, field.referee)
        for turn, awake in enumerate(schedule.turns(t), 1):
            now = links.devices.at_turn(t, turn - 1, awake)
            state = algorithm.update(state, channel.receive(inbox, state, now), now)
            if links.advance(due=schedule.in_step or turn == schedule.length):
                now = links.devices.at_turn(t, turn - 1, schedule.opening)
            messages = channel.send(algorithm.message, state, now)
            inbox = _deliver(network, messages)
            spoke = _sends(messages) or (spoke and not schedule.answers)
        stop, asked = _check_termination(field, state, spoke, t)
        stop = schedule.check_termination(links.check_termination(stop))
        if (
            asked.keep and keeper and not stage.after and (stop or t == stage.rounds or isinstance(inbox, Inbox))
        ):  # sparse messages are not kept
            keeper.keep(StageState(state, inbox, stop, t, turn), field.devices, links, last=bool(asked.stop))
        stop = asked.stop or stop


def _change_points(
    feed: PointFeed | None, t: int, links: ActiveLinks, referee: Monitor, *, resumed: bool = False
) -> None:
    """Go on with the points of round t, if they change; resumed: they did so in all rounds up to it."""
    if feed is not None and (feed.catch_up(t) if resumed else feed.advance(t)):
        links.devices = feed.equip(links.devices)
        referee.change_points(links.devices, resumed=resumed)


def _open(algorithm: Any, start: Any, field: RunContext, at: tuple[StageChannel, ActiveLinks, Schedule]) -> StageState:
    """Let every device send at the opening what is known from the stage before."""
    network, (channel, links, schedule) = field.referee.network, at
    state = algorithm.initial_state(links.devices, start)
    messages = channel.send(algorithm.message, state, links.devices.at_stage_start(schedule.opening))
    inbox = _deliver(network, messages)
    stop, asked = _check_termination(field, state, _sends(messages), 0)
    return StageState(state, inbox, asked.stop or schedule.check_termination(links.check_termination(stop)))


def _begin(stage: Stage, field: RunContext, channel: StageChannel, closing: bool) -> tuple[RunContext, Any, Schedule]:
    """Begin a stage on the network; return where it is played, as what, and who is awake when."""
    played: Any = stage.algorithm
    network = field.referee.network
    events = field.events if closing else None
    delays = events or channel.delay_model
    if delays is not None:
        field = _use(field, replace(field.devices, late=True))
    schedule = make(played.schedule, field.devices, field.colors)
    played, schedule = channel.wrap(played, schedule, network)
    network.open(delays)
    field = field._replace(all_rounds=(field.all_rounds or field.feed is not None) and closing)
    if events is not None:
        schedule = events.open(played, field.devices, network)
    return field, played, schedule


def _deliver(network: Network, messages: DenseMessages | SparseMessages) -> Any:
    return network.deliver(messages) if isinstance(messages, SparseMessages) else network.exchange(messages)


def _sends(messages: DenseMessages | SparseMessages) -> bool:
    return len(messages.who) > 0 if isinstance(messages, SparseMessages) else bool((messages.rows >= 0).any())


class _StopRequest(NamedTuple):
    """What signals and the keeper ask for: an end of the run, and to keep it."""

    stop: str
    keep: bool


def _check_termination(field: RunContext, state: Any, spoke: bool, t: int) -> tuple[str, _StopRequest]:
    """Return why to stop, or nothing, and what is asked for.

    A logical AND over all devices, the simulator's convenience, uncounted. No checkpoint is written of an opening, so
    with checkpoints a run that is asked to stop goes on to the end of the round.
    """
    converged, keeper = state.converged, field.keeper
    oscillating = converged | optional(state, "oscillating", default=False)
    signal, due = field.interrupted(), keeper is not None and t > 0 and keeper.due(t)
    counts = np.array([
        signal != 0, signal == SIGTERM, due, keeper is not None and keeper.open,
        spoke, np.sum(~converged), np.sum(~oscillating),
    ], np.int64)  # fmt: skip
    asked, ended, wanted, kept, speakers, not_converged, moving = field.referee.network.total(counts)
    word = "terminated" if ended else "interrupted" if asked else ""
    found = _StopRequest(word if t or not kept else "", bool(wanted or (word and kept)))
    if field.all_rounds:
        return "", found
    if not speakers:
        return "silent", found
    if not t or (not_converged and moving):
        return "", found
    return "oscillating" if not_converged else "converged", found
