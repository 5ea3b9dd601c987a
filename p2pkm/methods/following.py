"""Support of methods for points that change during a run (`--stream`)."""

from typing import Any


def follow(algorithm: Any) -> Any:
    """Replace tree Lloyd by its variant for points that change; other methods are returned unchanged."""
    from p2pkm.methods.tree.tracking import TrackingTreeLloyd
    from p2pkm.methods.tree.treelloyd import TreeLloyd

    if isinstance(algorithm, TreeLloyd) and not isinstance(algorithm, TrackingTreeLloyd):
        return TrackingTreeLloyd(**vars(algorithm))
    return algorithm
