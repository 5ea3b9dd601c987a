import contextlib
import json
import os

import pytest

from p2pkm.experiments.studies import process_pool
from p2pkm.experiments.studies.process_pool import work_through

_SERVE = "from p2pkm.experiments.studies.process_pool import serve; import os; "
ECHO = _SERVE + "serve(lambda t: (print('noise'), t.strip() * 2)[1])"
ENDS = _SERVE + "serve(lambda t: os._exit(3) if 'b' in t else t.strip())"
ENVIRONMENT = (
    "from p2pkm.experiments.studies.process_pool import serve; import os; serve(lambda t: os.environ[t.strip()])"
)


def never():
    return False


def test_every_task_is_answered_once_and_noise_is_no_answer(capfd):
    tasks = [json.dumps(one) for one in range(7)]
    found = dict(work_through(ECHO, tasks, 3, never))
    assert {number: answer.strip() for number, answer in found.items()} == {n: f"{n}{n}" for n in range(7)}
    assert capfd.readouterr().err.count("noise") == 7


def test_a_process_that_dies_costs_its_own_task_only():
    found = dict(work_through(ENDS, ["a", "b", "c", "b", "d"], 2, never))
    assert {number: answer and answer.strip() for number, answer in found.items()} == {
        0: "a", 1: None, 2: "c", 3: None, 4: "d"
    }  # fmt: skip


@pytest.mark.slow
def test_consecutive_tasks_of_a_group_go_to_one_process_until_others_are_idle():
    slow = _SERVE + "import time; serve(lambda t: (time.sleep(0.02), str(os.getpid()))[1])"
    found = dict(work_through(slow, ["x"] * 40, 2, never, [number // 10 for number in range(40)]))
    processes = [found[number] for number in range(40)]
    assert len(set(processes)) == 2 and len(set(processes[:10])) == len(set(processes[10:20])) == 1
    one = dict(work_through(slow, ["x"] * 40, 2, never, [0] * 40))
    assert len(one) == 40 and len(set(one.values())) == 2


def test_the_tasks_left_in_the_group_of_a_process_that_dies_are_answered():
    found = dict(work_through(ENDS, ["a", "b", "c", "b", "d"], 2, never, [0] * 5))
    assert [found[number] and found[number].strip() for number in range(5)] == ["a", None, "c", None, "d"]


def test_no_process_is_started_without_a_task(monkeypatch):
    started, start = [], process_pool._start
    monkeypatch.setattr(process_pool, "_start", lambda program: started.append(program) or start(program))
    assert len(dict(work_through(ECHO, ["a", "b"], 5, never))) == len(started) == 2


def test_a_program_that_does_not_even_start_answers_nothing():
    assert dict(work_through("raise SystemExit(1)", ["a", "b"], 2, never)) == {0: None, 1: None}


@pytest.mark.slow
def test_each_process_has_one_thread_and_none_is_left_after_an_interruption():
    found = dict(work_through(ENVIRONMENT, ["NUMBA_NUM_THREADS"], 4, never))
    assert found[0].strip() == "1"
    slow = "from p2pkm.experiments.studies.process_pool import serve; import os, time; serve(lambda t: time.sleep(60))"
    asked = iter([False, False, True])
    assert list(work_through(slow, ["a", "b"], 2, lambda: next(asked))) == []
    with contextlib.suppress(ChildProcessError):
        assert os.waitpid(-1, os.WNOHANG) == (0, 0)
