"""Averaging step of a method, as far as the theorem on its speed needs it."""

from typing import Any, NamedTuple

from p2pkm.core.batch import Floats


class AveragingStep(NamedTuple):
    """Linear step ``z_i <- A_ii z_i + sum_j A_ij z_j`` that a method repeats within a round; columns of A add up to 1.

    It must be reversible: ``A_ij loads_j = A_ji loads_i``, as for symmetric weights with equal loads.

    Attributes
    ----------
    weights : float64[e]
        A_ij at the edge from device i to its neighbor j.
    loads : float64[n]
        Weights of the devices in the long run, up to a factor on each component of the graph.
    turns : int
        Number of steps in a round. The method keeps z in the field `averages` of its state between them.
    """

    weights: Floats
    loads: Floats
    turns: int


# What a class may change of the step that a base class declares.
_PARTS = {"averaging_step", "exchange", "update", "message", "offered", "retained", "finish_turn"}


def find_step(method: Any, topology: Any) -> AveragingStep | None:
    """Return the step of a method; None without one, or if a class changes it and declares no other one.

    Parameters
    ----------
    method : Algorithm or ServerMethod
    topology : Topology
    """
    changed = next((base for base in type(method).__mro__ if vars(base).keys() & _PARTS), object)
    step: AveragingStep | None = method.averaging_step(topology) if "averaging_step" in vars(changed) else None
    return step
