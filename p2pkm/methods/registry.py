"""Registry of the methods by their names on the command line; a method is imported when it is looked up."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from p2pkm.core.plugins import METHODS as GROUP
from p2pkm.core.plugins import extend
from p2pkm.methods.published import accept_key

_PACKAGE = "p2pkm."
# Method without messages, which has neither a graph nor a server.
ALONE = "local"


class MethodEntry(NamedTuple):
    """Location of a method.

    Attributes
    ----------
    module : str
        Module within the package `p2pkm`.
    kind : str
        Name of the class.
    fixed : dict
        Parameters that the name on the command line fixes.
    """

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
    "fedlloyd": MethodEntry("methods.server.fedlloyd", "FedLloyd"),
    "dwfkm": MethodEntry("methods.server.dwfkm", "DWFKM"),
    "fkm": MethodEntry("methods.server.fkm", "FKM"),
    "kfed": MethodEntry("methods.server.kfed", "KFED"),
    "fkmeanscb": MethodEntry("methods.server.fkmeanscb", "FKMeansCB"),
    "feddp": MethodEntry("methods.server.feddp", "FedDPKMeans"),
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
    """Return the class of a method, with the parameters that its name fixes."""
    if name not in METHODS:
        # Imported here, because it imports NumPy, and completion of names on the command line must be fast without it.
        from p2pkm.methods.declaration import check_declaration

        return check_declaration(extend(METHODS, GROUP, name)[name], name)
    entry = METHODS[name]
    kind: Callable[..., Any] = getattr(import_module(_PACKAGE + entry.module), entry.kind)
    return partial(kind, **entry.fixed) if entry.fixed else kind


def with_link_weights() -> list[str]:
    """List the methods that use link weights, with their default parameters."""
    return [name for name in METHODS if find(name)(1).traits.link_weights]


def suggest_methods(fits: Callable[[Any], bool]) -> str:
    """List the methods that fulfill a condition, as an option that users can copy.

    Parameters
    ----------
    fits : callable
        The condition, from a method with its default parameters to bool. Methods that require parameters or images are
        left out.
    """
    fitting = []
    for name in METHODS:
        method = find(name)(1)
        if not (method.traits.needs_parameters or method.traits.derives_features) and fits(method):
            fitting.append(name)
    return f"--algorithm {', '.join(fitting[:-1])} or {fitting[-1]}"


def known(spec: str) -> dict[str, Callable[..., Any]]:
    """Map all names to classes; only the class named at the beginning of `spec` is imported.

    Methods with published values accept the key `defaults`, see `p2pkm.methods.published`.
    """
    key = spec.strip().partition(":")[0].replace("_", "-").lower()
    return {
        name: accept_key(name, find(name)) if name == key else partial(find, name)
        for name in extend(METHODS, GROUP, spec)
    }


def names() -> list[str]:
    """List the names of all methods, including those of other packages."""
    return list(extend(METHODS, GROUP, None))
