"""The methods by their names on the command line; each is imported when it is asked for."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from p2pkm.core.plugins import METHODS as GROUP
from p2pkm.core.plugins import extend

_HOME = "p2pkm.algorithms."


class Home(NamedTuple):
    """Where a method lives: module and class, and the options that the name stands for."""

    module: str
    kind: str
    fixed: Mapping[str, Any] = {}


METHODS: Mapping[str, Home] = {
    "gtvmin": Home("gtvmin", "GTVMin"),
    "consensus": Home("consensus", "ConsensusLloyd"),
    "pushsum": Home("pushsum", "PushSumLloyd"),
    "tracking": Home("tracking", "TrackingLloyd"),
    "admm": Home("admm", "ADMM"),
    "gossip": Home("gossip", "GossipMatching"),
    "coreset": Home("coreset", "Coreset"),
    "fkm": Home("fkm", "FKM"),
    "kfed": Home("kfed", "KFED"),
    "fkmeanscb": Home("fkmeanscb", "FKMeansCB"),
    "feca": Home("feca", "FeCA"),
    "ffcm1": Home("ffcm", "FFCM", {"version": 1}),
    "ffcm2": Home("ffcm", "FFCM", {"version": 2}),
    "mavg": Home("mavg", "MAvg"),
    "mufc": Home("mufc", "MUFC"),
    "central": Home("central", "Central", {"method": "lloyd"}),
    "cdkm": Home("central", "Central", {"method": "cdkm"}),
    "alone": Home("alone", "Alone"),
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
