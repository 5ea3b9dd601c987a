"""Methods on points that change during a run: which can follow them, and in which form."""

from typing import Any

from p2pkm.core.errors import ExperimentError
from p2pkm.methods.registry import suggest_methods


def check_following(algorithm: Any, *, timed: bool) -> None:
    """Reject a method that cannot follow points that change, with an ExperimentError; timed: with a link model."""
    traits = algorithm.traits
    if timed and algorithm.schedule == "async":
        raise ExperimentError(
            "stream and the async schedule with a link model are both given; devices act by clocks of their own then, "
            "but points change from round to round. Leave one of them out"
        )
    if traits.no_stream:
        raise ExperimentError(f"stream and {traits.no_stream}. Leave one of them out")
    if traits.groups:
        raise ExperimentError(
            f"{algorithm.name} with groups cannot follow a stream: it finds groups once, at the start. Leave --groups "
            "or --stream out"
        )
    if not traits.follows_points:
        raise ExperimentError(
            f"{algorithm.name} cannot follow a stream: with these parameters it does not measure its points anew in "
            f"every round. Remove --stream, or use {suggest_methods(lambda other: other.traits.follows_points)}"
        )


def follow(algorithm: Any) -> Any:
    """Return the method in the form that follows points that change."""
    from p2pkm.methods.tree.tracking import TrackingTreeLloyd
    from p2pkm.methods.tree.treelloyd import TreeLloyd

    if isinstance(algorithm, TreeLloyd) and not isinstance(algorithm, TrackingTreeLloyd):
        return TrackingTreeLloyd(**vars(algorithm))
    return algorithm
