"""The scripts of examples/reproduce: the data they draw are the authors', and each of them runs."""

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.support.run_cli import environment

FOLDER = Path(__file__).parents[2] / "examples" / "reproduce"
DATA = os.environ.get("P2PKM_DATA")
FILES = sorted(Path(DATA).glob("garst/abl_*.csv")) if DATA else []
BACKBONE = ("fkmeanscb_table2", "fkmeanscb_table3", "fkmeanscb_fig4", "fkmeanscb_fig5", "fkmeanscb_fig6")
QUICK = {  # what makes a script quick; none: it repeats nothing
    "fkm_fig1": ["--rounds", "2"],
    "fkm_fig2": [],
    "fkm_fig3": ["--rounds", "2"],
    "fkm_fig4": ["--rounds", "2"],
    "fkm_fig5": ["--rounds", "2", "--data-dir", "data"],
    "fkm_fig6": ["--rounds", "1", "--data-dir", "data"],
    "fkm_fig7": ["--rounds", "2", "--files", "data/garst/cluster_wise_small.csv", "--runs", "2"],
    "fkm_fig8": ["--rounds", "2", "--points", "5"],
    "fkm_fig9": ["--data-dir", "data"],
    "fkmeanscb_fig3": ["--data-dir", "data", "--points", "700"],
    "gtvmin_v2": ["--rounds", "1"],
    **{script: ["--data-dir", "data"] for script in BACKBONE},
}
NEEDY = {"fkm_fig5": "cluster_wise_small.csv", "fkm_fig6": "femnist10.npz", "fkm_fig7": "--files",
         "fkm_fig9": "femnist10.npz", **dict.fromkeys(BACKBONE, "thyroid.csv"),
         "fkmeanscb_fig6": "r15.csv"}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def modules():
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder with data in the form of the papers' files, only smaller."""
    import garst

    folder = tmp_path_factory.mktemp("reproduce")
    (folder / "data" / "garst").mkdir(parents=True)
    drawn = garst.draw(0.1, 10, 1.0)
    np.savetxt(
        folder / "data" / "garst" / "cluster_wise_small.csv",
        np.column_stack((drawn["x"], drawn["label"], drawn["client"])), delimiter=",", comments="",
        header="x0,x1,label,client",
    )  # fmt: skip
    pixels = np.random.default_rng(0).random((1200, 3)).astype(np.float32)
    np.savez(folder / "data" / "femnist10.npz", X=pixels, client=np.arange(1200) % 10)
    classes = {"thyroid": 3, "breast": 2, "ecoli": 8, "iris": 3, "r15": 15, "mnist": 10}  # covertype is missing
    for name, count in classes.items():
        columns = np.column_stack((pixels[:120, :2], np.arange(120) % count))
        np.savetxt(folder / "data" / f"{name}.csv", columns, delimiter=",", comments="", header="x0,x1,label")
    return folder


def test_every_script_is_tried():
    others = {"paper", "garst", "deng", "ssets", "feca_table3"}
    assert {path.stem for path in FOLDER.glob("*.py")} == set(QUICK) | set(FECA) | others


def run_here(script, monkeypatch, *arguments):
    """Run a script in this process, which has imported most of what it needs."""
    monkeypatch.delenv("P2PKM_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
    runpy.run_path(str(FOLDER / f"{script}.py"), run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize("script", QUICK)
def test_script_prints_its_table_and_draws(script, small, monkeypatch, capsys):
    monkeypatch.chdir(small)
    run_here(script, monkeypatch, "--out", small / "figures", "--runs", "1", *QUICK[script])
    printed = capsys.readouterr()
    assert not printed.err
    assert "runs  allowed  verdict" in printed.out
    assert (small / "figures" / f"{script}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("script", NEEDY)
def test_script_without_its_data_says_what_it_needs(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=NEEDY[script]) as ending:
        run_here(script, monkeypatch, "--out", tmp_path / "figures")
    assert "not part of the project" in str(ending.value)
    assert not capsys.readouterr().out and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_script_is_a_program_of_its_own(tmp_path):
    """Whatever was imported and set before the other tests run a script is not there."""
    given = {name: value for name, value in environment().items() if name != "P2PKM_DATA"}
    command = [sys.executable, "-W", "error", FOLDER / "fkm_fig2.py", "--out", tmp_path, "--runs", "1"]
    done = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "") and "runs  allowed  verdict" in done.stdout
    refused = [sys.executable, FOLDER / "fkm_fig9.py"]
    done = subprocess.run(refused, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1 and not done.stdout and "femnist10.npz" in done.stderr


@pytest.mark.skipif(not FILES, reason="the environment variable P2PKM_DATA names no folder with garst/abl_*.csv")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_drawn_data_are_the_authors(path):
    import garst
    import paper

    beta, points, sd = (float(part.lstrip("betapcnois")) for part in path.stem.split("_")[1:])
    theirs, ours = paper.table(path), garst.draw(beta, int(points), sd)
    order = np.argsort(ours["client"], kind="stable")
    assert garst.name_file(beta, int(points), sd) == f"garst/{path.name}"
    assert_allclose(ours["x"][order], theirs["x"], rtol=0, atol=1e-10)  # 12 digits are written
    assert_array_equal(ours["label"][order], theirs["label"])
    assert_array_equal(ours["client"][order], theirs["client"])


@pytest.mark.parametrize(
    ("beta", "sizes"),
    [(0.1, [185, 144, 194, 74, 203]), (1.0, [174, 146, 187, 102, 191]), (10.0, [200, 162, 140, 158, 140])],
)
def test_drawn_clients_have_as_many_points_as_the_authors(beta, sizes):
    import garst

    assert_array_equal(garst.load(None, beta, 50, 1.0).sizes, sizes)


def test_a_point_that_no_client_hits_goes_to_the_closest():
    import garst

    drawn = garst.draw(1e-12, 3, 1.0)
    distances = np.linalg.norm(drawn["x"][:, None] - garst.LOCATIONS, axis=2)
    assert_array_equal(drawn["client"], distances.argmin(axis=1))


def test_a_file_at_hand_is_read(tmp_path):
    import garst

    (tmp_path / "garst").mkdir()
    (tmp_path / garst.name_file(1.0, 50, 1.0)).write_text("x0,x1,label,client\n1,2,0,1\n3,4,1,0\n")
    assert_array_equal(garst.load(tmp_path, 1.0, 50, 1.0).points, [[3, 4], [1, 2]])


@pytest.mark.slow
def test_several_processes_give_the_same_scores_in_the_same_order():
    from argparse import Namespace

    import garst

    shards = garst.load(None, 1.0, 10, 1.5)
    cases = {"a": (garst.FKM, shards), "b": (garst.KFED, shards)}
    one, two = (garst.study(cases, Namespace(rounds=3, runs=2, seeds=range(2), jobs=jobs)) for jobs in (1, 2))
    assert one["a"].curve.shape == (2, 3) and one["b"].curve.shape == (2, 1)
    for name in cases:
        assert_array_equal(one[name].curve, two[name].curve)
        assert_array_equal(one[name].pooled, two[name].pooled)
    assert len(np.unique(one["a"].final)) == 2  # other seeds, other runs


def test_the_score_is_the_mean_over_clients_weighted_by_their_points():
    import garst
    from sklearn.metrics import adjusted_rand_score

    import p2pkm

    shards = garst.load(None, 0.1, 20, 1.5)
    curve, pooled = garst.play(garst.KFED, shards, 1, 5)
    centroids = p2pkm.simulate(garst.KFED, None, shards, seed=5).server_centroids
    labels = ((shards.points[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    scores = [adjusted_rand_score(shards.labels[own], labels[own]) for own in (shards.devices == i for i in range(5))]
    assert_allclose(curve, [np.average(scores, weights=shards.sizes)])
    assert_allclose(pooled, adjusted_rand_score(shards.labels, labels))


@pytest.mark.parametrize(
    ("paper_value", "allowed", "verdict"),
    [(0.9, 0.1, "as published"), (0.5, 0.1, "differs by +0.3"), (None, 0.1, "-"), (0.9, None, "-")],
)
def test_the_verdict(paper_value, allowed, verdict):
    from paper import Row, judge

    assert judge(Row("a figure", paper_value, [0.7, 0.9], allowed)) == verdict


def test_the_verdict_of_what_is_in_no_count_stands_in_parentheses():
    from paper import Row, judge

    assert judge(Row("another table's", 0.9, [0.7, 0.9], 0.1, counted=False)) == "(as published)"
    assert judge(Row("a variant", 0.5, [0.7, 0.9], 0.1, counted=False)) == "(differs by +0.3)"
    assert judge(Row("not printed", None, [0.7], 0.1, counted=False)) == "-"


def count_verdicts(path):
    """Return the table of docs/verdicts.py as a dict: script to (as published, other)."""
    spec = importlib.util.spec_from_file_location("verdicts", FOLDER.parents[1] / "docs" / "verdicts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in module.count_verdicts(path).splitlines()]
    return {cell[1].strip("`"): (int(cell[2]), int(cell[3] or 0)) for cell in cells[2:] if cell[1]}


def test_the_count_has_what_a_paper_printed_of_its_method_alone(tmp_path):
    (tmp_path / "results.md").write_text("""## A paper

### Figure 1: `one.py --runs 40`

text as published in words
a        1     1.05      0.1    40      0.1  as published
b        1        2      0.1    40      0.1  differs by +1
c        1     1.05      0.1    40      0.1  (as published)
d        1        2      0.1    40      0.1  (differs by +1)
e        -     1.05      0.1    40        -  -

### Figure 2: `two.py`

c        1     1.05      0.1    40      0.1  (as published)
""")
    assert count_verdicts(tmp_path / "results.md") == {"one.py": (1, 1)}


def test_the_counted_verdicts_on_means_rest_on_at_least_40_runs():
    header, few, many = "", [], 0
    for line in (FOLDER / "RESULTS.md").read_text().splitlines():
        if line.endswith("verdict"):
            header = line
        found = re.search(r"(\S+) +(\d+) +\S+  (as published|differs by \S+)$", line)
        if found and "best" not in header and found[1] != "-":  # the best of so many runs; what has no deviation
            many += 1
            few += [line] * (int(found[2]) < 40)
    assert many > 500 and not few


def test_no_line_that_no_paper_printed_is_counted():
    counted = re.compile(r" (as published|differs by \S+)$")
    alien = re.compile(
        r"^drawn|^induced|, induced|our reading|k-FED, code|k-FED, drawn|10 starts|^figure 1|within the bound"
    )
    lines = (FOLDER / "RESULTS.md").read_text().splitlines()
    assert [line for line in lines if alien.search(line) and counted.search(line)] == []
    assert any(alien.search(line) for line in lines)


FECA = {  # script: what makes it quick
    "feca_table1": ["--sets", "1"],
    "feca_table2": ["--features", "s1.csv", "--dataset", "cifar10"],
    "feca_table4": ["--sets", "2"],
    "feca_table5": [],
    "feca_table6": [],
    "feca_table7": [],
    "feca_table8": [],
    "feca_table9": [],
    "feca_table10": [],
    "feca_fig4": [],
    "feca_fig5": [],
    "feca_fig7": [],
    "feca_fig8": [],
    "feca_fig10": [],
    "feca_fig12": [],
    "feca_fig13": [],
    "feca_theorem": [],
}


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """A folder with data in the form of the S-sets, only smaller."""
    import p2pkm

    folder = tmp_path_factory.mktemp("sets")
    for number in (1, 2, 3, 4):
        points, labels = p2pkm.slike(points=20, seed=number)
        centers = np.stack([points[labels == c].mean(axis=0) for c in range(15)])
        columns = 1e4 * np.column_stack((points, labels / 1e4))
        np.savetxt(folder / f"s{number}.csv", columns, delimiter=",", comments="", header="x0,x1,label")
        np.savetxt(folder / f"s{number}_centers.csv", 1e4 * centers, delimiter=",", comments="", header="x0,x1")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("script", FECA)
def test_feca_script_prints_its_table_and_draws(script, sets, tmp_path, monkeypatch, capsys):
    run_here(script, monkeypatch, "--runs", "1", "--data-dir", sets, "--out", tmp_path, *FECA[script])
    assert "runs  allowed  verdict" in capsys.readouterr().out
    assert (tmp_path / f"{script}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_deep_table_is_printed_for_shapes_and_for_images_of_ones_own(tmp_path, monkeypatch, capsys):
    pytest.importorskip("jax", reason="needs the extra deep")
    quick = ["--runs", "1", "--rounds", "0", "--out", tmp_path]
    run_here("feca_table3", monkeypatch, *quick, "--points", "12", "--only", "shapes")
    printed = capsys.readouterr().out
    assert "Table 3 on shapes" in printed and "paper: on shapes: DeepFeCA is the best" in printed
    assert (tmp_path / "feca_table3_shapes_bytes_busiest.png").exists()
    kept = (tmp_path / "feca_table3_shapes.jsonl").read_text()
    assert len(kept.splitlines()) == 4 + 3 * 13  # four controls are the same for all splits
    run_here("feca_table3", monkeypatch, *quick, "--points", "12", "--only", "shapes")
    assert capsys.readouterr().out == printed  # nothing is run again
    assert (tmp_path / "feca_table3_shapes.jsonl").read_text() == kept
    pixels = np.random.default_rng(0).integers(0, 255, (80, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", images=pixels, labels=np.arange(80) % 4)
    few = ["--splits", "IID", "--systems", "DeepFeCA", "pooled"]
    run_here("feca_table3", monkeypatch, *quick, *few, "--data-dir", tmp_path, "--images", "mine.npz")
    assert len((tmp_path / "feca_table3_images.jsonl").read_text().splitlines()) == 2
    assert "paper" not in capsys.readouterr().out  # nothing of it is about one's own images


@pytest.mark.slow
@pytest.mark.parametrize("script", [name for name in FECA if name != "feca_theorem"])
def test_feca_script_without_its_data_says_what_it_needs(script, tmp_path, monkeypatch, capsys):
    needed = "features.npz" if script == "feca_table2" else "s2.csv" if script == "feca_fig7" else "s1.csv"
    with pytest.raises(SystemExit, match=f"{needed}, which is not part of the project"):
        run_here(script, monkeypatch, "--out", tmp_path)
    assert not capsys.readouterr().out and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_with_another_first_seed_is_one_of_the_later_runs(sets, tmp_path, monkeypatch, capsys):
    more = ["--data-dir", sets, "--out", tmp_path]
    found = []
    for seeds in (["--runs", "1", "--first-seed", "1"], ["--runs", "2"], ["--runs", "1"]):
        run_here("feca_table6", monkeypatch, *seeds, *more)
        table = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("IID, empirical")]
        found.append(float(table[0][3]))
    assert found[0] != found[2]
    assert found[1] == pytest.approx((found[0] + found[2]) / 2, rel=1e-3)


@pytest.mark.slow
def test_features_in_an_npz_file_are_read(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "features.npz", X=rng.random((60, 5)).astype(np.float32), y=np.repeat(["cat", "dog"], 30))
    run_here("feca_table2", monkeypatch, "--runs", "1", "--data-dir", tmp_path, "--out", tmp_path)
    assert "as published" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("values", "paper_value", "allowed"),
    [
        ([3.0, 5.0], (4.2, 1.0), 2 * np.sqrt(1 / 10 + 2 / 2) + 0.05),  # variances over numbers of runs, and rounding
        ([3.0, 5.0], (4.2,), 2 * np.sqrt(2 / 10 + 2 / 2) + 0.05),
        ([3.0], (4.2, 1.0), 2 * np.sqrt(1 / 10 + 1) + 0.05),
        ([3.0], (4.2,), None),
        ([3.0, 5.0], None, None),
    ],
)
def test_two_standard_errors(values, paper_value, allowed):
    import ssets

    found = ssets.row("a figure", np.array(values), paper_value)
    assert found.paper == (None if paper_value is None else 4.2)
    assert found.allowed == (None if allowed is None else pytest.approx(allowed))


def test_what_the_clients_said_makes_the_servers_centroids(sets):
    import ssets

    import p2pkm

    method, shards = p2pkm.FeCA(15), ssets.deal(ssets.load(sets, 1), "0.3, by device", 3)
    centroids, said = ssets.listen(method, shards, 3)
    assert len(said) == 10 and {one.shape[1] for one in said} == {3}
    assert_array_equal(method.aggregate(None, said, np.full((15, 2), np.inf)), centroids)
    assert_array_equal(ssets.run(method, shards, 3).server_centroids, centroids)


@pytest.mark.slow
def test_drawn_rows_are_distinct_rows_of_the_clients_in_every_process(sets):
    from argparse import Namespace

    import ssets

    import p2pkm

    data, kfed = ssets.load(sets, 1), p2pkm.KFED(15, local_k=5, seeding="plain", finish="one")
    drawn = ssets.Served(kfed, ssets.draw_rows)
    shards = ssets.deal(data, "IID", 0)
    centroids = ssets.run(drawn, shards, 0).server_centroids
    rows = np.concatenate(ssets.listen(kfed, shards, 0)[1])
    assert len(np.unique(centroids, axis=0)) == 15
    assert not [one for one in centroids if not (rows == one).all(axis=1).any()]
    cases = {"drawn": ssets.Case(drawn), "FeCA": ssets.Case(p2pkm.FeCA(15), "0.1, by class")}
    one, two = (ssets.study(data, cases, Namespace(runs=2, seeds=range(2), jobs=jobs)) for jobs in (1, 2))
    for name in cases:
        assert_array_equal(one[name], two[name])
    hubs = (Namespace(shared_key=np.uint64(key)) for key in (1, 2))
    assert not np.array_equal(*(ssets.draw_rows(hub, [rows], centroids) for hub in hubs))


def test_sigma_is_the_distance_over_the_largest_radius_at_the_true_center(sets, monkeypatch):
    import feca_fig5
    import ssets

    said = [np.array([[0.0, 1.0, 4.0], [9.0, 0.0, 2.0]]), np.array([[0.0, -3.0, 6.0]])]
    monkeypatch.setattr(feca_fig5, "listen", lambda *_: (None, said))
    data = ssets.Sset(np.zeros((20, 2)), np.zeros(20, int), np.array([[0.0, 0.0], [10.0, 0.0]]))
    owner, sigma = feca_fig5.measure(data, "IID", 0)
    assert_array_equal(owner, [0, 1, 0])
    assert_allclose(sigma, [1 / 6, 1 / 2, 3 / 6])


@pytest.mark.parametrize(("reading", "distinct"), [("from all", False), ("from those left", True)])
def test_clients_of_table_8_have_a_twentieth_each_and_keep_it(sets, reading, distinct):
    import feca_table8
    import ssets

    data = ssets.load(sets, 1)
    few, many = (feca_table8.draw_parts(data, clients, 7, reading) for clients in (2, 20))
    assert_array_equal(many.sizes, [15] * 20)
    assert_array_equal(few.points, many.points[:30])
    assert not [i for i in range(20) if len(np.unique(many.points[many.devices == i], axis=0)) != 15]
    assert (len(np.unique(many.points, axis=0)) == 300) == distinct


def test_the_verdict_on_the_best_run(capsys):
    from paper import Row, judge, show

    rows = [Row("best", 0.9, [0.7, 0.9], 0.1, True), Row("mean", 0.7, [0.7, 0.9], 0.15)]
    assert judge(rows[0]._replace(allowed=0.05)) == "as published"  # the mean is 0.1 away
    show("", rows)
    _, header, best, mean = capsys.readouterr().out.splitlines()
    assert header.split() == "paper best ours sd runs allowed verdict".split()
    assert best.split()[1:4] == ["0.9", "0.9", "0.8"] and mean.split()[1:4] == ["0.7", "-", "0.8"]
    show("", rows[1:])
    assert "best" not in capsys.readouterr().out


def test_the_backbone_study_deals_and_scores_as_it_says(small):
    import deng
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    import p2pkm

    data = deng.load(small / "data", ["iris"])["iris"]
    assert data.classes == 3 and len(np.unique(data.clusters)) == 3
    method, shards = deng.backbone("iris", epsilon=1.0), deng.deal(data, 10, 4)
    assert (method.k, method.local_k, method.epsilon, shards.n) == (3, 5, 1.0, 10)
    centroids = p2pkm.simulate(method, None, shards, seed=7, baselines=False).server_centroids
    labels = deng.nearest(data.x, centroids)
    scores = adjusted_rand_score(data.labels, labels), normalized_mutual_info_score(data.labels, labels)
    assert_allclose(deng.play(method, data, 10, 4, 7), scores)


def test_no_two_clusters_agree_better_with_three_classes_of_50():
    import fkmeanscb_table2
    from sklearn.metrics import adjusted_rand_score

    classes, rng = np.repeat([0, 1, 2], 50), np.random.default_rng(0)
    best = fkmeanscb_table2.bound()
    assert_allclose(best, adjusted_rand_score(classes, classes > 0))
    assert max(adjusted_rand_score(classes, rng.random(150) < p) for p in rng.random(100)) < best
