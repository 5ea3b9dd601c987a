"""The kernels in plain NumPy: the readable form, the oracle of the compiled one, and the path without numba.

Both forms add in the same order (features ascending, points ascending, neighbors ascending), so they return the same
bits: `np.bincount`, `np.cumsum` and `np.add.at` add one term after the other, `np.sum` does not and is not used.
A batch function loops over devices; the function with the underscore above it treats one device.
"""

from p2pkm.core.wire_format import integer_bits
from p2pkm.kernels.reference.cdkm import cdkm
from p2pkm.kernels.reference.cost import losses, price
from p2pkm.kernels.reference.flooding import bundle, merge
from p2pkm.kernels.reference.fuzzy_cmeans import fuzzy
from p2pkm.kernels.reference.graph import color, components, lanczos, layers, mirror
from p2pkm.kernels.reference.gtvmin import gtv, gtvmin
from p2pkm.kernels.reference.kmeans import kmeans, refine
from p2pkm.kernels.reference.philox import philox, uniforms
from p2pkm.kernels.reference.reductions import moments, tabulate

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
    "philox",
    "price",
    "refine",
    "tabulate",
    "uniforms",
]
