"""An array, a list or a table where one value is expected is refused with the name of the option, never compared."""

import inspect
from itertools import product

import numpy as np
import pandas as pd
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import P2PKMError
from p2pkm.core.validation import as_floats, as_list, as_path, check_scalar
from p2pkm.methods.registry import METHODS, known
from tests.support.each import each
from tests.support.sampling import thin

X, CLASSES = p2pkm.blobs(clusters=3, points=10, seed=0)
DEVICE = np.arange(len(X)) % 4
MANY = {"array": np.array([1, 2]), "rows": X[:4], "list": [1, 2], "table": pd.Series([1, 2]), "dict": {"a": 1}}


def simulate(**given):
    wanted = {"algorithm": p2pkm.ConsensusLloyd(3), "graph": topologies.ring(4), "rounds": 1,
              "shards": p2pkm.Shards.deal(X, DEVICE, devices=4)} | given  # fmt: skip
    return p2pkm.simulate(wanted.pop("algorithm"), wanted.pop("graph"), wanted.pop("shards"), **wanted)


def fit(**given):
    return p2pkm.P2PKMeans(**({"n_clusters": 3, "max_iter": 1, "random_state": 0, "algorithm": "local"} | given)).fit(X)


def compare(**given):
    return p2pkm.compare(**({"algorithms": "local", "seeds": "0", "devices": 4, "progress": False} | given))


def study(**given):
    return p2pkm.study(**({"grid": {"graph": ["ring"]}, "seeds": "0", "devices": 4, "progress": False} | given))


PYTHON = {fit: p2pkm.P2PKMeans.__init__, simulate: p2pkm.simulate, compare: p2pkm.compare, study: p2pkm.study}


def parameters(function, *but):
    return [name for name in inspect.signature(function).parameters if name not in {"self", "options", *but}]


def fails_well(call, name, value):
    """Return whether a call is refused by an error of ours; True, too, if it takes the value."""
    try:
        call(**{name: value})
    except P2PKMError:
        return True
    except ValueError as error:
        return "cannot be used to seed" in str(error)  # scikit-learn's own words on random_state
    return True


@pytest.mark.parametrize("many", MANY.values(), ids=MANY)
@pytest.mark.parametrize("name", METHODS)
def test_parameters_of_methods(name, many):
    kind = known(name)[name]
    for parameter in parameters(kind):
        with pytest.raises(P2PKMError):
            kind(**{"k": 3, parameter: many})


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize(("many", "call"), thin(product(MANY, [fit, simulate, compare, study]), 3))
@pytest.mark.sample(3)
def test_parameters_of_python_calls(call, many):
    function = {fit: p2pkm.P2PKMeans.__init__, simulate: p2pkm.simulate, compare: p2pkm.compare, study: p2pkm.study}[
        call
    ]
    names = parameters(function, "out", "jobs", "plot")
    assert [name for name in names if not fails_well(call, name, MANY[many])] == []


@pytest.mark.parametrize("name", ["start", "true_centers", "checkpoint", "sample_weight", "init"])
@pytest.mark.parametrize("value", [object(), {}, "x", b"x"], ids=["object", "dict", "text", "bytes"])
def test_arrays_and_paths_that_are_something_else(name, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = {"sample_weight": lambda **given: p2pkm.P2PKMeans(3).fit(X, **given), "init": fit}.get(name, simulate)
    if (name, value) == ("checkpoint", "x"):
        return
    with pytest.raises(P2PKMError, match=name):
        call(**{name: value})


@each("value", [object(), 3, "x", [], np.float64(2.0), (1, 2.5)])
def test_grid_and_runs_and_seeds_of_a_study(value):
    for name in ("grid", "runs", "seeds"):
        with pytest.raises(P2PKMError, match="expected"):
            study(**{name: value})


def test_what_passes():
    assert (
        check_scalar("a", "x") == "a" and check_scalar(None, "x") is None and check_scalar(np.float64(2.0), "x") == 2.0
    )
    assert as_floats([[1, 2]], "x").tolist() == [[1.0, 2.0]]
    assert as_list(np.arange(2), "x") == [0, 1] and as_list(range(2), "x") == [0, 1]
    assert as_path("a/b", "x").name == "b"


# -------------------------------------------------------------------------------- centroids as `init` of the estimator


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_array_as_init_is_the_start_of_all_devices():
    start = X[[0, 10, 20]]
    model = p2pkm.P2PKMeans(3, init=start, max_iter=1, random_state=0, n_devices=4, algorithm="consensus").fit(X)
    at = p2pkm.partition.iid(len(X), 4, seed=0)
    found = p2pkm.simulate(p2pkm.ConsensusLloyd(3), topologies.ring(4), p2pkm.Shards.deal(X, at, devices=4), rounds=1,
                           seed=0, start=np.stack([start] * 4), baselines=False)  # fmt: skip
    assert np.array_equal(model.device_centers_, found.centroids)
    assert model.init is start
    assert model.partial_fit(X).n_clusters_ == 3


@pytest.mark.parametrize(
    ("init", "words"),
    [(X[:4], r"initial centers \(4, 2\) .* number of clusters 3; expected \(3, 2\)"), (X[:3, :1], "expected"),
     (X[0], "expected"), (np.full((3, 2), np.nan), "NaN"), (np.full((3, 2), 1e200), "overflow")],
)  # fmt: skip
def test_centroids_that_cannot_be_a_start(init, words):
    with pytest.raises(P2PKMError, match=words):
        p2pkm.P2PKMeans(3, init=init).fit(X)


def test_centroids_with_an_open_number_of_clusters_or_a_server():
    with pytest.raises(P2PKMError, match="n_clusters='auto'"):
        p2pkm.P2PKMeans("auto", init=X[:3]).fit(X)
    with pytest.raises(P2PKMError, match="start"):
        p2pkm.P2PKMeans(3, init=X[:3], algorithm="fkm").fit(X)
