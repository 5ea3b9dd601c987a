"""A run over two hosts, which share nothing but a cable; skipped where there can be no network namespaces."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.hosts import lacking, two_hosts
from tests.support.programs import shared
from tests.support.run_cli import StageResult, environment, here

ENDLESS = "--devices 4 --data grid16:points=100 --no-baselines --rounds 1000000 --all-rounds --no-plot -q".split()
OPTIONS = ("--graph", "grid", "--devices", "6", "--data", "grid16:points=10", "--rounds", "30", "--no-plot", "-q")
HERE = Path(sys.executable).parent
PATH = f"{HERE}:{os.environ['PATH']}"
MPIRUN = shutil.which("mpirun", path=PATH)


def why_not():
    """Return why this cannot be tried, or nothing."""
    if MPIRUN is None:
        return "no mpirun beside the interpreter or on PATH"
    done = subprocess.run([MPIRUN, "--version"], capture_output=True, text=True, timeout=30, check=False)
    return lacking() if "HYDRA" in done.stdout else "the hosts are told in MPICH's way"


pytestmark = [pytest.mark.system, pytest.mark.skipif(bool(reason := why_not()), reason=reason)]


@pytest.fixture
def hosts(tmp_path):
    with two_hosts(tmp_path) as made:
        yield made


def begin(hosts, folder, *words, **more):
    """Start a command on the first host, with an end in any case: a network that fails makes mpirun wait for ever."""
    command = ["timeout", "-k", "2", "100", *hosts.command(folder, *words)]
    env = environment(PATH=PATH, **hosts.settings(), **more)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def wait(process):
    out, err = process.communicate(timeout=110)
    return StageResult(process.returncode, out, err)


def start(hosts, folder, *words, **more):
    """Start p2pkm with two ranks on each host."""
    return begin(hosts, folder, MPIRUN, "-f", hosts.file, "-n", "4", sys.executable, *words, **more)


def test_the_hosts_are_two(hosts, tmp_path):
    script = (
        r"from mpi4py import MPI; import os; os.write(1, b'%d %s\n' % (MPI.COMM_WORLD.rank, os.uname()[1].encode()))"
    )
    ending = wait(start(hosts, tmp_path, "-c", script))
    assert ending.code == 0, ending.err
    names = [line.split()[1] for line in sorted(ending.out.splitlines())]
    assert names[0] == names[1] != names[2] == names[3]


def test_two_hosts_end_with_the_bits_of_one_process(hosts, tmp_path):
    ending = wait(start(hosts, tmp_path, "-m", "p2pkm", *OPTIONS, "--out", tmp_path / "two"))
    assert ending.code == 0, ending.err
    assert here(*OPTIONS, "--out", tmp_path / "one").code == 0
    two, one = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("two", "one"))
    assert two["ranks"] == 4
    assert (two["chain_sha256"], two["centroids_sha256"]) == (one["chain_sha256"], one["centroids_sha256"])
    assert two["bytes"] == one["bytes"]


def test_each_host_holds_the_graph_once(hosts, tmp_path):
    ending = wait(start(hosts, tmp_path, shared.__file__, "all"))
    assert ending.code == 0, ending.err
    lines = sorted(map(json.loads, ending.out.splitlines()), key=lambda line: line["rank"])
    private = dict.fromkeys((*shared.NAMES, "parent", "layer"), 0)
    assert [(line["rank"], line["private"]) for line in lines] == [(rank, private) for rank in range(4)]
    one = here(*map(str, shared.WORDS)).summary
    assert (one["chain_sha256"], one["bytes"]) == tuple(lines[0]["summary"][name] for name in ("chain_sha256", "bytes"))


def test_a_rank_killed_on_the_far_host_ends_all_at_once(hosts, tmp_path):
    mark = f"P2PKM_TEST={tmp_path}"
    process = start(hosts, tmp_path, "-m", "p2pkm", *ENDLESS, "--out", tmp_path / "run", P2PKM_TEST=str(tmp_path))
    try:
        rounds = tmp_path / "run/rounds.jsonl"
        until = time.monotonic() + 60
        while not (rounds.is_file() and rounds.stat().st_size) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        os.kill(find(mark, "PMI_RANK=3"), signal.SIGKILL)
        began = time.monotonic()
        ending = wait(process)
    finally:
        process.kill()
    assert time.monotonic() - began < 10
    assert ending.code not in {0, 124, 137}  # neither well nor by the limit of this test
    assert "BAD TERMINATION" in ending.out
    while (left := find(mark, "PMI_RANK=")) is not None and time.monotonic() - began < 20:
        time.sleep(0.1)
    assert left is None


def find(*marks):
    """Return a process with these words in its environment."""
    for folder in Path("/proc").iterdir():
        try:
            words = (
                (folder / "environ").read_bytes().decode(errors="replace").split("\0") if folder.name.isdigit() else []
            )
        except OSError:
            continue
        if all(any(word.startswith(mark) for word in words) for mark in marks):
            return int(folder.name)
    return None


def test_the_doctor_tries_the_hosts_of_a_file(hosts, tmp_path):
    doctor = (sys.executable, "-m", "p2pkm", "doctor", "--hostfile")
    ending = wait(begin(hosts, tmp_path, *doctor, hosts.file))
    assert ending.code == 0, ending.out + ending.err
    assert "2 hosts for 4 ranks: 10.213.77.1, 10.213.77.2; a rank on each sees the others" in ending.out
    wrong = tmp_path / "wrong"
    wrong.write_text("10.213.77.1:2\n10.213.77.3:2\n")
    ending = wait(begin(hosts, tmp_path, *doctor, wrong))
    assert ending.code == 4
    [line] = [line for line in ending.out.splitlines() if line.startswith("fail")]
    assert "No route to host" in line and "ssh must reach each host without a question" in line
