"""Studies on executors of all kinds: the rows of one process."""

import sys
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import networkx as nx
import numpy as np
import pytest

import p2pkm
import p2pkm.experiments.studies.run_study as module
from tests.support.run_cli import here, ranks, there
from tests.support.stored_rows import list_lines

POINTS = np.random.default_rng(0).normal(size=(24, 2))
ASKED = {
    "grid": {"graph": {"path": nx.path_graph(4), "ring": "ring"}, "algorithm": ["gtvmin", p2pkm.FKM(3)]},
    "seeds": range(3), "data": POINTS, "devices": 4, "clusters": 3, "rounds": 3, "baselines": False, "progress": False,
}  # fmt: skip


def rows_of(study):
    return [{name: value for name, value in row.items() if name != "wall_seconds"} for row in study.rows]


class Tasks:
    """Executor of another package: no subclass, its tasks are run when they are asked for, the last one first."""

    def __init__(self, lost=()):
        self.tasks, self.lost, self.canceled = [], lost, 0

    def submit(self, call, *arguments):
        task = type("Task", (), {"done": lambda own: own is self.tasks[-1], "cancel": self.cancel})()
        task.result = lambda: self.run(task, call, arguments)
        self.tasks.append(task)
        return task

    def run(self, task, call, arguments):
        self.tasks.remove(task)
        if len(self.tasks) in self.lost:
            raise BrokenProcessPool("a process was killed")
        return call(*arguments)

    def cancel(self):
        self.canceled += 1


@pytest.fixture(scope="module")
def expected():
    return rows_of(p2pkm.study(**ASKED))


@pytest.mark.slow
def test_an_executor_of_threads_or_of_another_package_gives_the_rows_of_one_process(expected, tmp_path):
    with ThreadPoolExecutor(3) as pool:
        assert rows_of(p2pkm.study(executor=pool, jobs=3, out=tmp_path / "threads", **ASKED)) == expected
    assert rows_of(p2pkm.study(executor=Tasks(), **ASKED)) == expected
    assert len(list_lines(tmp_path / "threads")) == len(expected)


@pytest.mark.slow
def test_processes_of_a_pool_give_the_rows_of_one_process(expected, tmp_path):
    import multiprocessing

    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert rows_of(p2pkm.study(executor=pool, jobs=2, out=tmp_path, **ASKED)) == expected
    assert len(list_lines(tmp_path)) == len(expected) and len(list((tmp_path / "runs").iterdir())) <= 2


@pytest.mark.slow
def test_a_lost_task_is_an_error_of_its_runs_which_the_next_call_repeats(expected, tmp_path):
    found = p2pkm.study(executor=Tasks(lost=(0,)), out=tmp_path, **ASKED)
    errors = [row["error"] for row in found.rows if row["error"]]
    assert 0 < len(errors) < len(expected) and set(errors) == {
        "NetworkError: its task ended with BrokenProcessPool: a process was killed. Call study again with its folder"
    }
    assert rows_of(p2pkm.study(out=tmp_path, **ASKED)) == expected


def test_an_interrupted_study_cancels_what_has_not_begun(tmp_path, monkeypatch):
    tasks, execute, begun = Tasks(), module.execute, []

    def interrupt(*given):
        import signal

        begun.append(1)
        if len(begun) == 2:
            signal.raise_signal(signal.SIGINT)
        return execute(*given)

    monkeypatch.setattr(module, "execute", interrupt)
    with pytest.raises(KeyboardInterrupt):
        p2pkm.study(executor=tasks, out=tmp_path, **ASKED)
    assert tasks.canceled and len(list_lines(tmp_path)) == len(begun) == 2


def test_what_cannot_execute_is_refused():
    for wrong in (4, "processes", Future()):
        with pytest.raises(
            p2pkm.P2PKMError, match=r"executor is of type .*; expected an object with the method submit"
        ):
            p2pkm.study(executor=wrong, **ASKED)


@pytest.mark.slow
def test_a_function_is_called_with_the_row_of_each_run(expected):
    seen = []
    p2pkm.study(on_run=seen.append, **ASKED)
    assert sorted((row["key"], row["ratio_mean"] or 0.0) for row in seen) == sorted(
        (row["key"], row["ratio_mean"] or 0.0) for row in expected
    )
    assert "trace" not in seen[0]


@pytest.mark.mpi
def test_ranks_of_mpi4py_give_the_rows_of_one_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import json, sys, p2pkm\nfrom mpi4py.futures import MPIPoolExecutor\n"
        "if __name__ == '__main__':\n"
        "    asked = dict(grid={'graph': ['ring', 'path']}, seeds=range(3), devices=4, data='grid16:points=5')\n"
        "    with MPIPoolExecutor() as pool:\n"
        "        found = p2pkm.study(executor=pool, jobs=2, progress=False, **asked)\n"
        "    print(json.dumps([row['centroids_sha256'] for row in found.rows]))\n"
    )
    done = there(*ranks(3), "-m", "mpi4py.futures", script)
    assert done.code == 0, done.err
    alone = there(sys.executable, "-c", script.read_text().replace("MPIPoolExecutor() as pool", "open('x','w') as pool")
                  .replace("executor=pool, jobs=2, ", ""), cwd=tmp_path)  # fmt: skip
    assert alone.out == done.out, alone.err


COMPARED = {
    "compare": partial(p2pkm.compare, ["gtvmin", "local"], ["ring", "path"], seeds=range(2), devices=4,
                       data="grid16:points=5", rounds=3, progress=False),
    "bench": partial(p2pkm.bench, "local,kfed", tasks=["few-iid"], seeds=[0, 1], progress=False),
}  # fmt: skip


def list_failed(found):
    """Return the rows of runs that failed; those of a benchmark have a reason in place of an error."""
    return [row for row in found.rows if row.get("error") or row.get("reason")]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARED)
def test_comparisons_and_benchmarks_take_executors_and_repeat_failed_runs(name, tmp_path, monkeypatch):
    call, execute = COMPARED[name], module.execute
    expected = rows_of(call())

    def fail(run, *given):
        if run.options.seed == 1:
            raise p2pkm.DataError("no luck")
        return execute(run, *given)

    monkeypatch.setattr(module, "execute", fail)
    with ThreadPoolExecutor(2) as pool:
        failed = list_failed(call(executor=pool, jobs=2, out=tmp_path))
    assert {row["seed"] for row in failed} == {1} and "no luck" in str(failed[0])
    monkeypatch.setattr(module, "execute", execute)
    kept, repeated = [], []
    call(out=tmp_path, on_run=kept.append, retry_rejected=True)
    with ThreadPoolExecutor(2) as pool:
        found = call(executor=pool, jobs=2, out=tmp_path, on_run=repeated.append, retry_failed=True)
    assert rows_of(found) == expected
    assert not kept and {row["seed"] for row in repeated} == {1}


COMMANDS = (
    "compare --algorithm gtvmin --graph ring --seeds 0-1 --devices 4 --rounds 2 --data grid16:points=5",
    "bench --algorithm kfed --task few-iid --seeds 0-1",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.sample(2)
def test_commands_repeat_failed_runs(command, tmp_path, monkeypatch):
    execute = module.execute
    arguments = [*command.split(), "--no-plot", "--out", tmp_path, "-q"]

    def fail(run, *given):
        if run.options.seed == 1:
            raise p2pkm.DataError("no luck")
        return execute(run, *given)

    monkeypatch.setattr(module, "execute", fail)
    here(*arguments)
    failed = list_failed(p2pkm.load_study(tmp_path))
    monkeypatch.setattr(module, "execute", execute)
    here(*arguments, "--retry-rejected")
    assert list_failed(p2pkm.load_study(tmp_path)) == failed != []
    assert here(*arguments, "--retry-failed").code == 0
    assert not list_failed(p2pkm.load_study(tmp_path))


def test_comparisons_and_benchmarks_refuse_what_cannot_execute():
    for call in COMPARED.values():
        with pytest.raises(p2pkm.P2PKMError, match="expected an object with the method submit"):
            call(executor=4)
        with pytest.raises(p2pkm.P2PKMError, match="on_run is 3; expected a function"):
            call(on_run=3)
        with pytest.raises(p2pkm.P2PKMError, match=r"retry_failed is .*expected one value"):
            call(retry_failed=["gtvmin"])


@pytest.mark.slow
def test_loky_gives_the_rows_of_one_process(expected, tmp_path):
    executor = pytest.importorskip("loky").get_reusable_executor(max_workers=2)
    assert rows_of(p2pkm.study(executor=executor, jobs=2, out=tmp_path, **ASKED)) == expected
    assert len(list_lines(tmp_path)) == len(expected)
