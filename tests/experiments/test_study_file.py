import tomllib
from functools import partial

import pytest

from p2pkm.core.errors import ExperimentError, P2PKMError
from p2pkm.experiments.studies.study_file import EXAMPLE, check_runs, expand_grid, parse_study, read_study, run_label
from tests.support.each import each

SMALL = 'devices = 4\ndata = "grid16:points=5"\n'


def read(text):
    return parse_study(tomllib.loads(SMALL + text), "s.toml")


def cells(text):
    return [(one.algorithm, one.graph, one.coupling, one.seed) for one in expand_grid(read(text), "s.toml")]


def test_runs_are_single_ones_times_the_grid_times_seeds():
    text = 'seeds = [7, 3]\n[grid]\ngraph = ["ring", "path"]\n[[runs]]\ncoupling = 3\n[[runs]]\nalgorithm = "admm"\n'
    assert cells(text) == [
        (method, graph, coupling, seed)
        for method, coupling in (("gtvmin", 3.0), ("admm", None))
        for graph in ("ring", "path")
        for seed in (7, 3)
    ]
    assert read(text).swept == ["coupling", "algorithm", "graph"]


def test_the_last_list_is_the_fastest():
    found = cells('seeds = "0"\n[grid]\ncoupling = [1, 2]\ngraph = ["ring", "path"]\n')
    assert [one[1:3] for one in found] == [("ring", 1.0), ("path", 1.0), ("ring", 2.0), ("path", 2.0)]


def test_a_method_with_a_server_runs_once_as_its_star():
    found = cells('graph = "ring"\nseeds = "0-1"\n[grid]\nalgorithm = ["fkm", "gtvmin"]\n')
    assert found == [("fkm", None, None, 0), ("fkm", None, None, 1), ("gtvmin", "ring", None, 0),
                     ("gtvmin", "ring", None, 1)]  # fmt: skip
    found = cells('seeds = "0"\n[grid]\nalgorithm = ["fkm", "gtvmin"]\ngraph = ["ring", "path"]\n')
    assert [one[:2] for one in found] == [("fkm", None), ("gtvmin", "ring"), ("gtvmin", "path")]


def test_seeds_by_default_one_or_several():
    assert read("").seeds == [0, 1, 2, 3, 4]
    assert read("seed = 3").seeds == [3]
    assert read('seeds = "1-2,9"').seeds == [1, 2, 9]


def test_dashes_are_as_good_as_underscores():
    assert read('label-column = "3"').base["label_column"] == "3"


@each(
    ("text", "words"),
    [
        ("devicse = 3", "Did you mean 'devices'"),
        ("[grdi]\ngraph = ['ring']", "Did you mean 'grid'"),
        ("[grid]\ngrahp = ['ring']", "Did you mean 'graph'"),
        ("[[runs]]\nrouns = 3", "[[runs]] 1. Did you mean 'rounds'"),
        ("[grid]\ngraph = 'ring'", "expected a list"),
        ("[grid]\ngraph = []", "at least one value"),
        ("[grid]\ngraph = [['ring']]", "expected text, numbers"),
        ("[grid]\ngraph = ['ring', 'ring']", "'ring' twice"),
        ("[grid]", "expected a table [grid] of lists"),
        ("grid = 3", "expected a table [grid] of lists"),
        ("runs = 3", "each under a line [[runs]]"),
        ("runs = []", "each under a line [[runs]]"),
        ("[runs]\ngraph = 'ring'", "each under a line [[runs]]"),
        ("graph = ['ring', 'path']", "Put lists in [grid]"),
        ("[[runs]]\ngraph = ['ring']", "Put lists in [grid]"),
        ("rounds = 3\n[grid]\nrounds = [3]", "rounds is set at the top and in [grid]"),
        ("[grid]\nrounds = [3]\n[[runs]]\nrounds = 4", "rounds is set in [[runs]] and in [grid]"),
        ("[grid]\nseed = [3]", "Set seeds at the top"),
        ("[[runs]]\nout = 'x'", "Set it at the top"),
        ("require_converged = true", "require_converged cannot be used in a study. Remove it"),
        ("seed = 3\nseeds = [3]", "seed and seeds are both set"),
        ("seeds = []", "expected whole numbers"),
        ("seeds = [1.5]", "expected whole numbers"),
        ("seeds = [true]", "expected whole numbers"),
        ("seeds = [-1]", "expected whole numbers"),
        ("seeds = [2, 2]", "expected each seed once"),
        ("seeds = 'a'", "expected a list of seeds"),
        ("seeds = 3", "expected a list"),
        ("label-column = 'a'\nlabel_column = 'a'", "twice, with - and with _"),
        ("alpha = 1\ncoupling = 2", "alpha"),
        ("[grid]\nalpha = [1]\n[[runs]]\ncoupling = 2", "alpha"),
        ("[grid]\nalgorithm = ['gtvmni']", "Did you mean 'gtvmin'"),
        ("[grid]\nrounds = ['many']", "expected a whole number"),
        ("[[runs]]\nrounds = 3\n[[runs]]\nrounds = 3", "occurs twice"),
        ("[grid]\nrounds = [1, 2, 3]\n", None),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text, words):
    if words is None:
        assert expand_grid(read(text), "s.toml")
        return
    with pytest.raises(ExperimentError) as error:
        expand_grid(read(text), "s.toml")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[grid]\ngraph = ['ring', 'random-regular:degree=9']", "the run with graph = random-regular:degree=9"),
        ("[grid]\ngraph = ['rign']", "ring"),
        ("[grid]\ndata = ['missing.csv']\n", "data"),
        ("[grid]\nclusters = [3, 3000]", "clusters = 3000"),
        ("[grid]\npartition = ['dirichlet:beta=1']", "beta"),
    ],
)
def test_a_run_that_can_never_work_is_refused_before_any_other(text, words):
    text = text if "data" in text else 'data = "grid16:points=5"\n' + text
    study = parse_study(tomllib.loads("devices = 4\n" + text), "s.toml")
    with pytest.raises(P2PKMError) as error:
        check_runs(expand_grid(study, "s.toml"), partial(run_label, study=study))
    assert words in str(error.value)


def test_too_many_runs_are_refused_before_they_are_laid_out():
    lists = "\n".join(f"{name} = {list(range(1, 60))}" for name in ("rounds", "clusters", "coupling"))
    with pytest.raises(ExperimentError, match="1,026,895 runs"):
        expand_grid(read(f"[grid]\n{lists}"), "s.toml")


def test_files_that_are_not_there_or_not_toml(tmp_path):
    with pytest.raises(ExperimentError, match="--example"):
        read_study(str(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_text("graph = ring")
    with pytest.raises(ExperimentError, match="cannot be read"):
        read_study(str(tmp_path / "bad.toml"))


def test_the_example_is_a_study_and_its_resolved_form_the_same_one():
    import tomli_w

    study = parse_study(tomllib.loads(EXAMPLE), "example")
    assert len(expand_grid(study, "example")) == 2 * 5 * 5
    again = parse_study(tomllib.loads(tomli_w.dumps(study.to_mapping())), "again")
    assert expand_grid(again, "again") == expand_grid(study, "example")
