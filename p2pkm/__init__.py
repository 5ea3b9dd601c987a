"""Decentralized peer-to-peer k-means on communication graphs, with or without MPI.

The import is fast: each public name is loaded when it is first used.

>>> import p2pkm, topologies
>>> X, y = p2pkm.grid16(points=50, seed=0)
>>> device = p2pkm.partition.dirichlet(y, 16, alpha=0.3, seed=0)
>>> shards = p2pkm.Shards.deal(X, device, devices=16, labels=y)
>>> result = p2pkm.simulate(p2pkm.GTVMin(16), topologies.ring(16), shards)
"""

from importlib import import_module
from typing import Any

from p2pkm.core.version import __version__ as __version__


def _read_modules() -> dict[str, str]:
    """Read the module of every public name from the stub."""
    modules = {}
    # The stub is the only list of the names. It is read without `ast`, whose import takes longer than that of p2pkm.
    with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as stub:
        for line in stub:
            match line.split():
                case ["from", module, "import", _, "as", name]:
                    modules[name] = module
    return modules


_MODULES = _read_modules()
__all__ = sorted(_MODULES.keys() - {"__version__"})


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'p2pkm' has no attribute {name!r}")
    module = _MODULES[name]
    loaded = import_module(module)
    # A name that the module lacks is a module within it: p2pkm.viz and p2pkm.partition.
    return vars(loaded)[name] if name in vars(loaded) else import_module(f"{module}.{name}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
