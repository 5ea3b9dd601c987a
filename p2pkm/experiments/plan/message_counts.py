"""Predicted messages and bytes of each round of a plan, without running it.

Exact if they do not depend on the points, otherwise an upper bound.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from p2pkm.channel.byzantine import ByzantineMessages
from p2pkm.core.expected_messages import MessageVolume
from p2pkm.core.protocols import declares
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.experiments.plan.patterns import SentByRound, TrafficInputs, add_up, predict_sent
from p2pkm.methods.init.pipelines import Stage, find_method_stage

VolumeByRound = Callable[[int], MessageVolume]
# Approximate bits per integer: moves on a grid, messages outside the method, all other differences; and fixed width,
# which is 16 bits for large numbers and 8 for others.
_MOVE, _DIFFERENCE, _FIXED = 4, 10, 12


class StageTraffic(NamedTuple):
    """Predicted messages of a stage.

    Attributes
    ----------
    name : str
    rounds : int
        Maximum number of rounds.
    volume : callable or None
        Messages and bytes of round t as a function of t; round 0 is the initial exchange. None: unknown.
    steady : bool
        All rounds after round 0 are equal.
    is_assumed : bool
        The method declares no messages, so that they are those that most methods send; or the stage has faults, whose
        effect is not counted.
    """

    name: str
    rounds: int
    volume: VolumeByRound | None
    steady: bool = False
    is_assumed: bool = False

    def total(self) -> MessageVolume:
        """Add up the initial exchange and the maximum number of rounds."""
        if self.volume is None:
            return MessageVolume(0, 0, False, False)
        if self.steady:
            return self.volume(0) + self.volume(1).times(self.rounds)
        return sum((self.volume(t) for t in range(1, self.rounds + 1)), self.volume(0))


def stage_traffic(plan: RunPlan) -> list[StageTraffic]:
    """Predict the messages of each stage of a plan."""
    options = plan.experiment
    traffic, full = [], False
    # Each of these can shorten tables: a k that the devices choose is planned with its maximum.
    is_bound = (
        options.clusters == "auto"
        or options.min_cluster_size > 1
        or options.byzantine is not None
        or options.compress is not None
        or options.transforms is not None
    )
    byzantine = _find_malformed_messages(plan)
    for stage in plan.stages:
        pattern = stage.algorithm.expected_messages(plan.known)
        predicted = StageTraffic(stage.name, stage.rounds, None)
        if pattern is not None:
            sent, steady = predict_sent(pattern, TrafficInputs(plan, stage, full))
            volume = _encode(_count(sent, stage, plan, byzantine), stage, plan)
            # A device whose integers have not changed sends nothing.
            may_be_silent = options.quantize.in_integers and stage.algorithm.traits.moves_on_grid
            if is_bound or may_be_silent:
                volume = _as_upper_bound(volume)
            is_method = stage is find_method_stage(plan.stages)
            is_disturbed = bool(plan.not_counted) and (is_method or stage.faults_apply)
            is_assumed = is_disturbed or not declares(stage.algorithm, "expected_messages")
            predicted = StageTraffic(stage.name, stage.rounds, volume, steady, is_assumed)
        traffic.append(predicted)
        full = declares(stage.algorithm, "finds_all") and stage.algorithm.finds_all(plan.known, full)
        # Stages after one that deactivates links send less.
        is_bound |= stage.algorithm.traits.cuts_links
    return traffic


def _encode(volume: VolumeByRound, stage: Stage, plan: RunPlan) -> VolumeByRound:
    """Add the approximate encoded bytes, if the run encodes the messages of the stage as integers."""
    spec, traits = plan.experiment.quantize, stage.algorithm.traits
    if not spec.in_integers or not (traits.moves_on_grid or stage is find_method_stage(plan.stages)):
        return volume
    if str(spec).startswith("int8"):
        bits = _FIXED
    elif traits.moves_on_grid:
        bits = _MOVE
    else:
        bits = _DIFFERENCE

    def encoded(t: int) -> MessageVolume:
        plain = volume(t)
        # All devices hold the same initial centroids, so no differences are sent in round 0.
        is_free = traits.moves_on_grid and t == 0
        return plain._replace(wire=0 if is_free else plain.messages + plain.bytes * bits // 64)

    return encoded


def _as_upper_bound(volume: VolumeByRound) -> VolumeByRound:
    """Mark messages and bytes as upper bounds."""
    return lambda t: volume(t)._replace(exact_messages=False, exact_bytes=False)


def _find_malformed_messages(plan: RunPlan) -> ByzantineMessages | None:
    """Return the transform of Byzantine devices if they send malformed tables, which may have an extra row."""
    if plan.run is None:
        return None
    settings = plan.run.channel.find("byzantine")
    if settings is None or settings["spec"].kind != "nan":
        return None
    return ByzantineMessages(**settings, method=type(find_method_stage(plan.stages).algorithm))


def _count(sent: SentByRound, stage: Stage, plan: RunPlan, byzantine: ByzantineMessages | None) -> VolumeByRound:
    """Count messages and bytes of each round, with an extra row in the malformed tables of Byzantine devices."""
    behavior = None if byzantine is None else byzantine.begin(stage, closing=False)
    if byzantine is None or behavior is None or not behavior.is_active:
        return lambda t: add_up(sent(t))
    is_byzantine, only_in_opening = np.isin(np.arange(plan.topology.n), byzantine.ids), behavior.initial_exchange_only

    def count(t: int) -> MessageVolume:
        parts = sent(t)
        volume = add_up(parts)
        if only_in_opening and t:
            return volume
        extra = sum(
            # The senders of a `MessageVolume` are unknown, so any of them may be Byzantine. No table is wider than a
            # centroid with its count.
            8 * part.messages * (plan.size.features + 1)
            if isinstance(part, MessageVolume)
            else part.extra_row_bytes(is_byzantine)
            for part in parts
        )
        return volume._replace(bytes=volume.bytes + extra)

    return count
