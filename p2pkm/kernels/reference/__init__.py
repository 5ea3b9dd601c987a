"""Reference kernels in NumPy: the readable form, the test oracle of the compiled kernels, and the path without numba.

Both forms add in the same order (features, points and neighbors ascending), so their results are bit-identical.
`np.bincount`, `np.cumsum` and `np.add.at` add term by term; `np.sum` does not and must not be used. A public function
loops over the devices of a batch; the private function above it treats one device.
"""

from p2pkm.core.wire_format import integer_bits
from p2pkm.kernels.reference.averaging import add_differences
from p2pkm.kernels.reference.breathing import breathe
from p2pkm.kernels.reference.cdkm import cdkm
from p2pkm.kernels.reference.cost import evaluate_costs, losses
from p2pkm.kernels.reference.flooding import concatenate_tables, merge_flooded
from p2pkm.kernels.reference.fuzzy_cmeans import fuzzy_cmeans
from p2pkm.kernels.reference.graph import color, components, lanczos, layers, mirror
from p2pkm.kernels.reference.gtvmin import gtv, gtvmin
from p2pkm.kernels.reference.kmeans import kmeans, refine
from p2pkm.kernels.reference.philox import philox, ragged_uniforms, uniforms
from p2pkm.kernels.reference.reductions import cluster_moments, count_class_labels, moments

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
    "philox",
    "ragged_uniforms",
    "refine",
    "uniforms",
]
