"""The same bits in one process and on any number of MPI ranks, with the plain and with the compiled kernels."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import p2pkm
import p2pkm.engine.build_batch
from p2pkm.kernels import compile_ahead, select_kernels
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from tests.support.programs import determinism as same_bits_program
from tests.support.run_cli import MPIRUN, NO_MPIRUN

PROGRAM = Path(same_bits_program.__file__)
LIMIT = 900  # seconds for one mpirun, of 16 ranks on 2 cores, too: a hang is how an exchange fails
# First of the runs that are played on a number of ranks, and the step to the next: each is played on two or on three,
# and a share on others, since on 16 ranks of two cores a run takes ten times as long.
SHARES = {1: (0, 16), 2: (0, 2), 3: (1, 2), 5: (2, 16), 16: (3, 32)}
RANKS = pytest.mark.parametrize("ranks", SHARES)


def start(ranks, what, program=PROGRAM, limit=LIMIT):
    """Run the program on so many ranks; return its lines."""
    if MPIRUN is None:
        pytest.skip(NO_MPIRUN)
    command = [MPIRUN, "-n", str(ranks), sys.executable, "-W", "error", str(program), what]
    environment = os.environ | {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpirun ends its ranks; killed, it would leave them running
        output, errors = process.communicate(timeout=20)
        pytest.fail(f"{ranks} ranks did not end within {limit} s: {errors[-3000:]}")
    assert process.returncode == 0, errors[-3000:]
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert lines
    assert not [line for line in lines if line.pop("ranks") != ranks]
    return lines


@cache
def in_process():
    """Return the records of all runs with the compiled kernels, which a process that has imported numba selects."""
    compile_ahead()
    assert select_kernels(1, 1, 1) is compiled
    return list(same_bits_program.runs())


@cache
def on_ranks(ranks):
    """Return the records of a share of the runs, of the exchanges, and of runs whose points change.

    These are played on 16 ranks alone, after the others; all on one mpirun, for starting 16 ranks takes seconds.
    """
    first, step = SHARES[ranks]
    what = f"runs {first} {step}; messages"
    lines = start(ranks, f"{what}; streams" if ranks == 16 else what)
    played = [line for line in lines if "wrong" not in line]
    count = len(in_process()[first::step])
    return played[:count], [line for line in lines if "wrong" in line], played[count:]


@pytest.mark.mpi
@pytest.mark.timeout(1000)
@RANKS
def test_every_number_of_ranks_gives_the_same_bits(ranks):
    first, step = SHARES[ranks]
    (found, *_), expected = on_ranks(ranks), in_process()[first::step]
    assert [line["name"] for line in found] == [line["name"] for line in expected]
    assert [(one, other) for one, other in zip(found, expected, strict=True) if one != other] == []


@pytest.mark.mpi
@pytest.mark.timeout(1000)
def test_streams_are_the_same_on_a_rank_for_each_device():
    """On two, three and five ranks they are among the runs above."""
    *_, found = on_ranks(16)
    streamed = same_bits_program.with_streams(same_bits_program.STREAMED)
    assert found == list(same_bits_program.runs(streamed)) and len(found) == 7


@pytest.mark.mpi
def test_ranks_without_devices_give_the_same_bits():
    """Of each method; the shares above hold only some of them."""
    found = start(8, "few")
    assert found == list(same_bits_program.of_few_devices())


@pytest.mark.mpi
@pytest.mark.timeout(1000)
@RANKS
def test_mail_is_heard_alike_on_every_number_of_ranks(ranks):
    _, lines, _ = on_ranks(ranks)
    assert [line for line in lines if line["wrong"] or line["kept"]] == []
    assert len(lines) == 24
    assert (sum(line["requests"] for line in lines) > 0) == (ranks > 1)


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_plain_and_compiled_kernels_give_the_same_bits(monkeypatch):
    monkeypatch.setattr(p2pkm.engine.build_batch, "select_kernels", lambda *size: plain)
    by_numpy = list(same_bits_program.runs())
    monkeypatch.undo()
    assert by_numpy == in_process()


@pytest.mark.slow
def test_the_runs_differ_from_each_other_and_the_seed_matters():
    lines = in_process()
    assert len({line["chain_sha256"] for line in lines}) == len(lines)
    name, graph, shards, algorithm, options = next(same_bits_program.configurations())
    chains = {
        p2pkm.simulate(algorithm, graph, shards, seed=seed, **options).summary["chain_sha256"] for seed in (5, 5, 6)
    }
    assert name == lines[0]["name"]
    assert len(chains) == 2
