"""Virtual seconds of a plan: its turns on the clocks of a network in life, see `p2pkm.engine.virtual_time`."""

from typing import Any, NamedTuple

import numpy as np

from p2pkm.engine.virtual_time import FREE, Clock, Flops, Turn
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.experiments.plan.message_counts import Course, stage_traffic
from p2pkm.experiments.plan.turns import TurnMessages, play
from p2pkm.network.link_model import LinkParameters

_WORK = 1e9  # directed edges that may be looked at; above, the rounds to come take as long as those before
EXACT, MOST, ABOUT = _KINDS = ("exact", "at most", "about")


class Ahead(NamedTuple):
    """When the rounds of a stage will end.

    Attributes
    ----------
    name : str
    ends : list of float
        Virtual seconds since the start of the run, of the opening and of every round that is played here.
    rounds : int
        At most; there are more of them than `ends` where to play all would take long.
    kind : {"exact", "at most", "about"}
        How the seconds of its rounds are meant. "about": how many points a device will have is not known, or not all
        rounds were played.
    """

    name: str
    ends: list[float]
    rounds: int
    kind: str

    @property
    def steady(self) -> float:
        """Return the seconds of a round: the mean of the later half of those that were played."""
        half = (len(self.ends) - 1) // 2
        return (self.ends[-1] - self.ends[half]) / max(len(self.ends) - 1 - half, 1)

    @property
    def last(self) -> float:
        """Return when the last round will have ended."""
        return self.ends[-1] + (self.rounds + 1 - len(self.ends)) * self.steady


def predict_virtual_time(plan: RunPlan, net: LinkParameters) -> list[Ahead] | None:
    """Return when the rounds of every stage will have ended, if there are as many as possible; None: unknown.

    A stage begins when all devices have ended the one before, so the seconds of its rounds are its own.
    """
    clock = Clock(net, plan.topology)
    flops = Flops(plan.topology, plan.sizes, plan.size.features)
    found: list[Ahead] = []
    for stage, course in zip(plan.stages, stage_traffic(plan), strict=True):
        one = play(stage, plan)
        if one is None:
            return None
        clock.barrier()
        ends: list[float] = []
        left = _WORK
        for t in range(one.rounds + 1):
            for messages in one.turns(t):
                _pass(clock, flops, stage.algorithm, messages)
                left -= len(messages.edges) + len(messages.rows)
            ends.append(clock.now)
            if left < 0 and t > 0:
                break
        kind = ABOUT if len(ends) <= one.rounds or not plan.dealt else _judge(course)
        found.append(Ahead(course.name, ends, one.rounds, kind))
        _skip(clock, found[-1])
    return found


def tell(plan: RunPlan) -> dict[str, Any] | None:
    """Return what a plan says of virtual time: None without a network.

    ``net``, ``known``, and if so: ``rounds`` at most, ``opening`` (virtual seconds until the method's first round
    begins), ``first`` (of its first round), ``round`` (of a later one, on average), ``total``; ``kind`` of these
    ("exact", "at most" or "about") by name.
    """
    if plan.experiment.link_model is None:
        return None
    spec, run = str(plan.experiment.link_model), plan.run
    ahead = None if run is None or run.link_model is None else predict_virtual_time(plan, run.link_model)
    if ahead is None:
        return {"net": spec, "known": False}
    last, before = ahead[-1], max((stage.kind for stage in ahead), key=_KINDS.index)
    first = last.ends[1] - last.ends[0] if len(last.ends) > 1 else 0.0
    total = before if last.rounds <= 1 or before == ABOUT else MOST  # a run may end earlier
    return {
        "net": spec, "known": True, "rounds": last.rounds, "opening": last.ends[0], "first": first,
        "round": last.steady, "total": last.last,
        "kind": {"opening": before, "first": last.kind, "round": last.kind, "total": total},
    }  # fmt: skip


def _judge(course: Course) -> str:
    """Return how the ends of a stage are meant: as its messages are planned, and shorter where these are encoded."""
    volume = course.total()
    return EXACT if volume.exact_messages and volume.exact_bytes and volume.wire is None else MOST


def _pass(clock: Clock, flops: Flops, algorithm: Any, messages: TurnMessages) -> None:
    if algorithm.schedule not in FREE:
        clock.barrier()
    work = flops.of(algorithm, messages.acts, messages.rows, messages.edges)
    lengths = 8 * messages.columns * np.maximum(messages.rows, 0)
    clock.pass_turn(Turn(messages.acts, messages.rows, lengths, messages.edges, work))


def _skip(clock: Clock, stage: Ahead) -> None:
    """Move all clocks on by the rounds that were not played."""
    left = stage.last - stage.ends[-1]
    clock.ready += left
    clock.received += left
