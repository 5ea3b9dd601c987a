"""Support of methods for points that change during a run (`--stream`)."""

from typing import Any

from p2pkm.core.errors import ExperimentError
from p2pkm.methods.registry import suggest_methods


def check_following(algorithm: Any, *, timed: bool) -> None:
    """Reject a method that cannot follow points that change during the run.

    Parameters
    ----------
    algorithm : MethodBase
        The method.
    timed : bool
        Whether the run has a link model.

    Raises
    ------
    ExperimentError
        If the method or one of its parameters does not support a stream.
    """
    traits = algorithm.traits
    if timed and algorithm.schedule == "async":
        raise ExperimentError(
            "--stream cannot be combined with --schedule async and --link-model: devices then act at individual times, "
            "but points change from round to round. Remove --stream or --link-model, or use --schedule colored."
        )
    if traits.no_stream:
        raise ExperimentError(f"--stream cannot be combined with {traits.no_stream}")
    if traits.groups:
        raise ExperimentError(
            f"--groups cannot be combined with --stream: {algorithm.name} finds groups once, at the start. Remove "
            "--groups or --stream."
        )
    if not traits.follows_points:
        raise ExperimentError(
            f"{algorithm.name} cannot follow a stream: with these parameters it does not read its points again "
            f"in every round. Remove --stream, or use {suggest_methods(lambda other: other.traits.follows_points)}"
        )


def follow(algorithm: Any) -> Any:
    """Replace tree Lloyd by its variant for points that change; other methods are returned unchanged."""
    from p2pkm.methods.tree.tracking import TrackingTreeLloyd
    from p2pkm.methods.tree.treelloyd import TreeLloyd

    if isinstance(algorithm, TreeLloyd) and not isinstance(algorithm, TrackingTreeLloyd):
        return TrackingTreeLloyd(**vars(algorithm))
    return algorithm
