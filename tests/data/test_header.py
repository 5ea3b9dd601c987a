"""The first row of a text file: names of columns or a point."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, load_wine

import p2pkm
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.data.readers.header import are_names, find_header
from tests.support.run_cli import here

RNG = np.random.default_rng(5)
NOISE = RNG.normal(size=(40, 12))
COUNTS = RNG.integers(100, 900, size=(40, 12))
RISING = np.sort(RNG.random((40, 12)), axis=1)  # such as spectra, in which each row ascends, too
GDP = RNG.uniform(1900, 2100, size=(40, 6)).round(1)


def write(path, top, rows, mark=","):
    path.write_text("\n".join([mark.join(map(str, top)), *(mark.join(map(str, row)) for row in rows)]) + "\n")
    return path


NAMES = {
    "wavelengths": ([900, 905, 910], [[0.11, 0.12, 0.13], [0.21, 0.22, 0.23], [0.31, 0.32, 0.33]]),
    "descending": ([910, 905, 900], NOISE[:, :3]),
    "two": ([900, 905], NOISE[:, :2]),
    "wavelengths, spectra ascend": (range(400, 1000, 50), RISING),
    "fractions": ([350.5 + 0.8 * j**1.1 for j in range(12)], NOISE),
    "few fractions": ([350.5, 351.25, 352.5], NOISE[:, :3]),
    "years above counts": ([2019, 2020, 2021], COUNTS[:, :3]),
    "years above like values": (range(2010, 2016), GDP),
    "not every year": ([1990, 1995, 2000, 2005, 2010], NOISE[:, :5]),
    "numbers of columns": (range(12), NOISE),
    "numbers of columns above counts": (range(12), COUNTS),
    "numbers of columns above like counts": (range(4), RNG.integers(0, 100, (40, 4))),
    "numbers of three columns": (range(3), NOISE[:, :3]),
    "from one": (range(1, 13), COUNTS),
    "below text": (["0", "1", "2"], [[5.1, 3.5, "setosa"], [4.9, 3.0, "virginica"]]),
    "missing values": ([900, 905, 910], [[0.1, "NA", 0.3], ["", 0.25, 0.35], [0.3, 0.35, 0.45]]),
    "with a class": (
        [900, 905, 910, "kind"],
        [[0.11, 0.32, 0.23, "a"], [0.21, 0.42, 0.13, "b"], [0.1, 0.2, 0.15, "a"]],
    ),
}
POINTS = {
    "normal": (NOISE[0], NOISE[1:]),
    "counts": (COUNTS[0], COUNTS[1:]),
    "ascending": (RISING[0], RISING[1:]),
    "small whole numbers": ([1, 2, 3], [[5, 1, 4], [2, 2, 9], [7, 3, 1], [4, 4, 4]]),
    "steps everywhere": ([1, 2, 3], [[4, 5, 6], [7, 8, 9], [10, 11, 12]]),
    "whole among fractions": ([0, 1], [[0.01, 0.995], [0.02, 0.98], [0.03, 0.955]]),
    "origin": ([0, 0, 0], NOISE[:, :3]),
    "an outlier": ([900, 12, 910], NOISE[:, :3]),
    "a point that recurs": ([0, 1, 2], [[0, 1, 2], [3, 4, 5], [1, 0, 2], [0, 1, 2]]),
    "one column": ([2019], NOISE[:, :1]),
    "one row": ([900, 905, 910], []),
    "two rows": ([900, 905, 910], [[0.1, 0.2, 0.3]]),
    "far clusters": ([1, 2], [[40, 50], [41, 51], [2, 3]]),
}


@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_are_names(tmp_path, name):
    top, rows = NAMES[name]
    path = write(tmp_path / "t.csv", top, rows)
    given = {"label_column": len(top) - 1} if isinstance(rows[0][-1], str) else {}
    table = p2pkm.read_table(path, **given, missing="mean")
    assert len(table.points) == len(rows)
    assert table.features == tuple(map(str, top))[: table.points.shape[1]]
    assert "is read as column names; use --header no to read it as a point" in table.notes[0]
    if name not in {"below text", "with a class", "missing values"}:
        assert len(p2pkm.read_table(path, header="no").points) == len(rows) + 1


@pytest.mark.parametrize("name", POINTS)
def test_numbers_that_are_a_point(tmp_path, name):
    top, rows = POINTS[name]
    path = write(tmp_path / "t.csv", top, rows)
    table = p2pkm.read_table(path)
    assert table.points.tolist() == [[float(x) for x in row] for row in [top, *rows]]
    assert table.features is None
    if list(top) in ([0, 1], [1, 2], [1, 2, 3]):
        assert "is read as a point; use --header yes to read it as column names" in table.notes[0]
    else:
        assert table.notes is None
    if len(rows):
        assert p2pkm.read_table(path, header="yes").features == tuple(map(str, top))


@pytest.mark.parametrize("load", [load_iris, load_wine, load_digits])
@pytest.mark.sample(3)
def test_no_row_of_known_data_is_taken_for_names(load):
    X, _ = load(return_X_y=True)
    draw = np.random.default_rng(0)
    for _ in range(60):
        top, *rows = [list(map(str, row)) for row in draw.permutation(X)[:40].tolist()]
        assert not are_names(top, rows)


def test_text_above_numbers_is_names_whatever_the_numbers_are():
    assert find_header(["x", "2"], [["1", "5"]], set()) == (True, "")
    assert find_header(["5.1", "setosa"], [["4.9", "setosa"]], set()) == (False, "")
    assert find_header(["5.1", "kind"], [["4.9", "setosa"]], {"kind"}) == (True, "")
    assert find_header(["a", "b"], [], set()) == (True, "")


def test_the_command_line_says_what_it_took_for_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.csv", [900, 905, 910], NOISE[:, :3].tolist())
    run = ("--data", "t.csv", "-k", 2, "--devices", 4, "--rounds", 1, "--no-plot")
    said = here(*run, "--out", "a")
    assert said.code == 0 and "the first row (900, 905, 910) is read as column names; use --header no" in said.out
    assert p2pkm.load("a").features == ("900", "905", "910") and len(p2pkm.load("a").labels) == 40
    said = here(*run, "--header", "no", "--out", "b")
    assert said.code == 0 and "is read as the names" not in said.out
    assert p2pkm.load("b").features is None and len(p2pkm.load("b").labels) == 41
    assert here("--config", "b/config.toml", "--out", "c", "--no-plot", "-q").code == 0
    assert len(p2pkm.load("c").labels) == 41
    said = here(*run, "--header", "maybe")
    assert said.code == 2 and "header" in said.err
    np.save("a.npy", NOISE)
    said = here("--data", "a.npy", "--header", "yes")
    assert (
        said.code == 3
        and "a.npy: --header cannot be combined with .npy files; expected a file of type .csv, .tsv" in said.err
    )
    assert here("--header", "no").code == 2  # generated data


def test_other_words_and_a_header_alone(tmp_path):
    path = write(tmp_path / "t.csv", [1, 2], [])
    with pytest.raises(DataError, match="has a header and no points"):
        p2pkm.read_table(path, header="yes")
    with pytest.raises(ExperimentError, match="header is 'ja'"):
        p2pkm.read_table(path, header="ja")
    (tmp_path / "u.csv").write_text("a,b\nc,d\n")
    with pytest.raises(DataError, match="line 1, column '0' is 'a'"):
        p2pkm.read_table(tmp_path / "u.csv", header="no")
