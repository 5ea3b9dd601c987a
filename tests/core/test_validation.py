"""Options and points at the door."""

from types import SimpleNamespace

import numpy as np
import pytest

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.validation import as_points, check_finite, check_integer, check_magnitude, check_positive, name_features


def test_whole_numbers_are_within_both_bounds():
    assert (check_integer(2, 2, "it", 5), check_integer(np.int8(5), 2, "it", 5), check_integer(9, 2, "it")) == (2, 5, 9)
    for wrong in (1, 6, True, 3.0, "3", None):
        with pytest.raises(ExperimentError, match=f"it is {wrong!r}; expected a whole number from 2 to 5"):
            check_integer(wrong, 2, "it", 5)


def test_whole_numbers_beyond_all_floats_are_refused():
    with pytest.raises(ExperimentError, match=r"it is 10+; expected a finite number above 0$"):
        check_positive(10**400, "it")
    with pytest.raises(DataError, match=r"dtype object and 10+ at row 1, column 0 .*; expected real numbers"):
        as_points([[1, 2], [10**400, 3]])


def test_an_empty_array_of_any_shape_may_pass_as_no_points():
    for nothing in ([], np.zeros((0, 7)), np.zeros((3, 0))):
        found = as_points(nothing, empty=True, dtype="float32")
        assert (found.shape, found.dtype) == ((0, 0), np.float32)


@pytest.mark.parametrize("given", [[[1, 2.5], [True, -3]], [[np.float32(1), 2.5], [1, np.int64(-3)]]])
def test_numbers_of_several_kinds_are_points(given):
    assert as_points(np.array(given, object)).tolist() == [[1.0, 2.5], [1.0, -3.0]]


def test_masked_entries_are_no_numbers():
    check_integer = np.ma.masked_array([[1.0, 2.0], [3.0, 1e20]], np.zeros((2, 2)))
    assert as_points(check_integer).tolist() == check_integer.data.tolist()
    check_integer[1, 1] = np.ma.masked
    with pytest.raises(DataError, match=r"X has masked entries, expected .*pass X.filled\(...\), or drop"):
        as_points(check_integer)


def test_a_single_feature_is_told_how_to_become_a_column():
    for points, words in ((np.zeros(4), r"\(4,\), expected \(points, features\); for a .* reshape\(-1, 1\)$"),
                          (np.zeros((2, 2, 2)), r"\(2, 2, 2\), expected .* reshape\(number of images")):  # fmt: skip
        with pytest.raises(DataError, match=words):
            as_points(points)


@pytest.mark.parametrize(
    ("columns", "names"), [(["age", "bmi"], ("age", "bmi")), (range(2), None), (["age", 3], None), ([], None)]
)
def test_features_are_called_by_columns_that_have_names(columns, names):
    assert name_features(SimpleNamespace(columns=columns)) == names
    assert name_features(np.zeros((3, 2))) is None


def test_the_first_text_that_is_no_number_is_named():
    with pytest.raises(DataError, match="has dtype <U3; expected real numbers"):
        as_points(np.array([["1", "2.5"]]), "points")
    for kind in (str, object):
        with pytest.raises(DataError, match="'x' at row 0, column 1"):
            as_points(np.array([["1", "x"], ["y", "2"]], kind), "points")


def test_known_values_of_points_with_gaps_are_bounded():
    nan = np.nan
    for points in ([[nan, nan]], [[nan, 1.0], [2.0, nan]]):
        assert check_magnitude(np.array(points), "they", missing=True) is not None
        with pytest.raises(DataError, match="NaN"):
            check_magnitude(np.array(points), "they")
    for value in (1e200, -1e200):
        with pytest.raises(DataError, match="squares overflow"):
            check_magnitude(np.array([[nan, value]]), "they", missing=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_number_that_is_not_finite_is_named(bad):
    array = np.zeros((5, 3))
    array[[1, 3, 4], [2, 0, 1]] = bad
    for rows, row in ((slice(0, 5), 1), (np.array([7, 9, 11, 13, 15]), 9)):
        with pytest.raises(DataError, match=f"they is {bad} at row {row}, column 2 "):
            check_finite(array, "they", rows)


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (0, 0)])
def test_arrays_without_points_or_features_are_refused(shape):
    with pytest.raises(DataError, match="at least one point and one feature"):
        as_points(np.zeros(shape), "points")


def test_a_number_above_the_limit_is_told_the_limit():
    with pytest.raises(ExperimentError, match=r"^a is 3.0; expected a finite number above 0 and at most 2$"):
        check_positive(3.0, "a", most=2.0)


def test_whole_numbers_have_63_bits():
    assert check_integer(2**63 - 1, 1, "a") == 2**63 - 1
    with pytest.raises(ExperimentError, match=r"below 2\^63"):
        check_integer(2**63, 1, "a")
