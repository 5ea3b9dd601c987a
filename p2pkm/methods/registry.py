"""Registry of the methods by their names on the command line; a method is imported when it is looked up."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from p2pkm.core.card import cards_of
from p2pkm.core.plugins import METHODS as GROUP
from p2pkm.core.plugins import extend

_PACKAGE = "p2pkm."
# Method without messages, which has neither a graph nor a server.
ALONE = "local"


# Names only, because completion of names on the command line must be fast without NumPy, which the classes import;
# all other facts about a method stand in the `card` of its class. Names of one class fix some of its parameters.
METHODS: Mapping[str, str] = {
    "gtvmin": "methods.peer.gtvmin:GTVMin",
    "treelloyd": "methods.tree.treelloyd:TreeLloyd",
    "consensus": "methods.peer.consensus:ConsensusLloyd",
    "pushsum": "methods.peer.pushsum:PushSumLloyd",
    "tracking": "methods.peer.tracking:TrackingLloyd",
    "private": "methods.peer.private:Private",
    "admm": "methods.peer.admm:ADMM",
    "gossip": "methods.peer.gossip:GossipMatching",
    "dgc": "methods.peer.dgc:DGC",
    "gossip-sum": "methods.peer.gossip_sum:GossipSum",
    "epidemic": "methods.peer.epidemic:Epidemic",
    "coreset": "methods.peer.coreset:Coreset",
    "fedlloyd": "methods.server.fedlloyd:FedLloyd",
    "ditto": "methods.server.ditto:Ditto",
    "dwfkm": "methods.server.dwfkm:DWFKM",
    "fkm": "methods.server.fkm:FKM",
    "kfed": "methods.server.kfed:KFED",
    "fkmeanscb": "methods.server.fkmeanscb:FKMeansCB",
    "feddp": "methods.server.feddp:FedDPKMeans",
    "feca": "methods.server.feca:FeCA",
    "ffcm1": "methods.server.ffcm:FFCM",
    "ffcm2": "methods.server.ffcm:FFCM",
    "mavg": "methods.server.mavg:MAvg",
    "mufc": "methods.server.mufc:MUFC",
    "central": "methods.server.centralized:Central",
    "cdkm": "methods.server.centralized:Central",
    "deepfeca": "deep.deepfeca:DeepFeCA",
    "deepgossip": "deep.deepgossip:DeepGossip",
    "local": "methods.peer.local_only:LocalOnly",
}


def find(name: str) -> Callable[..., Any]:
    """Return the class of a method, with the parameters that its name fixes."""
    if name not in METHODS:
        # Imported here, because it imports NumPy, and completion of names on the command line must be fast without it.
        from p2pkm.methods.declaration import check_declaration

        return check_declaration(extend(METHODS, GROUP, name)[name], name)
    module, _, kind_name = METHODS[name].partition(":")
    kind: Callable[..., Any] = getattr(import_module(_PACKAGE + module), kind_name)
    fixed = next(card.fixed for card in cards_of(kind) if card.name == name)
    return partial(kind, **fixed) if fixed else kind


def with_link_weights() -> list[str]:
    """List the methods that use link weights, with their default parameters."""
    return [name for name in METHODS if find(name)(1).traits.link_weights]


def with_guarantee() -> list[str]:
    """List the methods that have a privacy guarantee."""
    return [name for name in METHODS if find(name)(1).traits.guarantee]


def suggest_methods(fits: Callable[[Any], bool]) -> str:
    """List the methods that fulfill a condition, as an option that users can copy.

    Parameters
    ----------
    fits : callable
        The condition, from a method with its default parameters to bool. Methods that require parameters or images are
        left out. If none fits, the text says so.
    """
    fitting = []
    for name in METHODS:
        method = find(name)(1)
        if not (method.traits.needs_parameters or method.traits.derives_features) and fits(method):
            fitting.append(name)
    if not fitting:
        return "a method of your own, because none of p2pkm is suitable"
    return f"--algorithm {' or '.join(filter(None, (', '.join(fitting[:-1]), fitting[-1])))}"


def known(spec: str) -> dict[str, Callable[..., Any]]:
    """Map all names to classes; only the class named at the beginning of `spec` is imported."""
    key = spec.strip().partition(":")[0].replace("_", "-").lower()
    return {name: find(name) if name == key else partial(find, name) for name in extend(METHODS, GROUP, spec)}


def names() -> list[str]:
    """List the names of all methods, including those of other packages."""
    return list(extend(METHODS, GROUP, None))
