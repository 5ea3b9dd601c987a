"""The estimator against numpy by hand, against `simulate`, against scikit-learn's KMeans, and in its tools."""

import hashlib
import json
import pickle
import subprocess
import sys
import warnings
from functools import partial

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import p2pkm
import topologies
from p2pkm import P2PKMeans
from tests.support.each import each
from tests.support.run_cli import MPIRUN
from tests.support.sampling import thin

X, Y = p2pkm.blobs(clusters=4, points=30, sd=0.5, seed=3)
OWNER = p2pkm.partition.dirichlet(Y, 6, alpha=0.5, seed=1)


def nearest(points, centers):
    squared = ((points[:, None].astype(float) - centers[None].astype(float)) ** 2).sum(axis=2)
    return squared.argmin(axis=1), squared


def fitted(**options):
    return P2PKMeans(4, **{"random_state": 0} | options).fit(X)


@pytest.mark.slow
def test_two_devices_with_two_points_each_by_hand():
    points = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 2.0], [10.0, 2.0]])
    model = P2PKMeans(2, n_devices=2, coupling=30.0, tol=1e-12, max_iter=5000, random_state=0)
    model.fit(points, devices=[0, 0, 1, 1])
    assert_array_equal(np.sort(model.device_centers_[:, :, 0]), [[0, 10], [0, 10]])
    assert_array_equal(model.labels_, model.labels_[[0, 1, 0, 1]])
    height = model.cluster_centers_[:, 1]
    assert_allclose(model.inertia_, 2 * (height**2 + (2 - height) ** 2).sum() / 2)
    assert model.score(points) == -model.inertia_
    assert_allclose(sorted(model.transform([[0.0, 0.0]])[0]), sorted(np.hypot([0, 10], height[np.argsort(
        model.cluster_centers_[:, 0])])))  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.sample(2)
def test_labels_inertia_and_distances_are_those_of_numpy(dtype):
    points = X.astype(dtype)
    model = P2PKMeans(4, random_state=0).fit(points)
    labels, squared = nearest(points, model.cluster_centers_)
    assert_array_equal(model.labels_, labels)
    assert_array_equal(model.predict(points), labels)
    assert_array_equal(clone(model).fit_predict(points), labels)
    assert_allclose(model.inertia_, squared.min(axis=1).sum(), rtol=1e-12)
    assert_allclose(model.transform(points), np.sqrt(squared), rtol=1e-6)
    for array in (model.cluster_centers_, model.device_centers_, model.transform(points)):
        assert array.dtype == dtype


def test_cluster_centers_are_those_of_the_device_that_costs_least():
    with pytest.warns(ConvergenceWarning):
        model = fitted(algorithm="gtvmin", init="local", max_iter=1)
    costs = [nearest(X, one)[1].min(axis=1).sum() for one in model.device_centers_]
    assert_array_equal(model.cluster_centers_, model.device_centers_[np.argmin(costs)])
    assert_allclose(model.inertia_, min(costs))
    assert len(set(costs)) > 1


def test_with_devices_every_row_asks_its_own_device():
    model = P2PKMeans(4, graph="path", algorithm="gtvmin", init="local", max_iter=1, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 rounds"):
        model.fit(X, devices=OWNER)
    own = np.array([nearest(X[i : i + 1], model.device_centers_[OWNER[i]])[0][0] for i in range(len(X))])
    assert_array_equal(model.predict(X, devices=OWNER), own)
    assert_array_equal(model.predict(X), nearest(X, model.cluster_centers_)[0])
    assert len(model.device_centers_) == 6
    assert np.any(own != model.predict(X))


def test_a_device_without_centroids_gives_no_label():
    model = P2PKMeans(2, n_devices=3, algorithm="local", random_state=0).fit(X[:6], devices=[0, 0, 0, 2, 2, 2])
    assert_array_equal(model.predict(X[:3], devices=[1, 0, 1])[[0, 2]], [-1, -1])
    assert np.isfinite(model.cluster_centers_).all()


@pytest.mark.parametrize("algorithm", ["gtvmin:coupling=strong", "consensus", "fkm:weighted=true"])
@pytest.mark.sample(3)
def test_it_is_simulate_bit_by_bit(algorithm):
    model = P2PKMeans(4, algorithm=algorithm, max_iter=20, random_state=7)
    model.fit(X, devices=OWNER)
    methods = {
        "gtvmin:coupling=strong": p2pkm.GTVMin(4, coupling="strong"),
        "consensus": p2pkm.ConsensusLloyd(4, tol=1e-3),
    }
    method = methods.get(algorithm, p2pkm.FKM(4, weighted=True))
    shards, graph = p2pkm.Shards.deal(X, OWNER, devices=6), None if "fkm" in algorithm else topologies.ring(6)
    result = p2pkm.simulate(method, graph, shards, rounds=20, seed=7, baselines=False)
    assert_array_equal(model.device_centers_, result.centroids)
    assert_array_equal(model.cluster_centers_, result.centroids[result.best])
    assert_array_equal(model.labels_, result.predict(X))
    assert model.n_iter_ == result.summary["rounds"]
    assert model.history_ == result.rounds
    assert_array_equal(model.ledger_.bytes, result.ledger.bytes)
    assert nx.utils.graphs_equal(model.graph_, result.to_networkx())


def test_without_devices_the_rows_are_dealt_evenly():
    owner = p2pkm.partition.iid(len(X), 16, seed=5)
    one, other = P2PKMeans(4, random_state=5).fit(X), P2PKMeans(4, random_state=5).fit(X, devices=owner)
    assert_array_equal(one.device_centers_, other.device_centers_)
    assert [one.graph_.nodes[i]["points"] for i in range(16)] == list(np.bincount(owner))


GRAPHS = {
    "spec": ("random-regular:degree=3", 16),
    "fixed size": ("karate", 34),
    "networkx": (nx.relabel_nodes(nx.path_graph(5), dict(enumerate("abcde"))), 5),
    "light": (topologies.build("torus", 12, light=True), 12),
    "topology": (p2pkm.Topology.from_graph(topologies.star(7)), 7),
    "changing": (topologies.one_peer_exponential(8), 8),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # where links change it moves on
@pytest.mark.parametrize(("graph", "devices"), thin(GRAPHS.values(), 2), ids=GRAPHS.keys())
@pytest.mark.sample(3)
def test_graphs_of_every_kind(graph, devices):
    model = fitted(graph=graph)
    assert len(model.device_centers_) == model.graph_.number_of_nodes() == devices
    copied = pickle.loads(pickle.dumps(clone(model))).fit(X)
    assert_array_equal(copied.device_centers_, model.device_centers_)


@pytest.mark.slow
def test_the_number_of_devices():
    assert len(fitted().device_centers_) == 16
    assert len(P2PKMeans(4).fit(X[:9]).device_centers_) == 9
    assert len(fitted(n_devices=200).device_centers_) == 200  # most without points
    assert len(fitted(graph="star", n_devices=1).device_centers_) == 1
    assert fitted(algorithm="kfed", n_devices=5).graph_.number_of_nodes() == 6  # the server besides


@pytest.mark.slow
def test_random_states():
    # Some methods find the same centroids from most seeds.
    fit = partial(fitted, algorithm="tracking")
    first = fit(random_state=3).device_centers_
    assert_array_equal(first, fit(random_state=np.int64(3)).device_centers_)
    assert np.any(first != fit(random_state=4).device_centers_)
    for make in (np.random.RandomState, np.random.default_rng):
        state = make(3)
        again = fit(random_state=make(3)).device_centers_
        assert_array_equal(fit(random_state=state).device_centers_, again)
        assert np.any(fit(random_state=state).device_centers_ != again)  # it has moved on
    assert np.any(fit(random_state=None).device_centers_ != fit(random_state=None).device_centers_)


@pytest.mark.slow
def test_rows_of_weight_zero_are_absent_and_weights_count():
    weights = np.where(np.arange(len(X)) % 3 == 0, 0.0, 1.0)
    one, other = clone(fitted()).fit(X, sample_weight=weights), clone(fitted()).fit(X[weights > 0])
    assert_array_equal(one.device_centers_, other.device_centers_)
    assert_array_equal(one.labels_[weights > 0], other.labels_)
    assert len(one.labels_) == len(X)
    assert_allclose(one.inertia_, other.inertia_)
    assert_allclose(one.score(X, sample_weight=2 * weights), 2 * other.score(X[weights > 0]))
    heavy = P2PKMeans(1, n_devices=1).fit([[0.0], [1.0]], sample_weight=[3, 1])
    assert_allclose(heavy.cluster_centers_, [[0.25]])
    assert_allclose(heavy.inertia_, 3 * 0.25**2 + 0.75**2)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([-1.0] + [1.0] * 119, "sample_weight is -1.0 at row 0"),
        ([np.nan] * 120, "sample_weight is nan"),
        ([1.0] * 3, r"expected \(120,\)"),
        ([0.0] * 120, "every sample_weight is zero"),
        ([1.0] * 3 + [0.0] * 117, "n_samples=3 of weight above 0 should be >= n_clusters=4"),
    ],
)
def test_weights_that_cannot_be_used(weights, message):
    with pytest.raises(ValueError, match=message):
        P2PKMeans(4).fit(X, sample_weight=weights)


APART = nx.Graph([(0, 1), (2, 3)])


@each(
    ("options", "message"),
    [
        ({"n_clusters": 121}, "n_samples=120 should be >= n_clusters=121"),
        ({"n_clusters": 0}, "n_clusters is 0"),
        ({"n_clusters": "many"}, "n_clusters is 'many'; expected a whole number of at least 1, or 'auto'"),
        ({"n_devices": 0}, "n_devices is 0"),
        ({"max_iter": 0}, "max_iter is 0"),
        ({"tol": -1e-3}, "tol is -0.001"),
        ({"coupling": -1}, "coupling is -1"),
        ({"init": "globl"}, "Did you mean 'global'"),
        ({"random_state": -1}, "random_state is -1"),
        ({"graph": "rink"}, "Did you mean 'ring'"),
        ({"graph": 5}, "expected a networkx.Graph"),
        ({"graph": APART}, "graph has 2 connected components"),
        ({"graph": nx.path_graph(5), "n_devices": 6}, "n_devices is 6; expected 5, the number of nodes"),
        ({"graph": "grid", "n_devices": 7}, "prime"),
        ({"algorithm": "gtvmim"}, "Did you mean 'gtvmin'"),
        ({"algorithm": "K-Means++"}, "is 'gtvmin', the default; 'central' collects all points on a server"),
        ({"algorithm": 4}, "expected a name, or a method"),
        (
            {"algorithm": "fkm", "graph": "path"},
            "cannot be combined with graph 'path': it uses a server, and its star graph is built automatically",
        ),
        ({"algorithm": "fkm", "graph": nx.path_graph(3)}, "its star graph is built automatically"),
        ({"algorithm": "fkm", "coupling": 2.0}, "method 'fkm' has no key coupling"),
        ({"algorithm": "gtvmin:tol=1e-4", "tol": 0.1}, "tol is set both"),
        ({"algorithm": p2pkm.GTVMin(3)}, "n_clusters is 4; expected 3, the number of clusters of algorithm"),
        ({"algorithm": p2pkm.GTVMin(4), "init": "local"}, "Remove init"),
    ],
)
def test_user_mistakes_are_value_errors_that_say_so(options, message):
    with pytest.raises(ValueError, match=message):
        P2PKMeans(**{"n_clusters": 4} | options).fit(X)


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([0, 1], "whole numbers from 0"),
        (["a"] * 120, "devices"),
        ([0.5] * 120, "whole numbers from 0 or names"),
        ([0.5] * 60 + [None] * 60, r"devices are missing at row 60 \(counted from 0\), in 60 of 120 rows"),
        ([-1] * 120, "devices are numbers below 0, such as -1, at 120 of 120 rows .*; expected numbers from 0, or"),
        ([9] * 120, "devices has 1 different values; expected 6, as n_devices"),
    ],
)
@pytest.mark.sample(3)
def test_devices_that_cannot_be_used(devices, message):
    with pytest.raises(ValueError, match=message):
        P2PKMeans(4, n_devices=6).fit(X, devices=devices)
    with pytest.raises(ValueError, match="devices"):
        P2PKMeans(4, n_devices=6, random_state=0).fit(X).predict(X, devices=devices)


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_a_spec_goes_before_the_defaults_of_the_other_parameters():
    shards = p2pkm.Shards.deal(X, OWNER, devices=6)
    method = p2pkm.GTVMin(4, init="local", tol=1e-2)
    result = p2pkm.simulate(method, topologies.ring(6), shards, rounds=150, seed=0, baselines=False)
    for algorithm in ("gtvmin:init=local,tol=0.01", method):
        model = P2PKMeans(4, algorithm=algorithm, random_state=0).fit(X, devices=OWNER)
        assert_array_equal(model.device_centers_, result.centroids)


def test_convergence_is_missed_only_where_a_method_looks_for_it():
    with pytest.warns(ConvergenceWarning, match="gtvmin did not converge within max_iter=1 rounds"):
        fitted(algorithm="gtvmin", init="local", max_iter=1)
    assert fitted(algorithm="fkm:defaults=paper", max_iter=3).n_iter_ == 3  # runs its rounds
    assert fitted(algorithm="kfed").n_iter_ == 1


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.sample(2)
def test_data_frames_bring_their_names(library):
    frames = pytest.importorskip(library)
    table, other = (frames.DataFrame({"north": X[:, 0], name: X[:, 1]}) for name in ("east", "west"))
    model = P2PKMeans(4, random_state=0).fit(table)
    assert list(model.feature_names_in_) == ["north", "east"]
    assert_array_equal(model.labels_, fitted().labels_)
    assert_array_equal(model.predict(table), model.labels_)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(other)
    assert list(model.get_feature_names_out()) == [f"p2pkmeans{j}" for j in range(4)]


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_set_output(container):
    pytest.importorskip(container)
    distances = P2PKMeans(4, random_state=0).set_output(transform=container).fit_transform(X)
    assert list(distances.columns) == ["p2pkmeans0", "p2pkmeans1", "p2pkmeans2", "p2pkmeans3"]
    assert_allclose(np.asarray(distances), fitted().transform(X))


@pytest.mark.slow
def test_grid_search_finds_the_better_number_of_clusters():
    search = GridSearchCV(P2PKMeans(n_devices=4, random_state=0), {"n_clusters": [1, 2, 4]}, cv=3).fit(X)
    assert search.best_params_ == {"n_clusters": 4}
    search = GridSearchCV(P2PKMeans(n_devices=6, random_state=0), {"graph": ["ring", "complete"]}, cv=3)
    assert search.fit(X, devices=OWNER).best_score_ < 0


def test_in_a_pipeline():
    far = X * [1.0, 1000.0] + [5.0, 0.0]
    pipeline = make_pipeline(StandardScaler(), P2PKMeans(4, random_state=0))
    labels = pipeline.fit_predict(far, p2pkmeans__devices=OWNER)
    scaled = StandardScaler().fit_transform(far)
    assert_array_equal(labels, P2PKMeans(4, random_state=0).fit(scaled, devices=OWNER).labels_)
    assert pipeline.transform(far).shape == (120, 4)


def test_pickle_round_trip():
    model = fitted()
    copied = pickle.loads(pickle.dumps(model))
    assert copied.get_params() == model.get_params()
    assert_array_equal(copied.device_centers_, model.device_centers_)
    assert_array_equal(copied.predict(X), model.labels_)
    assert copied.history_ == model.history_


@pytest.mark.parametrize("graph", thin(["ring", "star", "small-world", "complete"], 2))
def test_as_good_as_central_k_means_on_blobs(graph):
    central = KMeans(4, n_init=10, random_state=0).fit(X)
    model = fitted(graph=graph)
    assert adjusted_rand_score(model.labels_, central.labels_) == 1.0
    assert model.inertia_ <= 1.02 * central.inertia_


PROGRAM = """
import hashlib, json
import numpy as np
import p2pkm
from p2pkm.network.world import connect
X, y = p2pkm.blobs(clusters=4, points=30, sd=0.5, seed=3)
for state, algorithm in ((7, "gtvmin"), (7, "fkm"), (None, "gtvmin")):
    model = p2pkm.P2PKMeans(4, algorithm=algorithm, max_iter=20, random_state=state).fit(X)
    parts = model.device_centers_, model.labels_, model.ledger_.bytes
    digest = hashlib.sha256(b"".join(part.tobytes() for part in parts)).digest()
    every = connect().gather(np.frombuffer(digest, np.uint8))
    if connect().rank == 0:
        print(json.dumps([bytes(one).hex() for one in every]))
"""


@pytest.mark.mpi
def test_under_mpirun_every_rank_gets_the_result_of_one_process():
    command = [MPIRUN, "-n", "3", sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    given, served, fresh = (json.loads(line) for line in done.stdout.splitlines())
    for algorithm, found in (("gtvmin", given), ("fkm", served)):
        model = P2PKMeans(4, algorithm=algorithm, max_iter=20, random_state=7).fit(X)
        parts = model.device_centers_, model.labels_, model.ledger_.bytes
        assert found == [hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()] * 3
    assert fresh == [fresh[0]] * 3 != given


@pytest.mark.slow
def test_a_first_fit_on_few_rows_needs_no_compiler():
    program = (
        "import sys, p2pkm\n"
        "print('sklearn' in sys.modules, end=' ')\n"
        "X, y = p2pkm.blobs(clusters=3, points=30, seed=0)\n"
        "model = p2pkm.P2PKMeans(3, random_state=0).fit(X)\n"
        "model.predict(X, devices=y), model.transform(X), model.score(X)\n"
        "print(any(name in sys.modules for name in ('numba', 'matplotlib', 'mpi4py')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.slow
def test_groups_of_devices():
    made = p2pkm.communities(seed=1)
    for algorithm in ("gtvmin", "treelloyd"):
        model = P2PKMeans(4, algorithm=algorithm, groups="auto", random_state=0).fit(made.points, devices=made.device)
        assert_array_equal(model.groups_, made.truth)
    assert P2PKMeans(4, algorithm="treelloyd", random_state=0).fit(made.points, devices=made.device).groups_ is None


SITES = np.array(["Turku", "Aachen", "Bern", "Oulu", "Delft", "Cork"])


def test_names_of_devices_are_numbers_in_sorted_order():
    by_name = P2PKMeans(4, random_state=0).fit(X, devices=np.sort(SITES)[OWNER])
    by_number = P2PKMeans(4, random_state=0).fit(X, devices=OWNER)
    assert by_name.device_names_.tolist() == sorted(SITES)
    assert by_number.device_names_.tolist() == list(range(6))
    assert_array_equal(by_name.device_centers_, by_number.device_centers_)
    own = by_number.predict(X, devices=OWNER)
    assert_array_equal(by_name.predict(X, devices=np.sort(SITES)[OWNER].astype(object)), own)
    assert_array_equal(by_name.predict(X, devices=OWNER), own)
    assert by_name.graph_.nodes[0]["name"] == "Aachen"
    with pytest.raises(ValueError, match="'Paris'"):
        by_name.predict(X, devices=["Paris"] * 120)


def test_names_of_devices_find_their_nodes():
    graph = nx.path_graph(SITES.tolist())
    model = P2PKMeans(4, graph=graph, random_state=0).fit(X, devices=SITES[OWNER])
    names = model.device_names_
    assert {frozenset((names[i], names[j])) for i, j in model.graph_.edges} == set(map(frozenset, graph.edges))
    with pytest.raises(ValueError, match="Nodes without points: 'Turku'; devices without a node: 'Paris'"):
        P2PKMeans(4, graph=graph).fit(X, devices=np.where(SITES == "Turku", "Paris", SITES)[OWNER])
    served = P2PKMeans(4, algorithm="kfed", random_state=0).fit(X, devices=SITES[OWNER])
    assert served.device_names_.tolist() == sorted(SITES)


CODES = np.array([101, 205, 309, 1002, 7, 33])
KINDS_OF_CODES = [
    CODES, CODES.astype(np.uint16), CODES.astype(float), CODES.astype(str), CODES.astype(object), np.arange(6) + 1,
    10 * np.arange(6), np.array([f"{code:05}" for code in CODES]),
    np.array([b"K\xc3\xb6ln", *map(str, CODES[1:])], object),
]  # fmt: skip


@pytest.mark.parametrize("codes", thin(KINDS_OF_CODES, 3), ids=str)
@pytest.mark.sample(3)
def test_site_codes_of_any_kind_are_names(codes):
    model = P2PKMeans(4, random_state=0).fit(X, devices=codes[OWNER])
    names = model.device_names_.tolist()
    assert len(names) == len(model.device_centers_) == 6
    text = [one.decode() if isinstance(one, bytes) else str(one).removesuffix(".0") for one in codes]
    assert sorted(map(str, names)) == sorted(text)
    order = np.argsort([names.index(type(names[0])(one)) for one in text])
    by_number = P2PKMeans(4, random_state=0).fit(X, devices=np.argsort(order)[OWNER])
    assert_array_equal(model.device_centers_, by_number.device_centers_)
    own = by_number.predict(X, devices=np.argsort(order)[OWNER])
    assert_array_equal(model.predict(X, devices=codes[OWNER]), own)
    for i, one in enumerate(text):
        rows = i == OWNER
        assert_array_equal(model.result_.predict(X[rows], device=one), own[rows])
    with pytest.raises(ValueError, match="expected names in device_names_"):
        model.predict(X, devices=["77"] * 120)


def test_integer_names_of_devices_are_integers_and_found_by_them():
    model = P2PKMeans(4, random_state=0).fit(X, devices=CODES[OWNER])
    assert model.device_names_.tolist() == sorted(CODES)
    assert_array_equal(model.result_.predict(X, device=205), model.result_.predict(X, device="205"))
    with pytest.raises(ValueError, match="device is 3; expected 0 to 5, or one of '7', '33', '101'"):
        model.result_.predict(X, device=3)
    graph = nx.cycle_graph(CODES.tolist())
    found = P2PKMeans(4, graph=graph, random_state=0).fit(X, devices=np.array([7, 205])[OWNER % 2])
    assert found.device_names_.tolist() == sorted(CODES) and len(found.device_centers_) == 6
    with pytest.raises(ValueError, match="devices contains 8, which is not a node of the graph"):
        P2PKMeans(4, graph=graph).fit(X, devices=np.array([7, 8])[OWNER % 2])
    with pytest.raises(ValueError, match="devices has 6 different names; expected 5, the number of nodes"):
        P2PKMeans(4, graph=nx.path_graph(5)).fit(X, devices=CODES[OWNER])


@pytest.mark.parametrize("groups", [OWNER, CODES[OWNER], SITES[OWNER]], ids=["numbers", "codes", "names"])
@pytest.mark.sample(3)
def test_folds_that_leave_devices_out(groups):
    from sklearn.model_selection import GroupKFold

    for train, test in GroupKFold(3).split(X, groups=groups):
        model = P2PKMeans(3, random_state=0).fit(X[train], devices=groups[train])
        assert len(model.device_centers_) == 4 and np.isfinite(model.score(X[test]))
        assert set(model.device_names_.tolist()) == set(groups[train].tolist())
        model.predict(X[train], devices=groups[train])


def test_numbers_of_devices_without_rows_need_their_count():
    assert len(P2PKMeans(4, n_devices=51).fit(X, devices=10 * OWNER).device_centers_) == 51
    assert len(P2PKMeans(4, graph=topologies.ring(8)).fit(X, devices=OWNER + 1).device_centers_) == 8
    with pytest.raises(ValueError, match="devices has 6 different values; expected 7, as n_devices"):
        P2PKMeans(4, n_devices=7).fit(X, devices=SITES[OWNER])


def test_devices_whose_rows_do_not_count_remain_devices():
    model = P2PKMeans(4, random_state=0).fit(X, devices=OWNER, sample_weight=OWNER != 5)
    assert len(model.device_centers_) == 6


@pytest.mark.parametrize("method", thin(["fit", "fit_predict", "fit_transform"], 3))
@pytest.mark.parametrize("y", [OWNER, SITES[OWNER], SITES[OWNER].astype(object)])
@pytest.mark.sample(3)
def test_devices_in_the_place_of_y_are_noticed(method, y):
    with pytest.warns(UserWarning, match="6 values are the devices of the rows, pass them as devices="):
        getattr(P2PKMeans(4), method)(X, y)


@pytest.mark.parametrize("y", [None, OWNER % 4, np.arange(120), np.zeros(120, int), X[:, 0], np.ones((120, 2))])
@pytest.mark.sample(3)
def test_other_y_is_ignored_in_silence(y):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        P2PKMeans(4).fit(X, y)


def test_partial_fit_goes_on_from_every_devices_centroids_and_adds_up_bytes():
    model = P2PKMeans(4, algorithm="treelloyd", random_state=0).partial_fit(X, devices=OWNER)
    first = P2PKMeans(4, algorithm="treelloyd", random_state=0).fit(X, devices=OWNER)
    assert_array_equal(model.device_centers_, first.device_centers_)
    assert model.wire_bytes_ == first.wire_bytes_ > 0
    before = model.device_centers_
    model.partial_fit(X + 0.3, devices=OWNER)
    shards = p2pkm.Shards.deal(X + 0.3, OWNER, devices=6)
    again = p2pkm.simulate(p2pkm.TreeLloyd(4), topologies.ring(6), shards, start=before, baselines=False)
    assert_array_equal(model.device_centers_, again.centroids)
    assert model.wire_bytes_ == first.wire_bytes_ + again.summary["wire_bytes"] < 2 * first.wire_bytes_
    assert_array_equal(model.labels_, first.labels_)
    assert_array_equal(model.labels_, nearest(X + 0.3, model.cluster_centers_)[0])
    means = np.array([X[model.labels_ == c].mean(axis=0) + 0.3 for c in range(4)])
    # docs/explain/proofs.md: within s (1 + g n / n_c) / 2; each device has points in two clusters at least
    step = 0.3 * np.std(X + 0.3 - means[model.labels_]) * np.sqrt(4 / 120)
    grain = 120 / np.sqrt(4 * 12)
    off = step * (1 + grain * 6 / np.bincount(model.labels_)) / 2
    assert (np.abs(model.cluster_centers_ - means) <= off[:, None]).all()
    assert off.max() < 0.1
    assert model.fit(X, devices=OWNER).wire_bytes_ == first.wire_bytes_


def test_partial_fit_knows_the_devices_by_their_names_and_refuses_others():
    names = np.array(["d", "a", "c", "b", "e", "f"])[OWNER]
    model = P2PKMeans(4, random_state=0).fit(X, devices=names)
    model.partial_fit(X[names != "b"], devices=names[names != "b"])
    assert model.device_names_.tolist() == list("abcdef") and len(model.device_centers_) == 6
    with pytest.raises(ValueError, match=r"'z'; expected names in device_names_: .*name all devices"):
        model.partial_fit(X, devices=np.where(names == "b", "z", names))
    with pytest.raises(ValueError, match="n_samples=3 should be >= n_clusters=4"):
        model.partial_fit(X[:3], devices=names[:3])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :1], devices=names)


def test_partial_fit_of_methods_that_start_by_themselves_and_of_open_k():
    served = P2PKMeans(4, algorithm="fkm", random_state=0).partial_fit(X)
    with pytest.raises(ValueError, match="start cannot be combined with"):
        served.partial_fit(X)
    model = P2PKMeans("auto", random_state=0, k_max=6).fit(X, devices=OWNER)
    found = model.n_clusters_
    assert model.partial_fit(X, devices=OWNER).n_clusters_ == found == len(model.cluster_centers_)


@pytest.mark.parametrize("k_max", [7, 30])
def test_an_open_number_of_clusters_is_at_most_the_number_of_points(k_max):
    rows = np.repeat(np.arange(9.0), 2).reshape(9, 2) ** 2
    model = P2PKMeans("auto", random_state=0, k_max=k_max).fit(rows, devices=np.arange(9) % 3)
    assert len(model.result_.summary["k_indices"]["cost"]) == min(k_max, 9)


def test_transform_and_score_by_device_go_by_its_own_centroids():
    model = P2PKMeans(4, coupling=0.5, init="local", random_state=0).fit(X, devices=OWNER)
    own = model.device_centers_[OWNER]
    apart = np.sqrt(((X[:, None] - own) ** 2).sum(axis=2))
    assert np.isinf(own).any() or len(np.unique(model.device_centers_[:, 0, 0])) > 1  # the devices differ
    assert_allclose(model.transform(X, devices=OWNER), apart)
    assert_array_equal(np.isinf(model.transform(X, devices=OWNER)), np.isinf(own[:, :, 0]))
    assert_allclose(model.score(X, devices=OWNER), -(apart.min(axis=1) ** 2).sum())
    weights = np.arange(120.0)
    assert_allclose(model.score(X, devices=OWNER, sample_weight=weights), -(weights * apart.min(axis=1) ** 2).sum())
    assert_array_equal(model.predict(X, devices=OWNER), apart.argmin(axis=1))
    assert model.score(X) == -model.inertia_


def test_the_run_is_kept_and_reports_itself(monkeypatch):
    model = fitted()
    assert model.result_.summary["wire_bytes"] == model.wire_bytes_
    assert_array_equal(model.result_.centroids, model.device_centers_)
    monkeypatch.setattr(p2pkm.Result, "report", lambda result: ("page of", result), raising=False)
    assert model.report() == ("page of", model.result_)
    with pytest.raises(NotFittedError):
        P2PKMeans().report()


def test_partial_fit_follows_a_stream_of_batches():
    model, drift = P2PKMeans(4, algorithm="treelloyd", random_state=0), np.array([0.2, -0.1])
    paid = []
    for step in range(4):
        model.partial_fit(X + step * drift, devices=OWNER)
        paid.append(model.wire_bytes_)
    central = KMeans(4, n_init=10, random_state=0).fit(X + 3 * drift)
    assert model.inertia_ <= 1.02 * central.inertia_
    assert np.diff([0, *paid]).min() > 0


def test_a_scaler_that_learns_by_messages():
    far, weights = X * [1.0, 1000.0] + [5.0, 3e5], np.arange(120.0) % 3
    for mass in (None, weights):
        scaler = p2pkm.P2PStandardScaler(random_state=0).fit(far, devices=SITES[OWNER], sample_weight=mass)
        central = StandardScaler().fit(far, sample_weight=mass)
        assert_allclose(scaler.mean_, central.mean_)
        assert_allclose(scaler.scale_, central.scale_)
    assert_allclose(scaler.transform(far), central.transform(far))
    assert_allclose(scaler.inverse_transform(scaler.transform(far)), far)
    assert scaler.device_names_.tolist() == sorted(SITES)
    # up the five links of a tree go weight, means and squared deviations, down go means and deviations
    assert (scaler.messages_, scaler.bytes_) == (2 * 5, 8 * 5 * (1 + 2 * 2) + 8 * 5 * (2 * 2))


def test_a_pipeline_that_scales_by_messages_is_a_run_that_does():
    far = X * [1.0, 1000.0] + [5.0, 3e5]
    given = {"graph": "ring", "n_devices": 6, "random_state": 3}
    pipeline = make_pipeline(p2pkm.P2PStandardScaler(**given), P2PKMeans(4, algorithm="treelloyd", **given))
    pipeline.fit(far, p2pkmeans__devices=OWNER, p2pstandardscaler__devices=OWNER)
    shards = p2pkm.Shards.deal(far, OWNER, devices=6)
    options = {"rounds": 150, "seed": 3, "baselines": False, "scale": "standard"}
    whole = p2pkm.simulate(p2pkm.TreeLloyd(4), topologies.ring(6), shards, **options)
    assert_array_equal(pipeline[-1].device_centers_, whole.centroids)
    paid = pipeline[0].bytes_ + pipeline[-1].result_.summary["bytes"]
    assert paid == whole.summary["bytes"]
    assert_allclose(pipeline[0].inverse_transform(pipeline[-1].cluster_centers_), whole.clusters.centroids[whole.best],
                    rtol=1e-6)  # fmt: skip
