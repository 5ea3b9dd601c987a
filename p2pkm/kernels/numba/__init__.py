"""The kernels, compiled: the names of `p2pkm.kernels.reference`, each compiled with its arguments when first called."""

from typing import Any

from p2pkm.kernels.numba import compiling  # noqa: F401 - counts from now on
from p2pkm.kernels.numba.cdkm import cdkm
from p2pkm.kernels.numba.cost import _losses, _price, losses, price
from p2pkm.kernels.numba.flooding import _merge, bundle, merge
from p2pkm.kernels.numba.fuzzy_cmeans import fuzzy
from p2pkm.kernels.numba.graph import _lanczos, color, components, lanczos, layers, mirror
from p2pkm.kernels.numba.gtvmin import _gtv, _sweep, gtv, gtvmin
from p2pkm.kernels.numba.kmeans import _devices, kmeans, refine
from p2pkm.kernels.numba.reductions import _moments, moments, tabulate
from p2pkm.kernels.numba.wire_format import _integer_bits, integer_bits

__all__ = [
    "bundle",
    "cdkm",
    "color",
    "components",
    "fuzzy",
    "gtv",
    "gtvmin",
    "integer_bits",
    "kmeans",
    "lanczos",
    "layers",
    "losses",
    "merge",
    "mirror",
    "moments",
    "price",
    "refine",
    "tabulate",
]
_BEHIND = {
    "gtv": _gtv, "gtvmin": _sweep, "integer_bits": _integer_bits, "kmeans": _devices,
    "lanczos": _lanczos, "losses": _losses, "merge": _merge, "moments": _moments, "price": _price,
}  # fmt: skip


def entry(name: str) -> Any:
    """Return what numba compiles of a kernel: itself, or what stands behind a function that divides its work."""
    return _BEHIND.get(name, globals()[name]).__wrapped__
