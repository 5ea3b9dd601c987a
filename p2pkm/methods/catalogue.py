"""Catalogue of the methods: family, contents of the messages, disclosed points and one line on each.

The command line prints it as a table. Methods of other packages lack an entry; their rows come from their traits and
docstrings.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Family = Literal["iterative", "one-shot", "private", "deep", "server", "baseline"]
FAMILIES: Mapping[Family, str] = {
    "iterative": "Iterative peer-to-peer methods",
    "one-shot": "One-shot peer-to-peer methods",
    "private": "Private methods",
    "deep": "Deep clustering",
    "server": "Methods with a server",
    "baseline": "Baselines",
}


class CatalogueEntry(NamedTuple):
    """Row of a method in the catalogue.

    Attributes
    ----------
    family : str
        Key of `FAMILIES`.
    sends : str
        Contents of the messages of the method itself, without those of its initialization.
    points : {"none", "few", "sample", "all", "unknown"}
        Local points that messages of the method contain unchanged, with default options. "few": centroids of clusters
        of a single point. "sample": points that the method selects, such as k-means++ seeds. "none" is not a privacy
        guarantee.
    line : str
        Noun phrase of at most 60 characters.
    """

    family: Family
    sends: str
    points: Literal["none", "few", "sample", "all", "unknown"]
    line: str


CATALOGUE: Mapping[str, CatalogueEntry] = {
    "gtvmin": CatalogueEntry("iterative", "centroids", "few", "local k-means coupled by total variation (Jung 2025)"),
    "treelloyd": CatalogueEntry("iterative", "sums", "none", "Lloyd steps on pooled points, integer sums along a tree"),
    "consensus": CatalogueEntry("iterative", "sums", "few", "Lloyd steps on sums averaged by gossip"),
    "pushsum": CatalogueEntry("iterative", "sums", "few", "Lloyd steps on sums averaged by push-sum"),
    "tracking": CatalogueEntry("iterative", "sums", "few", "Lloyd steps on sums tracked by dynamic consensus"),
    "admm": CatalogueEntry("iterative", "centroids", "few", "local k-means under consensus constraints (ADMM)"),
    "gossip": CatalogueEntry("iterative", "centroids", "few", "means of matched centroids with one neighbor at a time"),
    "dgc": CatalogueEntry("iterative", "centroids", "few", "distributed gradient clustering (DGC-KM)"),
    "gossip-sum": CatalogueEntry("iterative", "sums", "few", "Lloyd steps on sums pushed to random neighbors"),
    "epidemic": CatalogueEntry("iterative", "sums", "few", "Lloyd steps on sums averaged in random pairs"),
    "coreset": CatalogueEntry("one-shot", "points", "sample", "k-means on a weighted sample of the pooled points"),
    "private": CatalogueEntry("private", "noisy sums", "none", "differentially private k-means by sums along a tree"),
    "deepfeca": CatalogueEntry("deep", "network weights", "none", "learned features and clusters, with a server"),
    "deepgossip": CatalogueEntry("deep", "network weights", "none", "learned features and clusters, without a server"),
    "fedlloyd": CatalogueEntry("server", "sums", "none", "Lloyd steps on pooled points, integer sums at a server"),
    "dwfkm": CatalogueEntry("server", "centroids", "few", "local Lloyd steps, weighted means at the server (DWF)"),
    "fkm": CatalogueEntry("server", "centroids", "sample", "local Lloyd steps, weighted k-means at the server"),
    "kfed": CatalogueEntry("server", "centroids", "few", "one-shot k-FED: averages around k local centroids"),
    "fkmeanscb": CatalogueEntry("server", "centroids", "none", "one-shot k-means of points with Laplace noise"),
    "feddp": CatalogueEntry("server", "sums", "none", "differentially private k-means, trusted server (FedDP)"),
    "feca": CatalogueEntry("server", "centroids", "few", "one-shot merge of refined local centroids"),
    "ffcm1": CatalogueEntry("server", "centroids", "few", "local fuzzy c-means, weighted means at the server"),
    "ffcm2": CatalogueEntry("server", "centroids", "few", "local fuzzy c-means, k-means at the server"),
    "mavg": CatalogueEntry("server", "centroids", "few", "one-shot means of matched local centroids"),
    "mufc": CatalogueEntry("server", "masked counts", "few", "one-shot k-means of quantized centroids, masked counts"),
    "central": CatalogueEntry("baseline", "points", "all", "k-means on the pooled points at a server"),
    "cdkm": CatalogueEntry("baseline", "points", "all", "coordinate descent on the pooled points at a server"),
    "local": CatalogueEntry("baseline", "nothing", "none", "k-means on every device without messages"),
}
