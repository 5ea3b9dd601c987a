"""Compiled kernels with the names of `p2pkm.kernels.reference`, compiled at the first call with given types."""

from typing import Any

from p2pkm.kernels.numba import compiling  # noqa: F401 - starts counting compilation time
from p2pkm.kernels.numba.averaging import _add_differences, add_differences
from p2pkm.kernels.numba.breathing import _breathe, breathe
from p2pkm.kernels.numba.cdkm import cdkm
from p2pkm.kernels.numba.cost import _evaluate_costs, _losses, evaluate_costs, losses
from p2pkm.kernels.numba.flooding import _merge_flooded, concatenate_tables, merge_flooded
from p2pkm.kernels.numba.fuzzy_cmeans import fuzzy_cmeans
from p2pkm.kernels.numba.graph import _lanczos, color, components, lanczos, layers, mirror
from p2pkm.kernels.numba.gtvmin import _gtv, _update_devices, gtv, gtvmin
from p2pkm.kernels.numba.kmeans import _devices, kmeans, refine
from p2pkm.kernels.numba.reductions import _cluster_moments, _moments, cluster_moments, count_class_labels, moments
from p2pkm.kernels.numba.wire_format import _integer_bits, integer_bits

__all__ = [
    "add_differences",
    "breathe",
    "cdkm",
    "cluster_moments",
    "color",
    "components",
    "concatenate_tables",
    "count_class_labels",
    "evaluate_costs",
    "fuzzy_cmeans",
    "gtv",
    "gtvmin",
    "integer_bits",
    "kmeans",
    "lanczos",
    "layers",
    "losses",
    "merge_flooded",
    "mirror",
    "moments",
    "refine",
]
# Compiled functions of kernels that divide their work over threads, or convert arguments.
_COMPILED_BACKENDS = {
    "gtv": _gtv, "gtvmin": _update_devices, "integer_bits": _integer_bits, "kmeans": _devices,
    "lanczos": _lanczos, "losses": _losses, "merge_flooded": _merge_flooded, "moments": _moments,
    "evaluate_costs": _evaluate_costs, "cluster_moments": _cluster_moments, "add_differences": _add_differences,
    "breathe": _breathe,
}  # fmt: skip


def entry(name: str) -> Any:
    """Return the numba dispatcher of a kernel: its own, or that of the function called for ranges of devices."""
    return _COMPILED_BACKENDS.get(name, globals()[name]).__wrapped__
