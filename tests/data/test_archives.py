"""Which array of an .npz archive is the points."""

import numpy as np
import pytest

import p2pkm

IMAGES = np.arange(96, dtype=np.uint8).reshape(6, 4, 4)
CLASSES = np.arange(6) % 3
COLUMN = CLASSES[:, None]
ONE_HOT = np.eye(3)[CLASSES]
TABLE = np.arange(12.0).reshape(6, 2)
SPLITS = {"x_train": IMAGES, "y_train": CLASSES, "x_test": IMAGES[:2], "y_test": CLASSES[:2]}


@pytest.mark.parametrize(
    ("arrays", "shape", "labels"),
    [
        ({"train_images": IMAGES, "train_labels": COLUMN}, (6, 16), True),
        ({"images": IMAGES, "targets": ONE_HOT}, (6, 16), True),
        ({"images": IMAGES, "target": ONE_HOT.astype(bool)}, (6, 16), True),
        ({"images": IMAGES, "masks": IMAGES > 5}, (6, 16), False),
        ({"images": IMAGES, "labels": IMAGES > 5}, (6, 16), False),
        ({"images": IMAGES, "labels": np.ones((6, 3))}, (6, 16), False),
        ({"data": TABLE, "onehot": ONE_HOT}, (6, 2), False),
        ({"features": TABLE, "y": CLASSES}, (6, 2), True),
        ({"trainImages": IMAGES, "trainLabels": COLUMN}, (6, 16), True),
        ({"emb": TABLE, "centers": np.ones((3, 2)), "y": CLASSES}, (6, 2), True),
        ({"arr_0": TABLE}, (6, 2), False),
        ({"arr_0": IMAGES}, (6, 16), False),
        ({"X": TABLE, "X_test": TABLE, "y": CLASSES}, (6, 2), True),
    ],
)
def test_points_and_labels_are_found(tmp_path, arrays, shape, labels):
    np.savez(tmp_path / "t.npz", **arrays)
    table = p2pkm.read_table(tmp_path / "t.npz")
    assert table.points.shape == shape
    assert (table.labels is not None) == labels
    if labels:
        assert table.labels.tolist() == CLASSES.tolist()
    unread = [name for name in arrays if name in ("masks", "onehot", "centers", "X_test")]
    assert all(f"not read: '{name}'" in table.notes[0] for name in unread)


@pytest.mark.parametrize(
    "arrays",
    [
        SPLITS,
        {"a": IMAGES, "b": COLUMN},
        {"a": IMAGES, "b": ONE_HOT},
        {"a": TABLE, "b": TABLE},
        {"x": TABLE, "images": IMAGES},
        {"values": COLUMN, "cls": CLASSES},
        {"labels": ONE_HOT},
        {"y": COLUMN, "labels": COLUMN},
    ],
)
def test_archives_that_are_ambiguous_name_their_arrays_and_the_remedy(tmp_path, arrays):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(p2pkm.DataError, match=r"contains the arrays .*Name the array after the path, as in .*t\.npz:"):
        p2pkm.read_table(tmp_path / "t.npz")


@pytest.mark.parametrize(("name", "rows"), [("x_train", 6), ("x_test", 2)])
def test_an_array_is_named_after_the_path(tmp_path, name, rows):
    np.savez(tmp_path / "t.npz", **SPLITS)
    table = p2pkm.read_table(f"{tmp_path}/t.npz:{name}")
    assert table.points.shape == (rows, 16) and table.image == (4, 4)
    assert table.labels.tolist() == CLASSES[:rows].tolist()
    assert table.notes[0].startswith(f"the points are the array '{name}'; not read: ")
    with pytest.raises(p2pkm.DataError, match="has no array 'z', but 'x_train'"):
        p2pkm.read_table(f"{tmp_path}/t.npz:z")


def test_named_labels_may_be_a_column_or_one_hot(tmp_path):
    np.savez(tmp_path / "t.npz", X=TABLE, kind=COLUMN, hot=ONE_HOT)
    for name in ("kind", "hot"):
        assert p2pkm.read_table(tmp_path / "t.npz", label_column=name).labels.tolist() == CLASSES.tolist()
