"""What a result answers: its graph with figures, and which cluster a new point is in."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pandas
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import DataError

polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")

POINTS = [np.array([[0.0], [2.0], [9.0]]), np.array([[1.0]]), np.array([[0.0], [1.0], [8.0], [9.0]])]

NAMES = ("Bern", "Oslo", "Turku", "server")


def solve(method=None, graph=None, **options):
    shards = replace(p2pkm.Shards.from_list(POINTS), names=NAMES[:3])
    return p2pkm.simulate(method or p2pkm.GTVMin(2), graph, shards, **{"rounds": 2, "baselines": False} | options)


@pytest.mark.parametrize("served", [False, True])
def test_figures_of_the_graph_are_sums_over_the_ledger(served):
    weighted = nx.Graph([(0, 1, {"weight": 2.0}), (1, 2, {"weight": 0.5})])
    result = solve(p2pkm.FKM(2), None) if served else solve(graph=weighted)
    ledger, graph = result.ledger, result.to_networkx()
    assert len(graph) == 3 + served and ledger.bytes.sum() > 0
    for i, found in graph.nodes(data=True):
        points, loss = (len(POINTS[i]), result.losses[i]) if i < 3 else (0, 0.0)
        sent, received = (int(ledger.bytes[end == i].sum()) for end in (ledger.src, ledger.dst))
        wanted = {"name": NAMES[i], "points": points, "loss": loss, "sent_bytes": sent, "received_bytes": received}
        assert found == wanted | ({"server": True} if i == 3 else {})
    assert sum(edge["messages"] for *_, edge in graph.edges(data=True)) == result.summary["messages"]
    for i, j, found in graph.edges(data=True):
        forth, back = ((ledger.src == a) & (ledger.dst == b) for a, b in ((i, j), (j, i)))
        assert found == {
            "weight": 1.0 if served else weighted.edges[i, j]["weight"],
            "gtv": result.gtv[forth].item(), "messages": ledger.messages[forth | back].sum(),
            "bytes": ledger.bytes[forth | back].sum(),
        }  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*ended without centroids")
def test_a_point_is_predicted_by_the_device_that_is_asked():
    start = np.array([[[0.0], [9.0]], [[0.0], [4.0]], [[np.inf], [np.inf]]])
    result = solve(p2pkm.GTVMin(2, alpha=0.0), topologies.path(3), start=start, rounds=0)
    assert [result.predict([[3.0]], device=device).tolist() for device in (0, 1)] == [[0], [1]]
    assert result.predict([[3.0]]).tolist() == result.predict([[3.0]], device=result.best).tolist()
    with pytest.raises(DataError, match=r"device Turku has 0 centroids; expected at least one\. Choose another device"):
        result.predict([[3.0]], device=2)
    assert result.predict([[3.0]], device="Oslo").tolist() == result.predict([[3.0]], device=1).tolist()
    for device in (-1, 3, 1.0, "Rome", True, "1", "server"):
        with pytest.raises(DataError, match=f"device is {device!r}; expected 0 to 2, or one of 'Bern', 'Oslo'"):
            result.predict([[3.0]], device=device)
    assert result.predict([[True], [9]], device=np.int64(0)).tolist() == [0, 1]
    assert result.predict(np.zeros((0, 1))).tolist() == []


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([3.0], r"X has shape \(1,\), expected \(points, features\)"),
        ([[3.0, 4.0]], r"X has shape \(1, 2\); expected \(m, 1\)"),
        ([[3.0], [np.nan]], "X is nan at row 1, column 0"),
        ([[-np.inf]], "X is -inf at row 0, column 0"),
        ([[1e200]], "whose squares overflow"),
        ([["three"]], "expected real numbers"),
        ([[1.0], [2.0, 3.0]], "rows of different lengths"),
    ],
)
def test_what_is_no_point_has_no_cluster(points, words):
    result = solve(graph=topologies.path(3), rounds=0)
    with pytest.raises(DataError, match=words):
        result.predict(points)


X = np.arange(12.0).reshape(6, 2) % 7
FRAMES = {
    "pandas": lambda x, names: pandas.DataFrame(x, columns=names),
    "polars": lambda x, names: polars.DataFrame(x, schema=list(map(str, names))),
    "arrow": lambda x, names: pyarrow.table({str(name): x[:, j] for j, name in enumerate(names)}),
}


@pytest.mark.parametrize("names", [["age", "bmi"], [900, 905], ["x", "x y"]], ids=str)
@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.sample(3)
def test_columns_are_found_by_their_names(library, names):
    frame, make = FRAMES[library](X, names), FRAMES[library]
    shards = p2pkm.Shards.deal(frame, [0, 1] * 3)
    assert shards.features == tuple(map(str, names))
    result = p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(2), shards, rounds=2)
    wanted = result.predict(X).tolist()
    assert result.predict(frame).tolist() == wanted
    assert result.predict(make(X[:, ::-1], names[::-1])).tolist() == wanted
    for columns, given in (([0, 0], ["other", names[1]]), ([0], names[:1]), ([0, 1, 0], [*names, "more"])):
        with pytest.raises(DataError, match=r"not the features of the run: X (has also|lacks) .*expected the columns"):
            result.predict(make(X[:, columns], given))
    both = p2pkm.Shards.from_list([frame, make(X[:, ::-1], names[::-1])])
    assert both.points.tolist() == [*X.tolist()] * 2 and both.features == shards.features
    with pytest.raises(DataError, match="the array of device 1 has also 'other'"):
        p2pkm.Shards.from_list([frame, make(X, ["other", names[1]])])


def test_columns_without_names_keep_their_places():
    shards = p2pkm.Shards.deal(pandas.DataFrame(X), [0, 1] * 3)
    assert shards.features is None
    result = p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(2), shards, rounds=2)
    assert result.predict(pandas.DataFrame(X, columns=["a", "b"])).tolist() == result.predict(X).tolist()
    named = p2pkm.Shards.deal(pandas.DataFrame(X, columns=["a", "b"]), [0, 1] * 3)
    result = p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(2), named, rounds=2)
    assert result.predict(pandas.DataFrame(X)).tolist() == result.predict(X).tolist()
    twice = pandas.DataFrame(X, columns=["a", "a"])
    with pytest.raises(DataError, match="X lacks 'b'"):
        result.predict(twice)
