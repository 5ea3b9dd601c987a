"""The methods by their names on the command line; each is imported when it is asked for."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from p2pkm.core.plugins import METHODS as GROUP
from p2pkm.core.plugins import extend

_HOME = "p2pkm.methods."


class Home(NamedTuple):
    """Where a method lives: module and class, and the options that the name stands for."""

    module: str
    kind: str
    fixed: Mapping[str, Any] = {}


METHODS: Mapping[str, Home] = {
    "gtvmin": Home("peer.gtvmin", "GTVMin"),
    "consensus": Home("peer.consensus", "ConsensusLloyd"),
    "pushsum": Home("peer.pushsum", "PushSumLloyd"),
    "tracking": Home("peer.tracking", "TrackingLloyd"),
    "admm": Home("peer.admm", "ADMM"),
    "gossip": Home("peer.gossip", "GossipMatching"),
    "coreset": Home("peer.coreset", "Coreset"),
    "fkm": Home("server.fkm", "FKM"),
    "kfed": Home("server.kfed", "KFED"),
    "fkmeanscb": Home("server.fkmeanscb", "FKMeansCB"),
    "feca": Home("server.feca", "FeCA"),
    "ffcm1": Home("server.ffcm", "FFCM", {"version": 1}),
    "ffcm2": Home("server.ffcm", "FFCM", {"version": 2}),
    "mavg": Home("server.mavg", "MAvg"),
    "mufc": Home("server.mufc", "MUFC"),
    "central": Home("server.centralized", "Central", {"method": "lloyd"}),
    "cdkm": Home("server.centralized", "Central", {"method": "cdkm"}),
    "alone": Home("peer.local_only", "Alone"),
}


def find(name: str) -> Callable[..., Any]:
    """Return the class of a method, with the options that its name stands for."""
    if name not in METHODS:
        return extend(METHODS, GROUP, name)[name]
    home = METHODS[name]
    kind: Callable[..., Any] = getattr(import_module(_HOME + home.module), home.kind)
    return partial(kind, **home.fixed) if home.fixed else kind


def known(spec: str) -> dict[str, Callable[..., Any]]:
    """Return all names, and the class behind the one that a spec begins with; the others are not imported."""
    wanted = spec.strip().partition(":")[0].replace("_", "-").lower()
    return {name: find(name) if name == wanted else partial(find, name) for name in extend(METHODS, GROUP, spec)}


def names() -> list[str]:
    """Return the names of all methods, those of other packages too."""
    return list(extend(METHODS, GROUP, None))
