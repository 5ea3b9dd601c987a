"""Initial centroids, several runs, sparse matrices, tables, missing values, routing and warnings of the estimator."""

import datetime
import json
import subprocess
import sys
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import p2pkm
import topologies
from p2pkm import P2PKMeans
from p2pkm.experiments import warn_once
from tests.support.each import each
from tests.support.run_cli import MPIRUN
from tests.support.sampling import thin

X, Y = p2pkm.blobs(clusters=4, points=30, sd=0.5, seed=3)
OWNER = np.arange(120) % 6
SHARDS = p2pkm.Shards.deal(X, OWNER, devices=6)


def fit(rows=X, **options):
    return P2PKMeans(4, **{"random_state": 0} | options).fit(rows, devices=OWNER)


def run(shards=SHARDS, *, seed=0, missing="refuse", **options):
    method = p2pkm.TreeLloyd(4, tol=1e-3, **options)
    return p2pkm.simulate(method, topologies.ring(6), shards, rounds=150, seed=seed, missing=missing, baselines=False)


# ------------------------------------------------------------------------------------------------------ init and n_init


@pytest.mark.parametrize(
    ("init", "spec"),
    thin(
        [
            ("k-means++", "d2-sampling"),
            (np.str_("k-means++"), "d2-sampling"),
            ("random", "d2-sampling:greedy=false,draw=uniform"),
            (p2pkm.Init.leader(), "leader"),
        ],
        2,
    ),
)
def test_names_of_kmeans_are_initializations_whose_messages_are_counted(init, spec):
    model, result = fit(init=init, n_init=1), run(init=spec)
    assert_array_equal(model.device_centers_, result.centroids)
    assert model.wire_bytes_ == result.summary["wire_bytes"]


def test_a_callable_gets_rows_number_and_generator_and_returns_the_start():
    calls, seeds = [], []

    def init(points, k, random_state):
        calls.append((points, k))
        seeds.append(random_state.get_state()[1][0])
        return kmeans_plusplus(points, k, random_state=random_state)[0]

    model = fit(init=init, n_init=1)
    start = kmeans_plusplus(X, 4, random_state=np.random.RandomState(0))[0]
    assert_array_equal(model.device_centers_, fit(init=start).device_centers_)
    assert_array_equal(calls[0][0], X)
    assert calls[0][1] == 4 and len(calls) == 1
    P2PKMeans(4, init=init, n_devices=1, random_state=0).fit(X)
    assert len(calls) == 1 + 10
    assert len(set(seeds[1:])) == 10


@pytest.mark.slow
def test_the_best_of_several_runs_is_kept_and_all_their_bytes_count():
    options = {"init": "random", "max_iter": 2, "coupling": 10.0}
    with pytest.warns(ConvergenceWarning):
        runs = [fit(n_init=n, **options) for n in (1, 3, 5)]
    inertias = [model.inertia_ for model in runs]
    assert inertias[0] > inertias[1] >= inertias[2]
    assert runs[0].wire_bytes_ < runs[1].wire_bytes_ < runs[2].wire_bytes_
    for model in runs:
        assert model.inertia_ == -model.score(X)
        assert_array_equal(model.labels_, model.predict(X))
        assert_array_equal(model.cluster_centers_, model.result_.centroids[model.result_.best])
    seeds = [model.result_.summary["seed"] for model in runs]
    assert seeds[0] == 0 and len(set(seeds)) > 1


def test_an_array_has_one_run():
    with pytest.warns(RuntimeWarning, match="performing only one init in P2PKMeans instead of n_init=3") as caught:
        model = fit(init=X[[0, 30, 60, 90]], n_init=3)
    assert caught[0].filename == __file__
    assert_array_equal(model.device_centers_, fit(init=X[[0, 30, 60, 90]]).device_centers_)


@each(
    ("options", "message"),
    [
        ({"init": X[:3]}, r"initial centers \(3, 2\) does not match the number of clusters 4; expected \(4, 2\)"),
        ({"init": lambda points, k, random_state: points[:k, :1]}, r"\(4, 1\) does not match the number of features"),
        ({"init": lambda points, k, random_state: "a"}, "the array that init returns"),
        ({"init": lambda points, k, random_state: np.full((4, 2), np.nan)}, "init returns contains NaN"),
        ({"init": lambda points, k, random_state: X[:4], "missing": "mean"}, "cannot be combined with a callable init"),
        ({"n_init": 0}, "n_init is 0"),
        ({"n_init": "many"}, "n_init"),
        ({"missing": "drop"}, "missing is 'drop'"),
        ({"algorithm": "fkm", "init": "k-means++"}, "but method 'fkm' has no key init"),
    ],
)
def test_initial_centroids_that_cannot_be_used(options, message):
    with pytest.raises(ValueError, match=message):
        P2PKMeans(4, **options).fit(X)


# ------------------------------------------------------------------------------------------------------------- warnings


def test_fewer_distinct_clusters_than_requested_are_reported():
    rows = np.array([[0.0, 0], [0, 1], [1, 0], [1, 0]])
    message = r"Number of distinct clusters \(3\) found smaller than n_clusters \(4\)"
    with pytest.warns(ConvergenceWarning, match=message) as caught:
        model = P2PKMeans(4, random_state=0).fit(rows)
    assert set(model.labels_) == {0, 1, 2} and caught[0].filename == __file__
    with pytest.warns(ConvergenceWarning, match=message):
        KMeans(4, random_state=0).fit(rows)


@pytest.mark.parametrize("call", ["fit", "fit_predict", "fit_transform"])
def test_warnings_name_the_line_of_the_caller(call):
    with pytest.warns(ConvergenceWarning, match="did not converge") as caught:
        getattr(P2PKMeans(4, algorithm="gtvmin", random_state=0, init="local", max_iter=1), call)(X)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.slow
@pytest.mark.parametrize("y", thin([OWNER, None], 2))
def test_a_search_does_not_warn_in_each_fold(monkeypatch, y):
    monkeypatch.setattr(warn_once, "_shown", set())
    model = P2PKMeans(n_devices=4, random_state=0)
    kinds = 1 if y is None else 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GridSearchCV(model, {"n_clusters": [2, 3], "max_iter": [1]}, cv=3).fit(X, y)
        assert len(caught) == 2 * kinds  # one fold, and the last fit
        cross_val_score(model.set_params(max_iter=1), X, y, cv=2)
        assert len(caught) == 2 * kinds
        for _ in range(2):
            model.fit(X)
        assert len(caught) == 2 * kinds + 2


# --------------------------------------------------------------------------------------------------------------- sparse


@pytest.mark.parametrize(
    ("form", "dtype"),
    thin(
        product(
            [scipy.sparse.csr_array, scipy.sparse.csc_matrix, scipy.sparse.coo_array], ["float64", "float32", "int64"]
        ),
        4,
    ),
)
@pytest.mark.sample(3)
def test_sparse_rows_are_those_of_the_dense_array(form, dtype):
    rows = np.where(X > 0, X, 0.0).astype(dtype)
    dense, sparse = fit(rows), fit(form(rows))
    assert_array_equal(dense.device_centers_, sparse.device_centers_)
    assert dense.device_centers_.dtype == sparse.device_centers_.dtype
    for method in ("predict", "transform", "score"):
        assert_array_equal(getattr(dense, method)(rows), getattr(sparse, method)(form(rows)))
    assert_array_equal(sparse.partial_fit(form(rows)).labels_, dense.partial_fit(rows).labels_)


@pytest.mark.parametrize("values", [30, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 1000))])
def test_large_sparse_rows_are_read_in_blocks(monkeypatch, values):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(60, 7)) * (rng.random((60, 7)) < 0.3)
    devices, weights = np.arange(60) % 4, rng.random(60) + 0.5
    model = P2PKMeans(3, n_devices=4, random_state=0).fit(rows, devices=devices)
    expected = [(model.predict(rows, d), model.transform(rows, d), model.score(rows, devices=d, sample_weight=weights))
                for d in (None, devices)]  # fmt: skip
    monkeypatch.setattr("p2pkm.experiments.estimators.rows._DENSE_VALUES", values)
    # The dense form of all rows does not fit, but each block does.
    monkeypatch.setattr("p2pkm.experiments.estimators.rows.available_memory", lambda: 16 * max(values, 7) + 1)
    sparse = scipy.sparse.csc_array(rows)
    for d, (labels, distances, score) in zip((None, devices), expected, strict=True):
        assert_array_equal(model.predict(sparse, d), labels)
        assert_array_equal(model.transform(sparse, d), distances)
        assert_allclose(model.score(sparse, devices=d, sample_weight=weights), score, rtol=1e-13)
    if values < 1000:
        with pytest.raises(ValueError, match=r"devices has shape \(59,\)"):
            model.predict(sparse, devices[1:])
        rows[50, 2] = np.nan
        with pytest.raises(ValueError, match=r"in the rows of X from row .* on, of which it is 0: X contains NaN"):
            model.predict(scipy.sparse.csr_array(rows))
        with pytest.raises(ValueError, match="a run would take"):
            P2PKMeans(3).fit(sparse)


def test_sparse_rows_that_do_not_fit_into_memory_are_refused_with_their_size(monkeypatch):
    rows = scipy.sparse.random_array((20_000, 50_000), density=1e-6, format="csr", rng=0)
    monkeypatch.setenv("P2PKM_MEMORY", "4G")
    with pytest.raises(ValueError, match=r"a run would take 16 GB, but 4 GB are free\. Reduce the features"):
        P2PKMeans(4).fit(rows)


# --------------------------------------------------------------------------------------------------------------- tables

DAY = datetime.datetime(1970, 1, 1)
TIMES = [DAY + datetime.timedelta(days=float(value)) for value in np.arange(120) / 4]
ENCODED = np.column_stack([
    X,
    np.arange(120) % 3,
    np.arange(120) % 2,
    OWNER % 2 == 1,
    np.arange(120) / 4,
])
NAMES = ["age", "bmi", "count", "smoker", "ward=b", "date"]


def make_table(library):
    """Build the same table in each library: numbers, integers, truth values, categories and times."""
    frame = pd.DataFrame({
        "age": X[:, 0],
        "bmi": X[:, 1].astype(object),
        "count": pd.array(np.arange(120) % 3, "Int64"),
        "smoker": pd.array(np.arange(120) % 2 == 1, "boolean"),
        "ward": pd.Categorical(np.array(["a", "b"])[OWNER % 2]),
        "date": TIMES,
    })
    if library == "pandas":
        return frame
    table = pytest.importorskip("pyarrow").Table.from_pandas(frame)
    return table if library == "pyarrow" else pytest.importorskip("polars").from_arrow(table)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.sample(3)
def test_columns_of_tables_are_features(library):
    table, dense = make_table(library), fit(ENCODED)
    model = fit(table)
    assert_array_equal(model.device_centers_, dense.device_centers_)
    assert list(model.feature_names_in_) == ["age", "bmi", "count", "smoker", "ward", "date"]
    assert model.n_features_in_ == 6 and model.center_names_.tolist() == NAMES
    assert model.result_.features == tuple(NAMES)
    for method in ("predict", "transform", "score"):
        assert_array_equal(getattr(model, method)(table), getattr(dense, method)(ENCODED))
    assert_array_equal(
        model.partial_fit(table, devices=OWNER).labels_, dense.partial_fit(ENCODED, devices=OWNER).labels_
    )
    with pytest.raises(ValueError, match="expected a table with the columns of fit, because 'ward', 'date' are not"):
        model.predict(ENCODED[:, :6])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(make_table("pandas")[["bmi", "age", "count", "smoker", "ward", "date"]])
    assert not hasattr(model.fit(X), "center_names_")


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.sample(3)
def test_missing_fields_of_tables_are_filled_in(library):
    frame = make_table("pandas")
    frame["bmi"] = frame["bmi"].astype(float)
    frame.loc[3] = None
    frame = frame.astype({"ward": "category"})
    table = frame
    if library != "pandas":
        table = pytest.importorskip("pyarrow").Table.from_pandas(frame)
        table = table if library == "pyarrow" else pytest.importorskip("polars").from_arrow(table)
    rows = ENCODED.copy()
    rows[3] = np.nan
    with pytest.raises(ValueError, match="X contains NaN in 1 of 120 rows, first at row 3, column 0"):
        fit(table)
    model = fit(table, missing="mean")
    assert_array_equal(model.device_centers_, fit(rows, missing="mean").device_centers_)
    assert_allclose(model.fill_values_, np.nanmean(rows, axis=0))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["x"] * 120, "column 'age' has dtype object, such as 'x'; expected a number, a category or a time"),
        ([1j] * 120, "column 'age' has dtype complex128"),
        ([datetime.time(3)] * 120, "column 'age' has dtype object"),
        ([[1, 2]] * 120, "column 'age' has dtype object"),
        ([None] * 60 + ["x"] * 60, "column 'age' has dtype object, such as 'x'"),
    ],
)
def test_columns_that_cannot_be_features(column, message):
    with pytest.raises(ValueError, match=message):
        fit(make_table("pandas").assign(age=column))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ward": "c"}, "column 'ward' has the category 'c', which was not in fit; expected 'a', 'b'"),
        ({"age": TIMES}, "column 'age' has dtype datetime64.*; expected a number, as in fit"),
        ({"date": 3.0}, "column 'date' has dtype float64; expected a time, as in fit"),
    ],
)
@pytest.mark.sample(3)
def test_tables_that_are_unlike_that_of_fit(changes, message):
    table = make_table("pandas")
    model = fit(table)
    with pytest.raises(ValueError, match=message):
        model.predict(table.assign(**changes))
    assert_array_equal(model.predict(table.astype({"ward": str})), model.labels_)  # categories are found by their text


@pytest.mark.filterwarnings("ignore:X has feature names")
def test_a_table_after_an_array_has_columns_of_numbers():
    model, table = fit(), make_table("pandas")
    assert_array_equal(model.predict(table[["age", "bmi"]]), model.labels_)
    with pytest.raises(ValueError, match=r"column 'ward' has dtype category.*; expected a number, as in fit"):
        model.predict(table[["age", "ward"]])


def test_declared_categories_may_be_without_rows():
    table = make_table("pandas")
    table["ward"] = table["ward"].cat.set_categories(["b", "a", "icu"])
    model = fit(table)
    assert model.center_names_.tolist() == ["age", "bmi", "count", "smoker", "ward=b", "ward=a", "ward=icu", "date"]
    model.predict(table.assign(ward=pd.Categorical(["icu"] * 120)))


# ------------------------------------------------------------------------------------------------------- missing values


@pytest.mark.parametrize("statistic", thin(["mean", "median"], 2))
@pytest.mark.parametrize("weights", [None, np.arange(1.0, 121.0)])
def test_missing_values_are_those_that_the_devices_find(statistic, weights):
    rows = X.copy()
    rows[::7, 0], rows[5, 1] = np.nan, np.nan
    model = P2PKMeans(4, random_state=0, missing=statistic).fit(rows, devices=OWNER, sample_weight=weights)
    shards = p2pkm.Shards.deal(rows, OWNER, devices=6, missing=True, weights=weights)
    result = run(shards, missing=statistic)
    assert_array_equal(model.device_centers_, result.centroids)
    mass = np.ones(120) if weights is None else weights
    known = ~np.isnan(rows)
    if statistic == "mean":
        expected = [np.average(rows[known[:, j], j], weights=mass[known[:, j]]) for j in range(2)]
    else:
        expected = [np.median(np.repeat(rows[known[:, j], j], mass[known[:, j]].astype(int))) for j in range(2)]
    assert_allclose(model.fill_values_, expected, rtol=1e-12)
    filled = np.where(known, rows, model.fill_values_)
    assert_array_equal(model.labels_, model.predict(filled))
    assert_array_equal(model.predict(rows), model.labels_)
    assert_array_equal(model.transform(rows), model.transform(filled))
    assert_allclose(model.score(rows, sample_weight=weights), -model.inertia_)


def test_missing_values_are_refused_unless_a_statistic_is_set():
    rows = X.copy()
    rows[5, 1] = np.nan
    with pytest.raises(ValueError, match=r"X contains NaN in 1 of 120 rows, first at row 5, column 1 .*missing='mean'"):
        fit(rows)
    with pytest.raises(ValueError, match="X contains NaN"):
        fit().predict(rows)
    with pytest.raises(ValueError, match="infinity"):
        fit(np.where(np.isnan(rows), np.inf, rows), missing="mean")
    model = fit(rows, missing="mean")
    assert sklearn.utils.get_tags(model).input_tags.allow_nan
    assert not hasattr(model.set_params(missing="refuse").fit(X), "fill_values_")


PROGRAM = """
import json
import numpy as np
import pandas as pd
import p2pkm
from p2pkm.network.world import connect

def draw(points, k, random_state):
    return points[random_state.choice(len(points), k, replace=False)]

X, _ = p2pkm.blobs(clusters=4, points=30, sd=0.5, seed=3)
table = pd.DataFrame({"age": X[:, 0], "ward": pd.Categorical(["a", "b", None] * 40)})
runs = [(X, {"init": "random", "n_init": 2}), (X, {"init": draw, "n_init": 2}), (table, {"missing": "median"})]
for rows, options in runs:
    model = p2pkm.P2PKMeans(4, coupling=10.0, verbose=1, random_state=7, **options).fit(rows)
    values = np.append(model.device_centers_.ravel(), model.labels_)
    every = connect().gather(np.frombuffer(values.tobytes(), np.uint8))
    if connect().rank == 0:
        print(json.dumps([bytes(part).hex() for part in every]))
"""


@pytest.mark.mpi
def test_all_ranks_get_the_result_of_one_process():
    single, several = (
        subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
        for command in ([sys.executable, "-c", PROGRAM], [MPIRUN, "-n", "3", sys.executable, "-c", PROGRAM])
    )
    assert len(single) == len(several)  # only rank 0 prints the rounds
    parts = [[json.loads(line) for line in lines if line.startswith("[")] for lines in (single, several)]
    assert parts[1] == [3 * part for part in parts[0]] and len(parts[0]) == 3


# -------------------------------------------------------------------------------------------------- routing and verbose


@pytest.mark.slow
def test_devices_are_routed_through_a_search_and_a_pipeline():
    with sklearn.config_context(enable_metadata_routing=True):
        model = P2PKMeans(4, random_state=0)
        search = GridSearchCV(model, {"n_clusters": [2, 4]}, cv=3).fit(X, devices=OWNER)
        assert len(search.best_estimator_.device_centers_) == 6
        pipeline = make_pipeline(StandardScaler(), model)
        labels = pipeline.fit_predict(X, devices=OWNER)
        scaled = StandardScaler().fit_transform(X)
        assert_array_equal(labels, fit(scaled).labels_)
        assert_array_equal(pipeline.predict(X, devices=OWNER), fit(scaled).predict(scaled, devices=OWNER))
        assert pipeline.fit_transform(X, devices=OWNER).shape == (120, 4)
        with pytest.raises(ValueError, match="devices"):
            make_pipeline(StandardScaler(), P2PKMeans(4).set_fit_request(devices=None)).fit(X, devices=OWNER)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "requests"),
    thin(
        product(
            [OWNER, np.array(list("abcdef"))[OWNER]],
            [{}, {"fit": True}, {"fit": True, "score": True}, {"score": False}],
        ),
        5,
    ),
)
def test_a_search_in_a_pipeline_scores_every_device(requests, names):
    """The scores are those of a search by hand, whatever requests are set besides."""
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, OWNER))
    with sklearn.config_context(enable_metadata_routing=True):
        model = P2PKMeans(4, random_state=0)
        for method, is_requested in requests.items():
            getattr(model, f"set_{method}_request")(devices=is_requested)
        search = GridSearchCV(
            make_pipeline(StandardScaler(), model), {"p2pkmeans__coupling": [0.5, 50.0]}, cv=folds, error_score="raise"
        ).fit(X, devices=names)
    by_hand = []
    for coupling in (0.5, 50.0):
        scores = []
        for train, test in folds:
            scaler = StandardScaler().fit(X[train])
            fitted = P2PKMeans(4, coupling=coupling, random_state=0).fit(
                scaler.transform(X[train]), devices=names[train]
            )
            owner = names[test] if requests.get("score", True) else None
            scores.append(fitted.score(scaler.transform(X[test]), devices=owner))
        by_hand.append(np.mean(scores))
    assert_array_equal(search.cv_results_["mean_test_score"], by_hand)
    assert search.best_params_["p2pkmeans__coupling"] == (0.5, 50.0)[int(np.argmax(by_hand))]


def test_fit_transform_takes_devices_and_weights():
    weights = np.arange(1.0, 121.0)
    distances = P2PKMeans(4, random_state=0).fit_transform(X, devices=OWNER, sample_weight=weights)
    assert_array_equal(
        distances, P2PKMeans(4, random_state=0).fit(X, devices=OWNER, sample_weight=weights).transform(X)
    )


@pytest.mark.parametrize(
    ("options", "cost", "end"),
    [
        ({"algorithm": "gtvmin"}, "inertia and penalty ", "Converged at iteration {}: center shift"),
        ({"algorithm": "treelloyd"}, "inertia ", "Converged at iteration {}: center shift"),
        ({"algorithm": "fkm:defaults=paper", "max_iter": 3}, "", "Ended at {}: round-limit."),
    ],
)
@pytest.mark.sample(3)
def test_rounds_are_printed_in_the_form_of_kmeans(capsys, options, cost, end):
    model = P2PKMeans(4, verbose=1, random_state=0, **options).fit(X)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Initialization complete"
    assert lines[1].startswith(f"Iteration 0, {cost}")
    # gtvmin has an acceptance test
    assert f"{model.wire_bytes_:,} encoded bytes sent." in lines[-2] or options["algorithm"] == "gtvmin"
    assert lines[-1].startswith(end.format(model.n_iter_))


@pytest.mark.parametrize("rows", [[["a"], ["b"]], np.array([["1.5"], ["a"]]), np.array([[1.5], ["a"]], object)])
def test_text_is_refused_with_a_remedy(rows):
    with pytest.raises(ValueError, match=r"^X has text, 'a'; expected numbers\. .*p2pkm\.read_table"):
        P2PKMeans(1).fit(rows)
    with pytest.raises(ValueError, match=r"^X has text, 'a'"):
        fit().predict(rows)
