"""Ranges of features that are public."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.data.scale import FeatureRanges
from p2pkm.engine.run_options import RunOptions
from tests.support.each import each

pd = pytest.importorskip("pandas")
RANGES = {"age": (0, 100), "bmi": (10.5, 50)}
SHIFT, SPAN = np.array([50.0, 30.25]), np.array([50.0, 19.75])


def draw():
    """Draw ages and body mass indices of 90 patients at 5 sites."""
    rng = np.random.default_rng(3)
    means = np.array([[30.0, 22.0], [60.0, 29.0], [75.0, 24.0]])
    return means[rng.integers(3, size=90)] + rng.normal(size=(90, 2)) * [4.0, 1.5], np.arange(90) % 5


@pytest.mark.parametrize(
    ("method", "graph", "options"),
    [
        ("gtvmin", "complete", {"test_share": 0.2}),
        ("fedlloyd", None, {"dtype": "float32"}),
        ("gtvmin:coupling=strong", "ring", {"rounds": 5}),
        ("private:epsilon=50,radius=1.42,noise_seed=1", "complete", {}),
    ],
)
@pytest.mark.sample(4)
def test_a_run_is_that_of_points_that_were_scaled_before(method, graph, options):
    X, device = draw()
    dtype = options.pop("dtype", "float64")
    table = pd.DataFrame(X.astype(dtype), columns=["age", "bmi"])
    scaled = p2pkm.simulate(method, graph, p2pkm.Shards.deal(table, device, dtype=dtype), scale=RANGES, clusters=3,
                            silhouette=True, **options)  # fmt: skip
    # The same operations as in the run: rounding of float32 points must not differ.
    by_hand = ((X.astype(dtype) - SHIFT) / SPAN).astype(dtype)
    before = p2pkm.simulate(method, graph, p2pkm.Shards.deal(by_hand, device, dtype=dtype), clusters=3,
                            silhouette=True, **options)  # fmt: skip
    assert scaled.summary["chain_sha256"] == before.summary["chain_sha256"]
    names = ["messages", "bytes", "ratio_mean", "silhouette", "test_cost"]
    assert [scaled.summary[name] for name in names] == [before.summary[name] for name in names]
    assert_array_equal(scaled.centroids, before.centroids)
    assert_array_equal(scaled.labels, before.labels)
    np.testing.assert_allclose(scaled.clusters.centroids, before.clusters.centroids * SPAN + SHIFT, rtol=1e-12)
    assert_array_equal(scaled.predict(table.to_numpy(), device=2), before.predict(by_hand, device=2))


@each(("value", "text"), [
    (RANGES, "ranges:age=0..100,bmi=10.5..50"), ({"": (-20, 20)}, "ranges:-20..20"),
    ({"": (0, 1), "sex=f": (-0.1, 1e-3)}, "ranges:0..1,sex=f=-0.1..0.001"),
    ({"x": np.array([1.0 / 3.0, 2e300])}, "ranges:x=0.3333333333333333..2e+300"),
])  # fmt: skip
def test_a_mapping_and_its_text_are_the_same_ranges(value, text):
    ranges = FeatureRanges.of(value)
    assert str(ranges) == text and FeatureRanges.of(text) == ranges == FeatureRanges.of(ranges)
    stored = RunOptions(scale=value).to_mapping()["scale"]
    assert stored == text and RunOptions.from_mapping({"scale": stored}, "config.toml").scale == ranges


@each(("value", "names", "shift", "span"), [
    (RANGES, ("bmi", "age"), [30.25, 50.0], [19.75, 50.0]), ("ranges:-3..5", (), [1.0, 1.0], [4.0, 4.0]),
    ("ranges:0..1,b=2..8", ("a", "b"), [0.5, 5.0], [0.5, 3.0]),
])  # fmt: skip
def test_each_feature_has_the_middle_and_half_of_its_range(value, names, shift, span):
    found = FeatureRanges.of(value).find_units(names, 2)
    assert [part.tolist() for part in found] == [shift, span]


@each(("value", "names", "text"), [
    ("ranges:age=0..100", ("age", "bmi"), "no range for bmi"), ("ranges:0..1,bmj=0..1", ("age", "bmi"), "'bmi'"),
    (RANGES, (), "unnamed. Use ranges:LOW..HIGH"),
])  # fmt: skip
def test_ranges_that_do_not_fit_the_features_are_refused(value, names, text):
    with pytest.raises(DataError) as error:
        FeatureRanges.of(value).find_units(names, 2)
    assert text in str(error.value)


@each(("value", "text"), [
    ("ranges:age=0", "'age=0'; expected ranges:NAME=LOW..HIGH"), ("ranges:", "''; expected"),
    ("ranges:age=a..b", "'age=a..b'"), ("ranges:age=5..5", "is 5..5; expected a lower end below"),
    ("ranges:age=0..nan", "expected a finite number"), ("ranges:x=0..1,x=0..2", "the range of x twice"),
    ({"age": 5}, "the range 5 for 'age'"), ({"age": (1, 2, 3)}, "(1, 2, 3)"), ({"age": ("0", "9")}, "the end '0'"),
    ({"a,b": (0, 1)}, "expected a name without comma"), (7, "scale is 7; expected none, standard, minmax or ranges"),
    ("range:0..1", "Did you mean 'ranges'"),
])  # fmt: skip
def test_what_is_no_range_is_refused(value, text):
    with pytest.raises(ExperimentError) as error:
        RunOptions(scale=value)
    assert text in str(error.value)
