"""The linear probe: what it says of features, and what it refuses."""

import numpy as np
import pytest

import p2pkm
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.deep.linear_probe import hold_out
from tests.support.each import each


def test_a_fifth_of_every_class_is_held_out():
    labels = np.repeat([0, 1, 2], [50, 2, 8])
    tested = hold_out(labels, 3)
    np.testing.assert_array_equal(np.bincount(labels[tested]), [10, 1, 2])
    np.testing.assert_array_equal(tested, hold_out(labels, 3))
    assert (tested != hold_out(labels, 4)).any()


def test_separate_classes_are_told_apart_and_noise_is_not():
    labels = np.tile(["a", "b", "c"], 200)
    noise = np.random.default_rng(0).standard_normal((600, 4))
    apart = noise + 10 * np.eye(3, 4)[np.tile([0, 1, 2], 200)]
    assert p2pkm.linear_probe(apart, labels) == (1.0, 1.0)
    blind = p2pkm.linear_probe(noise, labels, seed=1)
    assert blind.accuracy < 0.5 and blind.accuracy_few < 0.5


def test_units_shift_and_constant_features_do_not_matter_and_tested_images_are_not_learned():
    rng = np.random.default_rng(1)
    labels = np.arange(200) % 2
    values = rng.standard_normal((200, 3)) + labels[:, None]
    found = p2pkm.linear_probe(values, labels)
    # by powers of two, which round nothing away
    assert p2pkm.linear_probe(np.column_stack((values * 1024, np.full(200, 7.0))), labels) == found
    assert p2pkm.linear_probe(values + 2.0**20, labels) == found
    tested = hold_out(labels)
    swapped = np.where(tested, 1 - labels, labels)  # only what is tested changes: the classifier stays
    assert p2pkm.linear_probe(values, swapped, held_out=tested).accuracy == pytest.approx(1 - found.accuracy)


def test_an_image_that_is_held_out_does_not_scale_the_others():
    labels, tested = np.arange(200) % 2, hold_out(np.arange(200) % 2)
    values = np.random.default_rng(2).standard_normal((200, 3)) + 20.0 * labels[:, None]
    far = values.copy()
    far[np.flatnonzero(tested & (labels == 1))[0]] = 1e12
    assert p2pkm.linear_probe(far, labels, held_out=tested) == (1.0, 1.0)


@each(
    ("labels", "options", "words"),
    [
        (None, {}, "labels is None"),
        (np.zeros(10), {}, "all images are of one class"),
        (np.arange(10) == 0, {}, "a class has 1 image"),
        (np.arange(9), {}, "labels have shape"),
        (np.arange(10) % 2, {"held_out": np.arange(10) % 2 == 0}, "every class requires an image for training"),
        (np.arange(10) % 3, {"held_out": np.arange(10) % 3 == 1}, "every class requires an image for training"),
        (np.arange(10) % 2, {"held_out": np.zeros(10, bool)}, "some image must be held out"),
        (np.arange(10) % 2, {"held_out": np.ones(9, bool)}, "held_out has shape"),
    ],
)
def test_what_cannot_be_probed(labels, options, words):
    with pytest.raises(DataError, match=words):
        p2pkm.linear_probe(np.arange(20.0).reshape(10, 2), labels, **options)
    with pytest.raises(ExperimentError, match="per_class is 0"):
        p2pkm.linear_probe(np.eye(4), [0, 0, 1, 1], per_class=0)
