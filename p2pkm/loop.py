"""Stages and the loop, all of it; knows no algorithm."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.changing import Links
from p2pkm.devices import Devices, Floats, Integers, Mask
from p2pkm.mail import Letters, Mail
from p2pkm.network import Network
from p2pkm.recipe import Stage
from p2pkm.referee import Referee
from p2pkm.schedule import make

if TYPE_CHECKING:
    from p2pkm.events import Events
    from topologies import TimeVaryingGraph


class Start(NamedTuple):
    """Given centroids, float64[n, k, d], in the place of a seeding stage's state; settled: bool[n]."""

    centroids: Floats
    settled: Mask


class Ending(NamedTuple):
    """The last state, why the last stage stopped, and after how many rounds."""

    state: Any
    stop: str
    rounds: int


class Field(NamedTuple):
    """Where stages are played: the batch, the colours of all devices, the referee, and whether to stop early.

    graph: which links the last stage uses in which round, None: all; events: the clocks it goes by, None: by rounds.
    """

    devices: Devices
    colors: Integers
    referee: Referee
    interrupted: Callable[[], bool]
    graph: "TimeVaryingGraph | None" = None
    events: "Events | None" = None


def run(stages: Sequence[Stage], start: Floats | None, field: Field) -> Ending:
    """Run the stages one after another, each from the state of the one before; the run closes with the last one."""
    state: Any = None if start is None else Start(start, np.ones(len(field.devices), np.bool_))
    ending = Ending(state, "none", 0)
    whole, handed = field, [state]  # handed over: what a stage started from is not kept while it runs
    del state, start
    for stage in stages:
        field = _use(whole, whole.devices) if stage.whole else field
        ending = run_stage(stage, handed.pop(), field, closing=stage is stages[-1])
        handed.append(ending.state)
        if ending.stop == "interrupted":
            break
        if hasattr(ending.state, "edge_active"):
            field = _use(field, field.devices.using(ending.state.edge_active, ending.state.edge_degrees))
    return ending


def _use(field: Field, devices: Devices) -> Field:
    """Let the devices speak over those links from now on that they have in use."""
    field.referee.network.use(devices.active)
    field.referee.meet(devices, field.referee.prices)
    return field._replace(devices=devices)


def run_stage(stage: Stage, start: Any, field: Field, *, closing: bool) -> Ending:
    """Update, THEN speak: after a round everybody has heard everybody's newest table."""
    algorithm, network = stage.algorithm, field.referee.network
    events = field.events if closing else None
    field = field if events is None else _use(field, replace(field.devices, late=True))
    network.open(events)
    schedule = make(algorithm.schedule, field.devices, field.colors)
    if events is not None:
        schedule = events.open(algorithm, field.devices, network)
    links = Links(field.devices, network, field.graph if closing else None)
    state = algorithm.init(links.devices, start)
    del start
    mail = algorithm.message(state, links.devices.of(schedule.opening))
    inbox = _deliver(network, mail)
    stop = links.judge(_verdict(network, state, field.interrupted(), spoke=_speaks(mail), opening=True))
    t = turn = 0
    while True:
        stop = stop or ("round-limit" if t == stage.rounds else "")
        record = {"stage": stage.name, "round": t, "turn_count": turn}
        field.referee.look(record, state, algorithm, last=bool(stop), closing=closing and bool(stop))
        if stop:
            return Ending(state, stop, t)
        t, spoke, turn = t + 1, False, 0
        for turn, awake in enumerate(schedule.turns(t), 1):
            now = links.devices.at(t, turn - 1, awake)
            state = algorithm.update(state, inbox, now)
            if links.change(due=schedule.in_step or turn == schedule.length):
                now = links.devices.at(t, turn - 1, schedule.opening)
            mail = algorithm.message(state, now)
            inbox = _deliver(network, mail)
            spoke = _speaks(mail) or (spoke and not schedule.answers)
        stop = schedule.judge(links.judge(_verdict(network, state, field.interrupted(), spoke=spoke)))


def _deliver(network: Network, mail: Mail | Letters) -> Any:
    return network.deliver(mail) if isinstance(mail, Letters) else network.exchange(mail)


def _speaks(mail: Mail | Letters) -> bool:
    return len(mail.who) > 0 if isinstance(mail, Letters) else bool((mail.rows >= 0).any())


def _verdict(network: Network, state: Any, interrupted: bool, *, spoke: bool, opening: bool = False) -> str:
    """Return why to stop, or nothing: a logical AND over all devices, the simulator's convenience, uncounted."""
    settled = state.settled
    stalled = settled | getattr(state, "stalled", False)
    counts = np.array([interrupted, spoke, np.sum(~settled), np.sum(~stalled)], np.int64)
    asked, speakers, unsettled, moving = network.total(counts)
    if asked:
        return "interrupted"
    if not speakers:
        return "silent"
    if opening or (unsettled and moving):
        return ""
    return "stalled" if unsettled else "converged"
