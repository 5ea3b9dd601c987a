"""The methods by their names on the command line; each is imported when it is asked for."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from p2pkm.core.plugins import METHODS as GROUP
from p2pkm.core.plugins import extend

_HOME = "p2pkm."


class MethodEntry(NamedTuple):
    """Where a method lives: module and class, and the options that the name stands for."""

    module: str
    kind: str
    fixed: Mapping[str, Any] = {}


METHODS: Mapping[str, MethodEntry] = {
    "gtvmin": MethodEntry("methods.peer.gtvmin", "GTVMin"),
    "treelloyd": MethodEntry("methods.tree.treelloyd", "TreeLloyd"),
    "consensus": MethodEntry("methods.peer.consensus", "ConsensusLloyd"),
    "pushsum": MethodEntry("methods.peer.pushsum", "PushSumLloyd"),
    "tracking": MethodEntry("methods.peer.tracking", "TrackingLloyd"),
    "private": MethodEntry("methods.peer.private", "Private"),
    "admm": MethodEntry("methods.peer.admm", "ADMM"),
    "gossip": MethodEntry("methods.peer.gossip", "GossipMatching"),
    "dgc": MethodEntry("methods.peer.dgc", "DGC"),
    "gossip-sum": MethodEntry("methods.peer.gossip_sum", "GossipSum"),
    "epidemic": MethodEntry("methods.peer.epidemic", "Epidemic"),
    "coreset": MethodEntry("methods.peer.coreset", "Coreset"),
    "fkm": MethodEntry("methods.server.fkm", "FKM"),
    "kfed": MethodEntry("methods.server.kfed", "KFED"),
    "fkmeanscb": MethodEntry("methods.server.fkmeanscb", "FKMeansCB"),
    "feca": MethodEntry("methods.server.feca", "FeCA"),
    "ffcm1": MethodEntry("methods.server.ffcm", "FFCM", {"version": 1}),
    "ffcm2": MethodEntry("methods.server.ffcm", "FFCM", {"version": 2}),
    "mavg": MethodEntry("methods.server.mavg", "MAvg"),
    "mufc": MethodEntry("methods.server.mufc", "MUFC"),
    "central": MethodEntry("methods.server.centralized", "Central", {"method": "lloyd"}),
    "cdkm": MethodEntry("methods.server.centralized", "Central", {"method": "cdkm"}),
    "deepfeca": MethodEntry("deep.deepfeca", "DeepFeCA"),
    "deepgossip": MethodEntry("deep.deepgossip", "DeepGossip"),
    "local": MethodEntry("methods.peer.local_only", "LocalOnly"),
}


def find(name: str) -> Callable[..., Any]:
    """Return the class of a method, with the options that its name stands for."""
    if name not in METHODS:
        from p2pkm.methods.declaration import check_declaration  # with NumPy, which names alone do not need

        return check_declaration(extend(METHODS, GROUP, name)[name], name)
    home = METHODS[name]
    kind: Callable[..., Any] = getattr(import_module(_HOME + home.module), home.kind)
    return partial(kind, **home.fixed) if home.fixed else kind


def with_link_weights() -> list[str]:
    """Return the names of the methods in which the weights of links act, with their default parameters."""
    return [name for name in METHODS if find(name)(1).traits.link_weights]


def suggest_methods(fits: Callable[[Any], bool]) -> str:
    """Return what to type instead of a method that was refused: the methods that a condition holds for.

    Parameters
    ----------
    fits : callable
        Gets a method with its default parameters; those that need parameters, or images, are not asked for.
    """
    found = []
    for name in METHODS:
        method = find(name)(1)
        if not (method.traits.needs_parameters or method.traits.derives_features) and fits(method):
            found.append(name)
    return f"--algorithm {', '.join(found[:-1])} or {found[-1]}"


def known(spec: str) -> dict[str, Callable[..., Any]]:
    """Return all names, and the class behind the one that a spec begins with; the others are not imported."""
    wanted = spec.strip().partition(":")[0].replace("_", "-").lower()
    return {name: find(name) if name == wanted else partial(find, name) for name in extend(METHODS, GROUP, spec)}


def names() -> list[str]:
    """Return the names of all methods, those of other packages too."""
    return list(extend(METHODS, GROUP, None))
