"""The estimator with a clustering for each device: labels, inertia, score and distances of each row's device."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import p2pkm
from p2pkm import P2PKMeans

DATA = p2pkm.device_clusters(graph="ring", devices=8, points=30, seed=2)
X, OWNER = DATA.points, DATA.device
NAMES = np.array(list("abcdefgh"))[OWNER]


def build(**options):
    return P2PKMeans(4, **{"coupling": 0.5, "personalized": True, "random_state": 0} | options)


def measure(points, owner, centers, penalties=None):
    """Naive twin: squared distance of each row to each centroid of its device, and the label."""
    squared = np.array([((x - centers[i]) ** 2).sum(axis=1) for x, i in zip(points, owner, strict=True)])
    return squared, (squared if penalties is None else squared + penalties[owner]).argmin(axis=1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "algorithm", ["gtvmin", p2pkm.GTVMin(4, coupling="bayes", shares=True)], ids=["plain", "shares"]
)
@pytest.mark.sample(3)
def test_everything_is_of_the_device_of_each_row(algorithm, dtype):
    coupling = 0.5 if algorithm == "gtvmin" else None
    points, weights = X.astype(dtype), np.linspace(0.5, 2.0, len(X))
    model = build(algorithm=algorithm, coupling=coupling).fit(points, devices=NAMES, sample_weight=weights)
    numbers, penalties = model.result_.cluster_numbers, model.result_.label_penalties
    ordered = np.empty_like(model.result_.centroids)
    for i, number in enumerate(numbers):
        ordered[i, number] = model.result_.centroids[i]
    assert_array_equal(model.device_centers_, ordered.astype(dtype))
    if penalties is not None:
        penalties = np.array([
            [row[list(number).index(c)] for c in range(4)] for row, number in zip(penalties, numbers, strict=True)
        ])
    squared, labels = measure(points.astype(float), OWNER, model.device_centers_.astype(float), penalties)
    inertia = (weights * squared[np.arange(len(X)), labels]).sum()
    assert_array_equal(model.labels_, labels)
    assert_array_equal(model.predict(points, devices=NAMES), labels)
    assert_array_equal(clone(model).fit_predict(points, devices=NAMES, sample_weight=weights), labels)
    assert_allclose(model.inertia_, inertia, rtol=1e-6)
    assert_allclose(model.score(points, devices=NAMES, sample_weight=weights), -inertia, rtol=1e-6)
    assert_allclose(model.transform(points, devices=NAMES), np.sqrt(squared), rtol=1e-3, atol=1e-5)
    distances = clone(model).fit_transform(points, devices=NAMES, sample_weight=weights)
    assert_array_equal(distances, model.transform(points, devices=NAMES))
    assert_array_equal(model.labels_, model.result_.labels)


def test_rows_that_started_in_different_orders_get_common_numbers():
    model = build(init="local", coupling=1.0).fit(X, devices=NAMES)
    numbers = model.result_.cluster_numbers
    assert len({tuple(number) for number in numbers.tolist()}) > 1
    for i, number in enumerate(numbers):
        assert_array_equal(model.device_centers_[i, number], model.result_.centroids[i])
    assert_array_equal(model.labels_, model.result_.labels)
    assert_array_equal(model.predict(X, devices=NAMES), model.labels_)
    again = clone(model).fit(X, devices=NAMES).partial_fit(X, devices=NAMES)
    assert_array_equal(again.labels_, again.predict(X, devices=NAMES))


@pytest.mark.parametrize(("options", "method"), [
    ({"personalized": False}, "treelloyd"), ({}, "gtvmin"), ({"personalized": False, "coupling": 1.0}, "gtvmin"),
    ({"personalized": False, "groups": 2}, "gtvmin"), ({"algorithm": "consensus"}, "consensus"),
    ({"personalized": False, "init": "random"}, "treelloyd"),
])  # fmt: skip
@pytest.mark.sample(3)
def test_the_question_decides_the_method(options, method):
    model = build(**{"coupling": None} | options).fit(X, devices=NAMES)
    assert model.result_.summary["algorithm"].partition(":")[0] == method
    assert clone(model).algorithm == options.get("algorithm")


def test_the_coupling_is_chosen_from_the_points_unless_it_is_given():
    found = [build(coupling=coupling).fit(X, devices=NAMES).result_.summary for coupling in (None, "auto", 0.5)]
    assert [summary["coupling_choice"] for summary in found] == ["auto", "auto", "given"]
    assert found[0]["centroids_sha256"] == found[1]["centroids_sha256"]


def test_a_clustering_for_each_device_fits_better_than_one_for_all():
    own, common = build().fit(X, devices=NAMES), build(personalized=False).fit(X, devices=NAMES)
    assert own.inertia_ < common.inertia_
    assert_array_equal(own.cluster_centers_, common.cluster_centers_)
    # Labels of all devices together are clusters only because cluster c is the same on all devices.
    assert adjusted_rand_score(DATA.labels, own.labels_) > adjusted_rand_score(DATA.labels, common.labels_)


@pytest.mark.slow
def test_the_best_of_several_runs_is_best_for_the_devices():
    model = build(n_init=4, init="random", max_iter=2)
    with pytest.warns(sklearn.exceptions.ConvergenceWarning):
        model.fit(X, devices=NAMES)
    singles = []
    for seed in range(4):
        with pytest.warns(sklearn.exceptions.ConvergenceWarning):
            one = build(init="random", n_init=1, max_iter=2, random_state=seed).fit(X, devices=NAMES)
        singles.append(one.inertia_)
    assert_allclose(model.inertia_, -model.score(X, devices=NAMES))
    assert model.inertia_ <= singles[0] * (1 + 1e-12)


def test_partial_fit_continues_with_the_centroids_of_the_devices():
    model = build().fit(X, devices=NAMES)
    before = model.device_centers_.copy()
    model.partial_fit(X, devices=NAMES)
    assert_allclose(model.device_centers_, before, atol=0.05)
    assert_array_equal(model.labels_, model.predict(X, devices=NAMES))


def test_test_rows_have_labels_but_no_weight():
    model = build(test_share=0.25).fit(X, devices=NAMES)
    assert model.result_.summary["test_points"] > 0
    assert_array_equal(model.labels_, model.predict(X, devices=NAMES))
    assert model.inertia_ < -model.score(X, devices=NAMES)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_are_read(library):
    frame = pytest.importorskip(library).DataFrame({"a": X[:, 0], "b": X[:, 1]})
    model = build().fit(frame, devices=NAMES)
    assert_array_equal(model.labels_, build().fit(X, devices=NAMES).labels_)
    assert_array_equal(model.predict(frame, devices=NAMES), model.labels_)
    found = model.result_.adapt(X[OWNER == 3], neighbors=["c", "e"])
    assert_allclose(found, model.device_centers_[3], atol=0.05)


def test_devices_are_routed_through_pipelines_and_searches():
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, OWNER))
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(StandardScaler(), build()).fit(X, devices=NAMES)
        scaled = (X - X.mean(axis=0)) / X.std(axis=0)
        assert_array_equal(model.predict(X, devices=NAMES), model[-1].predict(scaled, devices=NAMES))
        search = GridSearchCV(build(), {"coupling": [0.5, 100.0]}, cv=folds, error_score="raise")
        search.fit(X, devices=NAMES)
    assert search.best_params_ == {"coupling": 0.5}


def test_rows_without_a_device_are_refused():
    model = build()
    words = "personalized=True requires the device of each row, but devices is None"
    for call in (model.fit, model.fit_predict, model.fit_transform, model.partial_fit):
        with pytest.raises(ValueError, match=words):
            call(X)
    model.fit(X, devices=NAMES)
    for call in (model.predict, model.transform, model.score, model.partial_fit):
        with pytest.raises(ValueError, match=words):
            call(X)
    with pytest.raises(ValueError, match=r"'z'; expected names in device_names_.* use result_\.adapt\(X, neighbors="):
        model.predict(X[:1], devices=["z"])
    numbered = build().fit(X, devices=OWNER)
    with pytest.raises(ValueError, match=r"9; expected names in device_names_.* use result_\.adapt\(X, neighbors="):
        numbered.score(X[:1], devices=[9])
    with pytest.raises(ValueError, match=r"0 to 7, as in fit\. .* use result_\.adapt\(X, neighbors="):
        model.transform(X[:1], devices=[8])
    with pytest.raises(ValueError, match="personalized is 'yes'; expected True or False"):
        build(personalized="yes").fit(X, devices=NAMES)
