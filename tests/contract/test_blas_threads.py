"""No bit of a result depends on how many threads BLAS, LAPACK and OpenMP have."""

import json
import multiprocessing
import subprocess
import sys
import threading
from functools import cache

import numpy as np
import pytest

import p2pkm
from p2pkm.core.fixed_order import diagonalize, multiply
from tests.support.programs import blas_threads as program
from tests.support.run_cli import environment, here, ranks, there
from topologies.single_thread import single_thread

FORCED = {"OPENBLAS_CORETYPE": "Haswell"}  # its kernels give other bits on two threads, those of AVX-512 seldom do
WORDS = ("--algorithm", "ffcm1", "--devices", "5", "--data", "digits:components=5", "--clusters", "5", "--partition",
         "blocks", "--rounds", "2", "--seed", "586", "--out", "none", "--format", "json", "-q")  # fmt: skip


def start(*groups, before=(sys.executable,), **more):
    """Return the digests that the program prints in a process of its own."""
    command = [*before, program.__file__, *groups]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(**more), timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@cache
def threads(count, *groups):
    """Return the digests with so many threads of BLAS."""
    given = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(count))
    return start(*groups, **given, **FORCED)


def counts():
    """Return how many threads each library has."""
    from threadpoolctl import threadpool_info

    return [library["num_threads"] for library in threadpool_info()]


@pytest.mark.slow
def test_sources_have_the_same_bits_on_two_threads_of_another_kernel():
    assert threads(2, "sources") == program.digests(["sources"])


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("group", program.GROUPS)
def test_everything_has_the_same_bits_on_one_and_on_two_threads(group):
    one, two = threads(1, group), threads(2, group)
    assert [name for name in one if one[name] != two[name]] == []
    assert len(one) == len(program.GROUPS[group]())


@pytest.mark.mpi
@pytest.mark.timeout(1200)
def test_three_ranks_have_the_bits_of_one_process_on_two_threads():
    # A source is generated alike on all ranks, without a message; test_pairs.py plays initializations on ranks, and
    # test_determinism.py all methods: this is a third of these.
    found = start("methods/3", before=(*ranks(3)[-4:-1], sys.executable), OPENBLAS_NUM_THREADS="1", **FORCED)
    expected = threads(2, "methods")  # which the slow test above has computed
    assert found and [name for name in found if found[name] != expected[name]] == []


@pytest.mark.mpi
def test_principal_components_are_dealt_alike_to_three_ranks(tmp_path):
    given = FORCED | {"OPENBLAS_NUM_THREADS": "2"}
    alone = there(sys.executable, "-m", "p2pkm", *WORDS, cwd=tmp_path, **given).summary
    spread = there(*ranks(3), "-m", "p2pkm", *WORDS, cwd=tmp_path, **FORCED).summary
    assert alone["chain_sha256"] == spread["chain_sha256"] == here(*WORDS).summary["chain_sha256"]


@pytest.mark.parametrize("where", ["main thread", "other thread"])
def test_the_limit_holds_inside_and_ends_outside(where):
    import scipy.linalg  # noqa: F401 - brings a library of its own
    from threadpoolctl import ThreadpoolController

    seen = {}

    def look():
        with single_thread("sklearn.metrics"):
            seen["inside"] = counts()
            with single_thread():
                seen["twice"] = counts()
            seen["left"] = counts()
        seen["outside"] = counts()

    with ThreadpoolController().limit(limits=3):  # this thread may then keep all others from setting a limit
        if where == "main thread":
            look()
        else:
            run = threading.Thread(target=look)
            run.start()
            run.join()
        assert set(seen["inside"]) == set(seen["twice"]) == set(seen["left"]) == {1}
        assert 1 not in [have["num_threads"] for have in ThreadpoolController().info() if have["user_api"] == "blas"]


@pytest.mark.slow
def test_two_threads_do_not_lift_the_limit_of_each_other():
    begun, seen = threading.Barrier(2), []

    def work():
        begun.wait()
        for _ in range(50):
            with single_thread():
                seen.append(max(counts()))

    runs = [threading.Thread(target=work) for _ in range(2)]
    before = counts()
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert set(seen) == {1} and counts() == before


def test_an_error_inside_ends_the_limit():
    with single_thread():
        pass
    before = counts()
    with pytest.raises(np.linalg.LinAlgError), single_thread():
        np.linalg.inv(np.zeros((2, 2)))
    assert counts() == before


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, if another test has loaded it
def test_a_forked_process_does_not_wait_for_a_thread_that_it_does_not_have():
    inside, done = threading.Event(), threading.Event()

    def hold():
        with single_thread():
            inside.set()
            done.wait(20)

    run = threading.Thread(target=hold)
    run.start()
    inside.wait(20)
    child = multiprocessing.get_context("fork").Process(target=_enter)
    child.start()
    child.join(20)
    done.set()
    run.join()
    code = child.exitcode
    child.kill()
    assert code == 0


def _enter():
    with single_thread():
        pass


@pytest.mark.parametrize("n", [1, 2, 3, 8, 21])
def test_eigenvectors_in_fixed_order_are_those_of_lapack(n):
    drawn = np.random.default_rng(n).normal(size=(n, n))
    matrix = drawn + drawn.T
    values, vectors = diagonalize(matrix)
    assert np.allclose(values, np.linalg.eigvalsh(matrix)[::-1], rtol=0, atol=1e-12)
    assert np.allclose(vectors @ matrix @ vectors.T, np.diag(values), atol=1e-12)
    assert np.allclose(vectors @ vectors.T, np.eye(n), atol=1e-14)


def test_eigenvectors_of_a_diagonal_matrix_are_unit_vectors():
    values, vectors = diagonalize(np.diag([1.0, 0.0, 5.0, 0.0]))
    assert values.tolist() == [5.0, 1.0, 0.0, 0.0]
    assert vectors.tolist() == np.eye(4)[[2, 0, 1, 3]].tolist()
    assert diagonalize(np.zeros((0, 0)))[0].shape == (0,)


def test_a_product_adds_in_ascending_order():
    a, b = np.array([[1e16, 1.0, -1e16, 1.0]]), np.ones((4, 1))
    assert multiply(a, b).tolist() == [[1.0]]
    drawn = np.random.default_rng(0).normal(size=(2, 5, 5))
    assert np.allclose(multiply(*drawn), drawn[0] @ drawn[1])


@pytest.mark.parametrize("components", [1, 10, 61])
@pytest.mark.sample(3)
def test_principal_components_of_digits_are_those_of_singular_values(components):
    pixels, _ = p2pkm.digits()
    centered = pixels - pixels.mean(axis=0)
    axes = np.linalg.svd(centered, full_matrices=False)[2][:components]
    axes *= np.sign(axes[np.arange(components), np.abs(axes).argmax(axis=1)])[:, None]
    assert np.allclose(p2pkm.digits(components=components)[0], centered @ axes.T, rtol=0, atol=1e-10)


def test_the_program_lists_every_source_method_and_initialization():
    assert set(program.WIDE) <= set(program.SOURCES)
    assert {*program.METHODS} <= set(program.methods()) and set(program.INITS) == set(program.initializations())
