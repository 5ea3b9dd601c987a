"""p2pkm.study and p2pkm.compare do what the commands do, through the same code."""

import doctest
from pathlib import Path

import numpy as np
import pytest

import p2pkm
import p2pkm.experiments.studies.run_study
from p2pkm.analysis import study_table
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.object_content import restore
from p2pkm.experiments.studies import compare, engine, sweep
from tests.support.run_cli import here

SMALL = {"devices": 3, "data": "grid16:points=5", "rounds": 2, "clusters": 4}


def timeless(rows):
    return [{name: value for name, value in row.items() if name != "wall_seconds"} for row in rows]


@pytest.mark.slow
def test_a_study_is_that_of_the_command(tmp_path, monkeypatch):
    grid = {"algorithm": ("gtvmin", "consensus"), "rounds": np.array([1, 2])}
    fixed = {name: value for name, value in SMALL.items() if name != "rounds"}
    (tmp_path / "s.toml").write_text(
        'devices = 3\ndata = "grid16:points=5"\nclusters = 4\nplot = false\nseeds = "0-1"\n[grid]\n'
        'algorithm = ["gtvmin", "consensus"]\nrounds = [1, 2]\n'
    )
    assert here("sweep", tmp_path / "s.toml", "--out", tmp_path / "s", "-q").code == 0
    monkeypatch.chdir(tmp_path)
    begun, execute = [], p2pkm.experiments.studies.run_study.execute
    monkeypatch.setattr(
        p2pkm.experiments.studies.run_study, "execute", lambda *given: begun.append(1) or execute(*given)
    )
    found = p2pkm.study(grid=grid, seeds=range(2), progress=False, out="s", **fixed)
    assert not begun and found.swept == ["algorithm", "rounds_asked"]
    assert found.rows == p2pkm.Study.load("s").rows and found.path.samefile("s")
    alone = p2pkm.study(grid=grid, seeds=[np.int64(0)], progress=False, **fixed)
    assert timeless(alone.rows) == timeless(found.rows[::2]) and alone.path is None and len(begun) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "s.toml"]


def test_a_comparison_is_that_of_the_command(tmp_path, monkeypatch, capsys):
    words = [word for name, value in SMALL.items() for word in (f"--{name}", value)]
    assert here("compare", "--algorithm", "gtvmin,fkm:server_n_init=2", "--seeds", "0-1", *words, "--no-plot", "-q",
                "--out", tmp_path / "c").code == 0  # fmt: skip
    begun = []
    monkeypatch.setattr(p2pkm.experiments.studies.run_study, "execute", lambda *given: begun.append(1))
    found = p2pkm.compare(["gtvmin", "fkm:server_n_init=2"], seeds="0-1", out=tmp_path / "c", **SMALL)
    assert not begun and found.rows == p2pkm.Study.load(tmp_path / "c").rows
    assert "4 of 4 runs are stored in" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_give_the_same(tmp_path):
    one, two = (p2pkm.study(grid={"graph": ["ring", "star"]}, seeds="0-1", jobs=jobs, **SMALL) for jobs in (1, 2))
    assert timeless(one.rows) == timeless(two.rows)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: p2pkm.study(grid={"grahp": ["ring"]}), "unknown key 'grahp' in study(...) [grid]. Did you mean"),
        (lambda: p2pkm.study(grid={"graph": "ring"}), "grid['graph'] is 'ring'; expected a list of values"),
        (lambda: p2pkm.study(seeds=3), "seeds is 3; expected a list of values"),
        (lambda: p2pkm.study(seeds=[0.5]), "expected whole numbers"),
        (lambda: p2pkm.study(jobs=0, seeds="0", **SMALL), "jobs is 0"),
        (lambda: p2pkm.compare("gtvmin", algorithm="fkm"), "algorithm is set. Use algorithms, a list"),
        (lambda: p2pkm.compare("gtvmin", seeds=[0, 0]), "expected each seed once"),
        (lambda: p2pkm.compare("gtvmni"), "gtvmni"),
        (lambda: p2pkm.compare("gtvmin", reference="fkm"), "expected one of the compared methods"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_before_any_work(call, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(p2pkm.P2PKMError) as refusal:
        call()
    assert words in str(refusal.value) and not list(tmp_path.iterdir())


def test_on_ranks_a_study_has_no_processes_of_its_own(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "2")
    for call in (lambda: p2pkm.study(grid={"graph": ["ring"]}, jobs=2), lambda: p2pkm.compare("gtvmin", jobs=2)):
        with pytest.raises(p2pkm.P2PKMError, match="jobs=2 cannot be combined with mpirun"):
            call()


def test_an_interrupted_study_says_so_and_keeps_what_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "run_study", lambda cells, *given, **more: [])
    with pytest.raises(KeyboardInterrupt):
        p2pkm.study(grid={"graph": ["ring"]}, seeds="0-1", out=tmp_path / "s", progress=False, **SMALL)
    assert (tmp_path / "s/study.toml").is_file()


def test_what_an_interrupted_study_has_kept_is_told_apart_by_what_was_swept(tmp_path):
    grid = {"coupling": [1, 10], "rounds": [1, 2]}
    fixed = {"devices": 2, "init": "local", "data": "grid16:points=1", "clusters": 2, "seeds": [3], "progress": False}
    found = p2pkm.study(grid=grid, out=tmp_path, **fixed)
    (tmp_path / "study.jsonl").unlink()
    again = p2pkm.load_study(tmp_path)
    assert again.swept == found.swept == ["coupling", "rounds_asked"]
    assert again.configurations() == found.configurations() and len(again.configurations()) == 4
    assert sorted(again.rows, key=str) == sorted(found.rows, key=str)
    assert p2pkm.study(grid=grid, out=tmp_path, **fixed).rows == found.rows


@pytest.mark.parametrize("module", [sweep, compare, study_table])
@pytest.mark.sample(3)
def test_the_examples_run(module):
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.attempted and not found.failed


def test_processes_get_the_runs_of_a_study_and_its_folder(tmp_path, monkeypatch):
    module, given = p2pkm.experiments.studies.run_study, []

    def read(program, tasks, *rest):
        given.append((restore(Path(program.split("'")[1]).read_bytes()), list(tasks)))
        return []

    monkeypatch.setattr(module, "work_through", read)
    cells = [RunOptions.from_mapping(SMALL | {"seed": seed}, "") for seed in (0, 1)]
    parts = [
        module.StudyPart(cells, ["a", "b"], [[1], [0]], folder, module.UNMEASURED, 2) for folder in (tmp_path, None)
    ]
    for part in parts:
        list(module.run_in_processes(part, lambda: 0))
    assert given == [(part, ["1", "0"]) for part in parts]


def test_a_spec_that_begins_with_a_number_may_be_a_number():
    options = [RunOptions.from_mapping({name: value}, "study(...)") for name, value in
               (("byzantine", 2), ("byzantine", "2"), ("client_share", 0.1), ("client_share", "0.1"))]  # fmt: skip
    assert options[0] == options[1] and options[2] == options[3]
    with pytest.raises(p2pkm.ExperimentError, match=r"byzantine in study.* is True; expected text"):
        RunOptions.from_mapping({"byzantine": True}, "study(...)")
