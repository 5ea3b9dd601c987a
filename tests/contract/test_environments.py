"""The surroundings of a run decide nothing: threads, locale, time zone, optimized bytecode, kind of processor."""

import json
import subprocess
import sys

import pytest

import p2pkm.engine.build_batch
from p2pkm import kernels
from p2pkm.core.errors import ExperimentError
from p2pkm.core.mpi_environment import check_threads
from tests.support.programs import commands
from tests.support.run_cli import StageResult, here, ranks, there
from tests.support.run_cli import environment as surroundings

BRIEFLY = ("--rounds", "2", "--no-plot", "-q")
LARGE = (*BRIEFLY, "--devices", "30", "--data", "grid16:points=60")  # compiled kernels
RUNS = {
    "groups": (*LARGE, "--groups", "--graph", "complete", "--scale", "standard"),
    "summaries": (*LARGE, "--init", "flooded-summaries:candidates=3", "--silhouette", "--faults", "loss=0.1"),
    "ffcm2": (*LARGE, "--algorithm", "ffcm2"),
    "cells": ("--no-plot", "-q", "--algorithm", "private:epsilon=4,radius=60,noise_seed=0",
              "--data", "blobs:features=3,clusters=3,points=600",
              "--devices", "6", "-k", "3"),
    "k": (*LARGE, "-k", "auto"),
    "threads": (*BRIEFLY, "--devices", "20", "--data", "grid16:points=3000", "--init", "local", "--no-baselines"),
}  # fmt: skip
DIGESTS = ("centroids_sha256", "chain_sha256", "bytes", "messages", "objective", "ratio_mean", "ari", "silhouette",
           "k_verdict", "k_indices")  # fmt: skip
WIDE = "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"  # X86_V4: from NumPy 2.4 on
ENVIRONMENTS = {
    "one thread": {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    "seven threads": {"NUMBA_NUM_THREADS": "7", "OMP_NUM_THREADS": "7", "OPENBLAS_NUM_THREADS": "7"},
    "threads that are none": {"OMP_NUM_THREADS": "0", "NUMBA_NUM_THREADS": "many"},
    "locale C": {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0"},
    "a decimal comma": {"LC_ALL": "de_DE.UTF-8", "LC_NUMERIC": "de_DE.UTF-8"},
    "Turkish": {"LC_ALL": "tr_TR.UTF-8"},
    "time zone": {"TZ": "Pacific/Chatham"},
    "no assertions": {"PYTHONOPTIMIZE": "1"},
    "no docstrings": {"PYTHONOPTIMIZE": "2"},
    "hashes": {"PYTHONHASHSEED": "12345"},
    "no vectors of 512 bits": {"NPY_DISABLE_CPU_FEATURES": WIDE, "OPENBLAS_CORETYPE": "Haswell"},
    "no vectors of 256 bits": {"NPY_DISABLE_CPU_FEATURES": f"X86_V3 AVX2 FMA3 {WIDE}", "OPENBLAS_CORETYPE": "Nehalem"},
    "a plain processor": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
    "nothing compiled": {"NUMBA_DISABLE_JIT": "1"},
}  # fmt: skip
BRIEF = {  # which runs where everything is compiled anew, or nothing is
    "no assertions": ("ffcm2", "threads"),
    **dict.fromkeys(("no docstrings", "a plain processor", "nothing compiled"), ("ffcm2",)),
}
OWN_CACHE = {"a plain processor"}  # what is compiled so is not for others


def run(names, cwd, **environment):
    """Return what the runs say of their bits, all in one process of their own: its imports take longer than a run."""
    words = [[*RUNS[name], "--out", "none", "--format", "json"] for name in names]
    command = [sys.executable, commands.__file__, json.dumps(words)]
    given = {"env": surroundings(**environment), "cwd": cwd, "timeout": 600, "check": False}
    done = subprocess.run(command, capture_output=True, text=True, **given)
    assert done.returncode == 0, done.stderr
    found = {}
    for name, line in zip(names, done.stdout.splitlines(), strict=True):
        summary = StageResult(*json.loads(line)).summary
        found[name] = {key: summary[key] for key in DIGESTS}
    return found


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """Return what the runs say in the environment of this process."""
    return run(tuple(RUNS), tmp_path_factory.mktemp("usual"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_no_bit_depends_on_the_environment(name, usual, tmp_path):
    names, given = BRIEF.get(name, tuple(RUNS)), dict(ENVIRONMENTS[name])
    if name in OWN_CACHE:
        given["NUMBA_CACHE_DIR"] = str(tmp_path)
    assert run(names, tmp_path, **given) == {one: usual[one] for one in names}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("no vectors of 512 bits", ("X86_V4", "AVX512")), ("no vectors of 256 bits", "")]
)
def test_numpy_does_without_the_vectors_that_it_is_told_to(name, kind, tmp_path):
    code = ("from numpy._core import _multiarray_umath as m;"
            "print(*(x for x in m.__cpu_dispatch__ if m.__cpu_features__[x]))")  # fmt: skip
    taken = there(sys.executable, "-c", code, cwd=tmp_path, **ENVIRONMENTS[name]).out.split()
    assert not [one for one in taken if one.startswith(kind)]


def test_without_compiling_the_plain_kernels_are_taken(monkeypatch):
    from p2pkm.kernels import numba as compiled
    from p2pkm.kernels import reference as plain

    assert kernels.load() is compiled
    for given, kind in (("1", plain), ("0", compiled), ("", compiled), ("x", compiled), (" 2 ", plain)):
        monkeypatch.setenv("NUMBA_DISABLE_JIT", given)
        assert kernels.load() is kernels.select_kernels(1, 100, 10**9) is kind
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    ending = here("compile")
    assert ending.code == 0 and "runs use the kernels without compilation" in ending.out


@pytest.mark.mpi
def test_without_compiling_on_ranks(usual, tmp_path):
    words = ("-m", "p2pkm", *RUNS["ffcm2"], "--out", "none", "--format", "json")
    ending = there(*ranks(2), *words, cwd=tmp_path, NUMBA_DISABLE_JIT="1")
    assert {name: ending.summary[name] for name in DIGESTS} == usual["ffcm2"]


@pytest.mark.slow
@pytest.mark.parametrize("given", ["0", "-3", " 00 "])
def test_a_number_of_threads_that_numba_refuses(monkeypatch, given):
    monkeypatch.setenv("NUMBA_NUM_THREADS", given)
    ending = here(*LARGE, "--out", "none")
    assert ending.code == 2 and f"NUMBA_NUM_THREADS is {given.strip()}; expected at least 1" in ending.err
    assert here("compile").code == 2
    with pytest.raises(ExperimentError, match="NUMBA_NUM_THREADS"):
        p2pkm.engine.build_batch.select_kernels(1, 1000, 10**9)
    checks = json.loads(here("doctor", "--format", "json").out)["checks"]
    (found,) = (check for check in checks if check["check"] == "kernels")
    assert found["status"] == "warn" and "NUMBA_NUM_THREADS" in found["found"] and "set it to 1" in found["advice"]
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # then nobody asks numba
    assert kernels.load() is not sys.modules["p2pkm.kernels.numba"]
    assert here(*LARGE, "--algorithm", "local", "--no-baselines", "--out", "none").code == 0


@pytest.mark.parametrize("given", ["1", "64", "many", ""])
def test_a_number_of_threads_that_numba_takes(monkeypatch, given):
    monkeypatch.setenv("NUMBA_NUM_THREADS", given)
    check_threads()


@pytest.mark.mpi
def test_a_number_of_threads_that_numba_refuses_on_ranks(tmp_path):
    ending = there(*ranks(3), "-m", "p2pkm", *LARGE, "--out", "none", cwd=tmp_path, NUMBA_NUM_THREADS="0")
    assert ending.code == 2 and ending.err.count("NUMBA_NUM_THREADS is 0") == 1 and "Traceback" not in ending.err


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["0", "1"])
def test_a_script_and_numba_that_cannot_be_used(tmp_path, threads):
    code = ("import p2pkm, topologies; X, _ = p2pkm.grid16(points=60, seed=0);"
            "s = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 30, seed=0), devices=30);"
            "p2pkm.simulate(p2pkm.GTVMin(16), topologies.ring(30), s, rounds=1)")  # fmt: skip
    ending = there(sys.executable, "-c", code, cwd=tmp_path, NUMBA_NUM_THREADS=threads)
    assert (ending.code != 0) == (threads == "0")
    assert ("p2pkm.core.errors.ExperimentError: NUMBA_NUM_THREADS is 0" in ending.err) == (threads == "0")


def test_many_small_runs_of_a_process_are_worth_numba(monkeypatch):
    from p2pkm.kernels import numba as compiled
    from p2pkm.kernels import reference as plain

    monkeypatch.delitem(sys.modules, "numba")
    monkeypatch.setattr(kernels, "starts_compilation", lambda dtype: False)
    monkeypatch.setattr(kernels, "_stays_plain", lambda dtype: True)
    monkeypatch.setattr(kernels, "_compiled_types", set())
    monkeypatch.setattr(kernels, "_plain_so_far", 0)
    picked = [kernels.select_kernels(1, 16, kernels._SMALL_ALONE // 2) for _ in range(3)]
    assert picked == [plain, plain, compiled]
    assert kernels.select_kernels(2, 1, kernels._SMALL_ALONE) is plain


def test_small_runs_on_float32_do_not_wait_for_its_compilation(monkeypatch):
    from p2pkm.kernels import numba as compiled
    from p2pkm.kernels import reference as plain

    monkeypatch.setattr(kernels, "starts_compilation", lambda dtype: False)
    monkeypatch.setattr(kernels, "_stays_plain", lambda dtype: True)
    monkeypatch.setattr(kernels, "_plain_so_far", 0)
    monkeypatch.setattr(kernels, "_compiled_types", set())

    def select(work, dtype):
        return kernels.select_kernels(1, 16, work, dtype)

    assert select(10, "float64") is compiled and select(10, "float32") is plain
    assert select(kernels._SMALL_ALONE + 1, "float32") is compiled and select(10, "float32") is compiled
