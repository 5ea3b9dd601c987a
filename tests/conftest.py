"""Properties have no time limit: the first example of a file reads compiled kernels. Ctrl-C works in all children."""

import contextlib
import gc
import importlib
import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from p2pkm.kernels import compile_ahead
from tests.support.run_cli import MPIRUN, NO_MPIRUN, SLEEPING_THREADS

TESTS = Path(__file__).parent
settings.register_profile("quick", deadline=None, max_examples=10)
settings.register_profile("full", deadline=None)
settings.load_profile("quick")
os.environ["P2PKM_COMPILE_AHEAD"] = "0"  # tests leave no process that compiles; those of it set another value
os.environ.update(SLEEPING_THREADS | os.environ)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it


def pytest_sessionstart(session):
    """Two workers share the compilation of the kernels: one begins with the first, the other with the last."""
    worker = getattr(session.config, "workerinput", {}).get("workerid", "")
    if worker in {"gw0", "gw1"}:
        compile_ahead(lock=False, backwards=worker == "gw1")
    if worker == "gw1" and [Path(name).resolve() for name in session.config.args] == [TESTS]:
        _import_backwards()


def _import_backwards():
    """Import all tests from the last one: of a new checkout each worker then writes half of the bytecode for both."""
    for path in sorted(TESTS.rglob("test_*.py"), reverse=True):
        # Collection says what is wrong with a module that cannot be imported, or skips it.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect without the garbage collector, and let it never look at what was collected: that stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave all cases of a test to the slow tests but one of every n, where it is marked with sample(n)."""
    sampled = {}
    for item in items:
        if (mark := item.get_closest_marker("sample")) and not item.get_closest_marker("slow"):
            sampled.setdefault((item.parent.nodeid, item.originalname), (mark.args[0], []))[1].append(item)
    for every, cases in sampled.values():
        kept = [case for case in cases if _position(case) % every == 0]
        for case in cases:
            if case not in (kept or cases[:1]):
                case.add_marker(pytest.mark.slow)


def _position(case):
    """Return the sum of the places of a case in the lists of its parameters: of two lists a sample has all entries."""
    names = set(case.callspec.indices)
    for mark in case.iter_markers("parametrize"):
        together = mark.args[0].replace(" ", "").split(",") if isinstance(mark.args[0], str) else mark.args[0]
        names -= set(together[1:])  # they have the place of the first
    return sum(case.callspec.indices[name] for name in names)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give all tests of a file to one worker, unless --dist says otherwise: what they share is made once."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log) if config.getoption("dist") == "load" else None


def pytest_runtest_setup(item):
    if MPIRUN is None and item.get_closest_marker("mpi"):
        pytest.skip(NO_MPIRUN)
