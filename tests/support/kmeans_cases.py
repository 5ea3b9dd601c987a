"""Plugin of pytest that runs scikit-learn's cases of KMeans with P2PKMeans, and writes their outcomes to $CASES."""

import inspect
import json
import os
from collections import Counter
from pathlib import Path

import sklearn.cluster

import p2pkm

SCIKIT_LEARN = Path(sklearn.__file__).parent
CASES = SCIKIT_LEARN / "cluster" / "tests" / "test_k_means.py"
# Tests of what P2PKMeans does not have, by the beginning of their names.
NOT_APPLICABLE = {
    "test_minibatch": "MiniBatchKMeans",
    "test_kmeans_elkan": "algorithm elkan",
    "test_warning_elkan": "algorithm elkan",
    "test_k_means_function": "function k_means",
    "test_kmeans_plusplus": "function kmeans_plusplus",
    "test_relocate_empty_clusters": "private function",
    "test_euclidean_distance": "private function",
    "test_inertia": "private function",
    "test_is_same_clustering": "private function",
    "test_sample_weight_init": "private function",
    "test_sample_weight_zero": "private function",
}
_outcomes = {"dense": {}, "sparse": {}}
_kinds = {}


class P2PKMeans(p2pkm.P2PKMeans):
    """P2PKMeans whose parameter `algorithm` of KMeans, lloyd, is ignored."""

    def __init__(self, *args, algorithm=None, **params):
        del algorithm
        super().__init__(*args, **params)

    __init__.__signature__ = inspect.signature(p2pkm.P2PKMeans.__init__)  # scikit-learn reads the parameters from it

    def set_params(self, *, algorithm=None, **params):
        del algorithm
        return super().set_params(**params)


def pytest_collection_modifyitems(items):
    """Select the cases, and replace KMeans by P2PKMeans."""
    real, items[:] = sklearn.cluster.KMeans, [item for item in items if applies(item)]
    for item in items:
        params = parameters(item)
        params.update({name: P2PKMeans for name, value in params.items() if value is real})
        item.module.KMeans = P2PKMeans
        _kinds[item.nodeid] = "sparse" if any(map(is_sparse, params.values())) else "dense"


def applies(item):
    """Check whether a case is about KMeans with Lloyd's algorithm."""
    values = parameters(item).values()
    return not item.name.startswith(tuple(NOT_APPLICABLE)) and not any(
        (isinstance(value, str) and value == "elkan") or value is sklearn.cluster.MiniBatchKMeans for value in values
    )


def parameters(item):
    """Return the parameters of a case, which may be changed."""
    return item.callspec.params if hasattr(item, "callspec") else {}


def is_sparse(value):
    """Check whether a parameter is a sparse matrix or its class."""
    return "csr" in (value if isinstance(value, type) else type(value)).__name__


def pytest_runtest_logreport(report):
    """Keep the outcome of a case."""
    if report.when == "call" or report.failed:
        _outcomes[_kinds[report.nodeid]][report.nodeid.rpartition("::")[2]] = report.outcome


def pytest_sessionfinish():
    """Write the outcomes."""
    Path(os.environ["CASES"]).write_text(json.dumps(_outcomes))
    for kind, outcomes in _outcomes.items():
        print(kind, dict(Counter(outcomes.values())))
