"""Libraries that do not survive a fork: a child refuses them or goes without, and never waits for its parent."""

import sys
import types

import pytest

from p2pkm.core.errors import ExperimentError
from p2pkm.core.fork import is_inherited
from p2pkm.deep.training import require_jax
from p2pkm.network.local import LocalWorld
from p2pkm.network.world import connect
from tests.support.fork import run_in_fork

# of JAX, if another test has loaded it
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")


@pytest.mark.parametrize("library", ["jax", "mpi4py.MPI"])
def test_a_child_knows_what_its_parent_had_loaded(monkeypatch, library):
    monkeypatch.delitem(sys.modules, library, raising=False)
    assert run_in_fork(lambda: not is_inherited(library)) == 0
    monkeypatch.setitem(sys.modules, library, types.ModuleType(library))
    assert run_in_fork(lambda: is_inherited(library)) == 0
    assert not is_inherited(library)


def test_a_fork_refuses_the_jax_of_its_parent_and_names_what_works(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", types.ModuleType("jax"))

    def require():
        with pytest.raises(ExperimentError, match="get_context\\('spawn'\\)"):
            require_jax()
        return True

    assert run_in_fork(require) == 0


def test_a_fork_of_a_rank_is_a_world_of_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", types.ModuleType("mpi4py.MPI"))
    connect.cache_clear()
    try:
        before = connect()

        def is_alone():
            monkeypatch.setenv("PMI_SIZE", "4")
            world = connect()
            return isinstance(world, LocalWorld) and world is not before

        assert run_in_fork(is_alone) == 0
        assert connect() is before
    finally:
        connect.cache_clear()
