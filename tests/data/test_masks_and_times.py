"""Masked entries and times in arrays: every entry refuses them, because NumPy converts them to other numbers."""

from itertools import product

import networkx as nx
import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm import partition
from p2pkm.experiments.estimators.scaler import P2PStandardScaler
from tests.support.each import each
from tests.support.sampling import thin

X = np.array([[0.0, 1.0], [1.0, 0.0], [4.0, 5.0], [5.0, 4.0]])
OWNER = [0, 0, 1, 1]
MASKED = np.ma.masked_array(X, mask=np.arange(8).reshape(4, 2) == 3)
WEIGHTS = np.ma.masked_array(np.ones(4), mask=[0, 0, 0, 1])
TIMES = np.array(["2020-01-01", "NaT", "2021-01-01", "2022-01-01"], "datetime64[s]")
ENTRIES = {
    "fit": lambda values: p2pkm.P2PKMeans(2, n_devices=2).fit(values),
    "partial_fit": lambda values: fitted().partial_fit(values),
    "predict": lambda values: fitted().predict(values),
    "transform": lambda values: fitted().transform(values),
    "score": lambda values: fitted().score(values),
    "init": lambda values: p2pkm.P2PKMeans(4, n_devices=2, init=values).fit(X),
    "scaler.fit": lambda values: P2PStandardScaler(n_devices=2).fit(values),
    "scaler.transform": lambda values: scaled().transform(values),
    "scaler.inverse_transform": lambda values: scaled().inverse_transform(values),
    "deal": lambda values: p2pkm.Shards.deal(values, OWNER),
    "from_list": lambda values: p2pkm.Shards.from_list([X, values]),
    "read_table": p2pkm.read_table,
    "simulate": lambda values: p2pkm.simulate(p2pkm.GTVMin(2), topologies.ring(2), values, partition=OWNER),
    "Result.predict": lambda values: simulated().predict(values),
    "true_centers": lambda values: p2pkm.simulate(
        p2pkm.GTVMin(2), nx.path_graph(2), p2pkm.Shards.deal(X, OWNER), true_centers=values
    ),
}
WEIGHT_ENTRIES = {
    "fit": lambda values: p2pkm.P2PKMeans(2, n_devices=2).fit(X, sample_weight=values),
    "score": lambda values: fitted().score(X, sample_weight=values),
    "scaler.fit": lambda values: P2PStandardScaler(n_devices=2).fit(X, sample_weight=values),
    "deal": lambda values: p2pkm.Shards.deal(X, OWNER, weights=values),
    "from_list": lambda values: p2pkm.Shards.from_list([X[:2], X[2:]], weights=[values[:2], values[2:]]),
}
IDENTIFIER_ENTRIES = {
    "fit devices": lambda values: p2pkm.P2PKMeans(2).fit(X, devices=values),
    "predict devices": lambda values: fitted().predict(X, devices=values),
    "deal device": lambda values: p2pkm.Shards.deal(X, values),
    "deal labels": lambda values: p2pkm.Shards.deal(X, OWNER, labels=values),
    "from_list labels": lambda values: p2pkm.Shards.from_list([X[:2], X[2:]], labels=[values[:2], values[2:]]),
    "fill": lambda values: partition.fill(values, 2, minimum=1),
    "column": partition.column,
}


def fitted():
    return p2pkm.P2PKMeans(2, n_devices=2, random_state=0).fit(X, devices=OWNER)


def simulated():
    return p2pkm.simulate(p2pkm.GTVMin(2), topologies.ring(2), X, partition=OWNER)


def scaled():
    return P2PStandardScaler(n_devices=2, random_state=0).fit(X)


@pytest.mark.parametrize("form", ["array", "list of arrays"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_masked_points_are_refused_everywhere(entry, form):
    if form == "list of arrays" and entry in ("read_table", "simulate"):
        pytest.skip("takes no lists")
    with pytest.raises(ValueError, match="masked entries"):
        ENTRIES[entry](MASKED if form == "array" else list(MASKED))


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry != "scaler.inverse_transform"])
@pytest.mark.sample(5)
def test_arrays_without_masked_entries_are_ordinary(entry):
    ENTRIES[entry](np.ma.masked_array(X))


@pytest.mark.parametrize(
    ("entry", "unit"), thin(product(ENTRIES, ["datetime64[s]", "datetime64[D]", "timedelta64[h]", "objects"]), 3)
)
def test_times_are_refused_everywhere(entry, unit):
    times = np.stack([TIMES, TIMES], axis=1)
    if unit == "objects":
        values = np.array([[value, 1.0] for value in TIMES], object)
    else:
        values = times - TIMES[0] if unit[0] == "t" else times
        values = values.astype(unit)
    with pytest.raises(ValueError, match="dates or times"):
        ENTRIES[entry](values)


@pytest.mark.parametrize("entry", WEIGHT_ENTRIES)
def test_masked_weights_and_times_as_weights_are_refused(entry):
    with pytest.raises(ValueError, match="masked entries"):
        WEIGHT_ENTRIES[entry](WEIGHTS)
    with pytest.raises(ValueError, match=r"dates or times|expected \(4,\) numbers"):
        WEIGHT_ENTRIES[entry](TIMES - TIMES[0])


@each("entry", IDENTIFIER_ENTRIES)
def test_masked_identifiers_are_missing(entry):
    with pytest.raises(ValueError, match=r"masked entries|missing|expected \(4,\)"):
        IDENTIFIER_ENTRIES[entry](np.ma.masked_array([0, 0, 1, 1], mask=[0, 1, 0, 0]))


def test_masked_entries_of_a_column_are_missing_values():
    columns = {"x": np.ma.masked_array([0.0, 1.0, 1e6], mask=[0, 0, 1]), "y": [1.0, 2.0, 3.0]}
    with pytest.raises(p2pkm.DataError, match="column 'x' is empty, in 1 of 3 rows"):
        p2pkm.read_table(columns)
    assert p2pkm.read_table(columns, missing="drop").points.tolist() == [[0.0, 1.0], [1.0, 2.0]]


@pytest.mark.parametrize("make", [nx.path_graph, lambda n: 1.0 - np.eye(n)])
def test_masked_adjacency_matrices_are_refused(make):
    graph = make(3)
    links = graph if isinstance(graph, np.ndarray) else nx.to_numpy_array(graph)
    matrix = np.ma.masked_array(links, mask=np.zeros((3, 3), bool))
    assert topologies.read(matrix).number_of_edges() == np.count_nonzero(links) / 2
    matrix[0, 1] = matrix[1, 0] = np.ma.masked
    with pytest.raises(topologies.GraphError, match="masked entries"):
        topologies.read(matrix)
    with pytest.raises(ValueError, match="masked entries"):
        p2pkm.simulate(p2pkm.GTVMin(2), matrix, p2pkm.Shards.deal(X[:3], [0, 1, 2]))


def test_times_in_columns_are_days_for_estimator_and_scaler():
    import pandas as pd

    for unit in ("s", "ns"):
        frame = pd.DataFrame({"when": pd.to_datetime(["1970-01-02", "1970-01-04"]).astype(f"datetime64[{unit}]")})
        assert P2PStandardScaler(n_devices=1).fit(frame).mean_.tolist() == [2.0]
        assert p2pkm.P2PKMeans(1, n_devices=1).fit(frame).cluster_centers_.tolist() == [[2.0]]


def test_the_scaler_refuses_categories():
    import pandas as pd

    frame = pd.DataFrame({"x": [1.0, 2.0], "class": pd.Categorical([1, 2])})
    with pytest.raises(p2pkm.DataError, match="column 'class' contains categories"):
        P2PStandardScaler(n_devices=1).fit(frame)
