"""The compiled kernels under the names of `p2pkm.kernels.plain`; the first call of each compiles or reads the cache."""

from typing import Any

from p2pkm.kernels import compiling  # noqa: F401 - counts from now on
from p2pkm.kernels.cdkm import cdkm
from p2pkm.kernels.digest import digest
from p2pkm.kernels.flood import bundle, merge
from p2pkm.kernels.fuzzy import fuzzy
from p2pkm.kernels.graph import color, components, layers, mirror
from p2pkm.kernels.gtvmin import _sweep, gtv, gtvmin
from p2pkm.kernels.kmeans import _devices, kmeans, refine
from p2pkm.kernels.price import _losses, losses, price
from p2pkm.kernels.sums import moments, tabulate

__all__ = [
    "bundle",
    "cdkm",
    "color",
    "components",
    "digest",
    "fuzzy",
    "gtv",
    "gtvmin",
    "kmeans",
    "layers",
    "losses",
    "merge",
    "mirror",
    "moments",
    "price",
    "refine",
    "tabulate",
]
_BEHIND = {"gtvmin": _sweep, "kmeans": _devices, "losses": _losses}


def entry(name: str) -> Any:
    """Return what numba compiles of a kernel: itself, or what stands behind a function that divides its work."""
    return _BEHIND.get(name, globals()[name])
