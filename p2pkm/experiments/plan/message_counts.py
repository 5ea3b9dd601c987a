"""Messages and bytes of every round of a plan, without a run: exact where the data have no say, else at most."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from p2pkm.channel.byzantine import ByzantineMessages
from p2pkm.core.expected_messages import Volume
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.experiments.plan.patterns import Facts, Rounds, add_up, read
from p2pkm.methods.init.pipelines import Stage, find_own

Volumes = Callable[[int], Volume]
# bits of an integer on the wire, about: of a move on the grid, in int8 or beside the method, else
_MOVE, _INT8, _DIFFERENCE = 4, 8, 10


class Course(NamedTuple):
    """What a stage sends.

    Attributes
    ----------
    name : str
    rounds : int
        At most.
    volume : callable
        Returns what is sent in round t, the opening being 0; None: unknown.
    steady : bool
        Whether all rounds but the opening are the same.
    """

    name: str
    rounds: int
    volume: Volumes | None
    steady: bool = False

    def total(self) -> Volume:
        """Return what the opening and all rounds send together, if there are as many as possible."""
        if self.volume is None:
            return Volume(0, 0, False, False)
        if self.steady:
            one = self.volume(1)
            return self.volume(0) + one.times(self.rounds)
        return sum((self.volume(t) for t in range(1, self.rounds + 1)), self.volume(0))


def stage_traffic(plan: RunPlan) -> list[Course]:
    """Return what every stage of a plan sends."""
    asked = plan.experiment
    found, full = [], False
    open_k = asked.clusters == "auto"  # planned with the largest k, of which fewer may be chosen
    narrow = open_k or asked.min_cluster_size > 1 or asked.byzantine is not None or asked.transforms is not None
    lies = _suspect(plan)
    for stage in plan.stages:
        sent = stage.algorithm.expected_messages(plan.known)
        course = Course(stage.name, stage.rounds, None)
        if sent is not None:
            rounds, steady = read(sent, Facts(plan, stage, full))
            volume = _encode(_count(rounds, stage, plan, lies), stage, plan)
            silent = asked.quantize.in_integers and stage.algorithm.traits.moves_on_grid  # who has not moved
            course = Course(stage.name, stage.rounds, _loosen(volume) if narrow or silent else volume, steady)
        found.append(course)
        full = stage.algorithm.finds_all(plan.known, full)
        narrow |= stage.algorithm.traits.cuts_links
    return found


def _encode(volume: Volumes, stage: Stage, plan: RunPlan) -> Volumes:
    """Return the same with about as many bytes on the wire as integers take, if the run sends them in this stage."""
    spec, traits = plan.experiment.quantize, stage.algorithm.traits
    if not spec.in_integers or not (traits.moves_on_grid or traits.counts_on_grid or stage is find_own(plan.stages)):
        return volume
    fixed = str(spec).startswith("int8") or traits.counts_on_grid
    bits = _INT8 if fixed else _MOVE if traits.moves_on_grid else _DIFFERENCE

    def at(t: int) -> Volume:
        found = volume(t)
        opening = traits.moves_on_grid and t == 0  # of the start that all hold, nothing is sent
        return found._replace(wire=0 if opening else found.messages + found.bytes * bits // 64)

    return at


def _loosen(volume: Volumes) -> Volumes:
    """Return the same as bounds: links may have gone out of use."""
    return lambda t: volume(t)._replace(exact_messages=False, exact_bytes=False)


def _suspect(plan: RunPlan) -> ByzantineMessages | None:
    """Return who may send tables that are a row too long, and in which stages; None: nobody."""
    if plan.run is None:
        return None
    found = plan.run.channel.find(ByzantineMessages)
    if found is None or found["spec"].kind != "nan":
        return None
    return ByzantineMessages(**found, method=type(find_own(plan.stages).algorithm))


def _count(rounds: Rounds, stage: Stage, plan: RunPlan, lies: ByzantineMessages | None) -> Volumes:
    """Return the volume of each round, with one more row in every table of a Byzantine device: of the wrong shape."""
    told = None if lies is None else lies.begin(stage, closing=False)
    if lies is None or told is None or not told.acts:
        return lambda t: add_up(rounds(t))
    liars, opening = np.isin(np.arange(plan.topology.n), lies.ids), told.opening

    def at(t: int) -> Volume:
        sent = rounds(t)
        found = add_up(sent)
        if opening and t:
            return found
        more = sum(
            # every table may be a Byzantine device's; none is wider than a centroid and its count
            8 * part.messages * (plan.size.features + 1) if isinstance(part, Volume) else part.one_more_row(liars)
            for part in sent
        )
        return found._replace(bytes=found.bytes + more)

    return at
