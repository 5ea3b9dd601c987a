"""The doctor: finds what is there, and what is wrong when something is made wrong."""

import json
import os
import shutil
import subprocess
import sys
from mmap import mmap
from pathlib import Path
from types import SimpleNamespace

import pytest

from p2pkm.cli import doctor
from p2pkm.cli.doctor import checks as findings
from p2pkm.cli.doctor import cluster as clusters
from p2pkm.cli.doctor import hostfile
from p2pkm.cli.doctor.hostfile import check_hosts
from p2pkm.cli.main import main
from p2pkm.core.errors import ExperimentError
from p2pkm.kernels import numba as compiled
from tests.support.run_cli import MPIRUN
from tests.support.sampling import thin

HERE = Path(sys.executable).parent
SETTINGS = ("PMI", "OMPI_", "PRTE_", "SLURM_", "MPIR_", "MPI_LOCAL", "MPI4PY_")
ALONE = """#!/usr/bin/env bash
[ "$1" = --version ] && {{ echo "{version}"; exit 0; }}
[ "$1" = -n ] && shift 2
"$@"; "$@"
"""  # starts two processes that know nothing of each other: the mpirun of another MPI


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """Take away what would change the findings, and put the interpreter's folder first, as `activate` does."""
    for name in list(os.environ):
        if name.startswith(SETTINGS) or name.endswith("_NUM_THREADS"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{HERE}:{os.environ['PATH']}")


def examine(capsys, code=0):
    """Run the command with JSON output; return {check: (status, found, advice)}."""
    assert main(["doctor", "--format", "json"]) == code
    [line] = capsys.readouterr().out.splitlines()
    checks = json.loads(line)["checks"]
    assert not [check for check in checks if list(check) != ["status", "check", "found", "advice"]]
    assert len({check["check"] for check in checks}) == len(checks)
    return {check["check"]: (check["status"], check["found"], check["advice"]) for check in checks}


def only(monkeypatch, *names):
    """Look at these checks of the machine without starting MPI in another process."""
    monkeypatch.setattr(
        doctor, "check_library", lambda: doctor.Check("ok", "mpi library", names[0] if names else "MPICH")
    )
    monkeypatch.setattr(doctor, "check_pair", lambda library: doctor.Check("ok", "mpirun -n 2", "not tried"))
    monkeypatch.setattr(doctor, "check_launcher", lambda: doctor.Check("ok", "mpirun", "not looked for"))


def stand_in(monkeypatch, folder, text):
    """Put an mpirun of this text before all others."""
    path = folder / "mpirun"
    path.write_text(text)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return path


def start(command, folder=None, **more):
    return subprocess.run(
        ["timeout", "-k", "2", "60", *command],
        cwd=folder, capture_output=True, text=True, timeout=90, env=os.environ | more, check=False,
    )  # fmt: skip


@pytest.mark.mpi
def test_a_sound_machine_passes(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "warn"}
    assert any(line.startswith("ok    mpirun -n 2   one world of 2 ranks") for line in lines)
    assert len(lines) >= 10


@pytest.mark.mpi
def test_names_of_python_library_and_launcher(capsys):
    from importlib.metadata import version

    found = examine(capsys)
    assert found["python"][1] == f"Python {sys.version.split()[0]}, p2pkm {version('p2pkm')}"
    assert str(shutil.which("mpirun")) in found["mpirun"][1]
    assert "mpi4py.MPI" not in sys.modules  # asked in another process


def test_without_mpi4py_it_says_how_to_install_mpi(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    found = examine(capsys, 4)
    assert found["mpi library"] == (
        "fail", "mpi4py is not installed; one process works without", 'pip install "p2pkm[mpich]"'
    )  # fmt: skip
    assert found["kernels"][0] in {"ok", "warn"}
    assert "mpirun -n 2" not in found


def test_without_a_library_it_says_how_to_install_mpi(capsys, monkeypatch):
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nonexistent")
    status, found, advice = examine(capsys, 4)["mpi library"]
    assert (status, advice) == ("fail", 'pip install "p2pkm[mpich]"')
    assert "one process works without" in found


@pytest.mark.mpi
def test_a_launcher_of_another_mpi_is_found_out(capsys, monkeypatch, tmp_path):
    path = stand_in(monkeypatch, tmp_path, ALONE.format(version="mpirun (Open MPI) 5.0.11"))
    found = examine(capsys, 4)
    assert found["mpirun"][:2] == ("ok", f"{path} (Open MPI)")
    status, text, advice = found["mpirun -n 2"]
    assert status == "fail"
    assert text.startswith(f"two worlds of size 1: {path}")
    assert "mpirun of the library" in advice


@pytest.mark.mpi
def test_a_launcher_that_refuses_is_quoted(capsys, monkeypatch, tmp_path):
    text = '#!/usr/bin/env bash\n[ "$1" = --version ] && { echo "mpirun (Open MPI) 5"; exit 0; }\n'
    stand_in(monkeypatch, tmp_path, text + 'echo "-----" >&2; echo "not enough slots" >&2; exit 1\n')
    status, found, advice = examine(capsys, 4)["mpirun -n 2"]
    assert (status, found) == ("fail", "did not run (not enough slots)")
    assert "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe" in advice
    assert ("OMPI_ALLOW_RUN_AS_ROOT=1" in advice) == (os.geteuid() == 0)


@pytest.mark.mpi
def test_a_launcher_whose_mpi_ends_the_library_is_named(capsys, monkeypatch, tmp_path):
    text = '#!/usr/bin/env bash\n[ "$1" = --version ] && { echo "mpirun (Open MPI) 5"; exit 0; }\n'
    path = stand_in(monkeypatch, tmp_path, text + 'echo "Abort(16): unsupported PMI version PMIx" >&2; exit 16\n')
    status, found, advice = examine(capsys, 4)["mpirun -n 2"]
    assert status == "fail" and found.startswith(f"{path} is of Open MPI, but mpi4py loads MPICH")
    assert "mpirun of the library" in advice


@pytest.mark.slow
@pytest.mark.mpi
def test_a_launcher_that_hangs_is_stopped(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(findings, "LIMIT", 2)
    stand_in(monkeypatch, tmp_path, '#!/usr/bin/env bash\n[ "$1" = --version ] && exit 0\nexec sleep 50\n')
    assert examine(capsys, 4)["mpirun -n 2"][1] == "did not run (no answer within 2 s)"


@pytest.mark.parametrize(
    ("version", "ended", "status", "found", "advice"),
    [
        ("HYDRA", ("together", ""), "ok", "one world of 2 ranks", ""),
        ("HYDRA", ("alone", ""), "fail", "two worlds of size 1: /bin/mpirun does not belong", findings.SAME),
        ("HYDRA", ("broken", "no slots"), "fail", "did not run (no slots)", findings.SAME),
        ("mpirun (Open MPI) 5", ("broken", "no slots"), "fail", "did not run (no slots)", "export PRTE_MCA"),
    ],
)
def test_what_a_trial_of_two_processes_says_of_the_launcher(monkeypatch, version, ended, status, found, advice):
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(doctor, "start_trial", lambda command: ended)
    monkeypatch.setattr(doctor, "run_command", lambda command: (0, version))
    check = doctor.check_pair("some library")
    assert (check.status, check.check) == (status, "mpirun -n 2")
    assert check.finding.startswith(found) and check.advice.startswith(advice) and bool(check.advice) == bool(advice)


@pytest.mark.parametrize("launched", [True, False])
def test_ranks_look_at_their_world_and_a_single_process_tries_a_pair(monkeypatch, launched):
    only(monkeypatch)
    monkeypatch.setattr(doctor, "check_world", lambda: doctor.Check("ok", "world", "not asked"))
    monkeypatch.setattr(doctor, "launched", lambda: launched)
    names = [check.check for check in doctor.examine()]
    assert names[3:6] == ["world" if launched else "mpirun -n 2", "yield", "cores"]


@pytest.mark.parametrize(("text", "name"), [("MPICH  Version: 5.0, of a day", "MPICH Version: 5.0"), (None, "")])
def test_a_rank_names_the_library_that_it_has_loaded(monkeypatch, text, name):
    monkeypatch.setattr(doctor, "launched", lambda: True)
    monkeypatch.setattr("p2pkm.network.world.connect", lambda: SimpleNamespace(library=lambda: text))
    assert doctor.check_library() == doctor.Check("ok", "mpi library", name)


def test_no_launcher_on_path(monkeypatch, tmp_path):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    check = doctor.check_launcher()
    assert (check.status, check.finding) == ("warn", "no mpirun or mpiexec on PATH")
    (tmp_path / "mpirun").touch()
    check = doctor.check_launcher()  # an environment that was not activated
    assert (check.status, check.advice) == ("warn", f"source {tmp_path / 'activate'}")


@pytest.mark.parametrize(
    ("settings", "status"),
    thin(
        [
            ({}, "ok"),
            ({"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}, "ok"),
            ({"OMP_NUM_THREADS": "9000"}, "warn"),
            ({"NUMBA_NUM_THREADS": "1", "MKL_NUM_THREADS": "many"}, "warn"),
            ({"OMP_NUM_THREADS": "1,2"}, "ok"),
            ({"OMP_NUM_THREADS": ",2"}, "warn"),
            ({"OMP_NUM_THREADS": "\N{SUPERSCRIPT TWO}"}, "warn"),
        ],
        2,
    ),
)
def test_threads(monkeypatch, settings, status):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    found = doctor.check_threads(1, 2)
    assert found.status == status
    assert not [(name, value) for name, value in settings.items() if f"{name}={value}" not in found.finding]


@pytest.mark.parametrize(("value", "status"), [("1", "ok"), ("0", "warn"), ("no", "warn"), (None, "ok")])
def test_yield_of_mpich(monkeypatch, value, status):
    if value is not None:
        monkeypatch.setenv("MPIR_CVAR_ENABLE_HEAVY_YIELD", value)
    found = doctor.check_yield("MPICH Version: 5.0.2")
    assert (found.status, found.finding) == (status, f"MPIR_CVAR_ENABLE_HEAVY_YIELD={value or '1 (set by p2pkm)'}")


def test_open_mpi_is_told_about_more_ranks_than_cores(capsys, monkeypatch):
    only(monkeypatch, "Open MPI v5.0.11")
    monkeypatch.setenv("OMPI_MCA_rmaps_base_oversubscribe", "1")
    advice = examine(capsys)["cores"][2]
    assert "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe" in advice
    assert "OMPI_MCA_rmaps_base_oversubscribe" not in advice  # is set already


@pytest.mark.slow
def test_kernels_not_compiled_yet(tmp_path):
    cold = start([sys.executable, "-m", "p2pkm", "doctor"], NUMBA_CACHE_DIR=str(tmp_path)).stdout
    assert f"0 of {len(compiled.__all__)} compiled in {tmp_path}" in cold
    assert "-> compile ahead, once: python -m p2pkm compile" in cold


@pytest.mark.slow
def test_kernels_are_known_to_be_compiled_after_the_advice_was_followed():
    command = [sys.executable, "-m", "p2pkm"]
    assert start([*command, "compile"]).returncode == 0
    count = len(compiled.__all__)
    assert f"ok    kernels       {count} of {count} compiled in " in start([*command, "doctor"]).stdout


def test_a_kernel_newer_than_the_cache_counts_as_not_compiled(tmp_path):
    def kernel():
        pass

    source = tmp_path / "some.py"
    code = kernel.__code__.replace(co_filename=str(source), co_name="kernel", co_firstlineno=7)
    function = SimpleNamespace(__code__=code)
    index = tmp_path / f"some.kernel-7.py{sys.version_info[0]}{sys.version_info[1]}.nbi"
    for path in (source, index):
        path.touch()
    os.utime(source, (100, 100))
    os.utime(index, (200, 200))
    assert doctor.is_cached(function, tmp_path)
    os.utime(source, (300, 300))
    assert not doctor.is_cached(function, tmp_path)


def test_what_is_advised_about_kernels_that_are_not_compiled(monkeypatch, tmp_path):
    kernel = SimpleNamespace(stats=SimpleNamespace(cache_path=tmp_path), py_func=None)
    monkeypatch.setattr(doctor, "load", lambda: SimpleNamespace(__all__=["one"], entry=lambda name: kernel))
    monkeypatch.setattr(doctor, "is_cached", lambda function, folder: False)
    found, advice = f"0 of 1 compiled in {tmp_path}", "compile ahead, once: python -m p2pkm compile"
    assert doctor.check_kernels() == doctor.Check("warn", "kernels", found, advice)
    kernel.stats.cache_path = tmp_path / "none"
    status, _, found, advice = doctor.check_kernels()
    assert status == "warn" and found.endswith("none, not writable") and "NUMBA_CACHE_DIR" in advice

    def fail():
        raise ExperimentError("numba is not installed; install it")

    monkeypatch.setattr(doctor, "load", fail)
    assert doctor.check_kernels() == doctor.Check("warn", "kernels", "numba is not installed", "install it")


@pytest.mark.slow
def test_kernels_that_are_not_to_be_compiled(tmp_path):
    done = start([sys.executable, "-m", "p2pkm", "doctor"], NUMBA_DISABLE_JIT="1")
    assert "warn  kernels       numba does not compile (NUMBA_DISABLE_JIT)" in done.stdout


def test_a_folder_that_is_gone(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    before = Path.cwd()
    os.chdir(gone)
    try:
        gone.rmdir()
        found = doctor.check_folder()
        assert clusters.check_file_system().finding == "not known: the current folder cannot be used"
    finally:
        os.chdir(before)
    assert (found.status, found.advice) == ("warn", "cd elsewhere")


def test_a_folder_that_cannot_be_written(capsys, monkeypatch):
    only(monkeypatch)
    monkeypatch.chdir("/proc")
    status, found, advice = examine(capsys)["folder"]
    assert status == "warn"
    assert found.endswith("in /proc, not writable")
    assert "--out" in advice


def test_too_little_memory(monkeypatch):
    assert doctor.check_memory(1).status == "ok"
    if not Path("/proc/meminfo").exists():
        assert doctor.check_memory(10**9).finding == "not known on this system"
        return
    status, _, found, advice = doctor.check_memory(10**9)
    assert status == "warn" and found.endswith("GB free") and advice.endswith("start fewer ranks")


def test_inside_a_slurm_job_it_names_the_trap(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("SLURM_NTASKS", "8")
    status, _, found, advice = clusters.check_slurm()
    assert (status, found) == ("ok", "in job 42, 8 tasks")
    assert "srun --mpi=pmi2" in advice
    assert "--mpi=none" in advice
    assert doctor.check_pair("MPICH").finding.startswith(
        "not tried"
    )  # an mpirun would start processes on the job's nodes


def test_an_unknown_format_is_refused(capsys):
    assert main(["doctor", "--format", "xml"]) == 2


@pytest.mark.mpi
def test_under_mpirun_rank_0_speaks_for_all(tmp_path):
    done = start([MPIRUN, "-n", "3", sys.executable, "-m", "p2pkm", "doctor"], tmp_path,
                 OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                 PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sum("3 of 3 ranks see each other" in line for line in lines) == 1
    assert len(lines) == len(set(lines)) == 13
    assert any("OMP_NUM_THREADS=1" in line for line in lines)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("step", "said", "advice"),
    [
        (
            {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0", "SLURM_JOB_ID": "42"},  # as srun --mpi=none has it
            "srun started 4 tasks, but each is alone (a world of size 1)", "-> start with: srun --mpi=p",
        ),
        (
            {"PMI_SIZE": "4", "PMI_RANK": "0"}, "the launcher started 4 processes, but each is alone",
            "-> use ",
        ),
    ],
)  # fmt: skip
def test_under_a_launcher_of_another_mpi_it_names_the_world_of_size_1(tmp_path, step, said, advice):
    done = start([sys.executable, "-m", "p2pkm", "doctor"], tmp_path, **step)
    assert done.returncode == 4
    [line] = [line for line in done.stdout.splitlines() if line.startswith("fail")]
    assert said in line and advice in line


def test_too_little_shared_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(clusters, "SHARED", tmp_path)
    free = {"bytes": 64e6}  # what docker gives
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free["bytes"]))
    found = clusters.check_shared_memory(1, 2)
    assert found.status == "warn" and "enough for 10 ranks" in found.finding and "--shm-size=1g" in found.advice
    free["bytes"] = 96e6
    found = clusters.check_shared_memory(1, 2)
    assert found.status == "ok" and "enough for 16 ranks" in found.finding
    free["bytes"] = 1e9
    assert clusters.check_shared_memory(16, 2).status == "ok"
    assert clusters.check_shared_memory(200, 2).status == "warn"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: (_ for _ in ()).throw(OSError))
    assert clusters.check_shared_memory(1, 2).finding == "not known on this system"


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not say what is mapped")
def test_segments_that_killed_runs_have_left(monkeypatch, tmp_path):
    monkeypatch.setattr(clusters, "SHARED", tmp_path)
    for name in ("mpich_shm_a", "mpich_shm_b_0", "mpich_shm_b_1", "other"):
        (tmp_path / name).write_bytes(bytes(1_000_000))
    with open(tmp_path / "mpich_shm_a", "r+b") as file, mmap(file.fileno(), 0):  # as a rank that runs has it
        found = clusters.check_shared_memory(1, 1)
    assert found.status == "warn" and found.finding.endswith("killed: 2, 2 MB")
    assert f"rm {tmp_path}/mpich_shm_*" in found.advice
    for path in tmp_path.glob("mpich_shm_*"):
        path.unlink()
    assert clusters.check_shared_memory(1, 1).status == "ok"


@pytest.mark.parametrize(("ranks", "cores", "status"), [(16, 2, "ok"), (17, 2, "warn"), (1, 1, "ok"), (64, 64, "ok")])
def test_far_more_ranks_than_cores(ranks, cores, status):
    found = clusters.check_crowd(ranks, cores, "MPICH")
    assert (found.status, found.check) == (status, "cores")
    assert ("start fewer" in found.advice) == (status == "warn")


@pytest.mark.parametrize(
    ("kind", "program", "found", "advice"),
    [
        ("ext4", False, "disks of this machine", ""),
        ("nfs4", False, "current folder on nfs4", ""),
        ("lustre", True, "program on lustre", "NUMBA_CACHE_DIR"),
    ],
)
def test_file_systems_on_a_network(monkeypatch, tmp_path, kind, program, found, advice):
    shared, own = tmp_path / "shared home", tmp_path / "own"
    for folder in (shared, own):
        folder.mkdir()
    mounts = tmp_path / "mounts"
    place = str(shared).replace(" ", "\\040")
    root = "/dev/a / ext4 rw 0 0\n"
    mounts.write_text(f"{root}server:/home {place} {kind} rw 0 0\n{root}")  # the longest path counts, in any order
    monkeypatch.setattr(clusters, "MOUNTS", mounts)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(shared if program else own))
    monkeypatch.chdir(own if program else shared)
    check = clusters.check_file_system()
    assert check.status == "ok" and found in check.finding and advice in check.advice
    assert bool(check.advice) == bool(advice)


def test_file_systems_of_a_system_without_mounts(monkeypatch, tmp_path):
    monkeypatch.setattr(clusters, "MOUNTS", tmp_path / "none")
    assert clusters.check_file_system().finding.startswith("disks of this machine")


def test_slurm_is_asked_for_its_default(monkeypatch, tmp_path):
    shown = "echo Configuration data; echo 'MpiDefault              = none'"
    for name, text in (("srun", "exit 1"), ("scontrol", shown)):
        path = stand_in(monkeypatch, tmp_path, f"#!/usr/bin/env bash\n{text}\n")
        path.rename(tmp_path / name)
    found = clusters.check_slurm()
    assert found.finding == "no job here, MpiDefault=none"
    assert "srun --mpi=pmi2" in found.advice


PARTS = """#!/usr/bin/env bash
[ "$1" = --version ] && {{ echo "{version}"; exit 0; }}
{rest}
"""


@pytest.mark.parametrize(
    ("version", "text", "found", "advice"),
    [
        ("HYDRA", "# nothing\n\n", "no line names a host", "hostfile.example"),
        ("HYDRA", "localhost slots=4\n", "line 1: 'localhost slots=4' is not in the format of MPICH", "HOST:8"),
        (
            "mpirun (Open MPI) 5",
            "\nlocalhost:4\n",
            "line 2: 'localhost:4' is not in the format of Open MPI",
            "HOST slots=8",
        ),
        ("HYDRA", "localhost:many\n", "line 1: 'many' ranks on localhost", "whole number"),
        ("HYDRA", "localhost:\N{SUPERSCRIPT TWO}\n", "line 1: '\N{SUPERSCRIPT TWO}' ranks on", "whole number"),
        ("HYDRA", f"localhost:{'9' * 5000}\n", "ranks on localhost", "whole number"),
        ("HYDRA", "localhost:0\n", "line 1: '0' ranks on localhost", "whole number"),
        ("HYDRA", "localhost:1\nno-such-host.invalid:2\n", "line 2: unknown host no-such-host.invalid", "address"),
        ("HYDRA", "two words\n", "line 1: 'two words' is not in the format", "HOST:8"),
        ("HYDRA", None, "cannot be read: No such file", "host file of mpirun"),
    ],
)
def test_wrong_host_files(monkeypatch, tmp_path, version, text, found, advice):
    stand_in(monkeypatch, tmp_path, PARTS.format(version=version, rest="exit 9"))
    file = tmp_path / "hosts"
    if text is not None:
        file.write_text(text)
    [check] = check_hosts(str(file))
    assert check.status == "fail" and found in check.finding and advice in check.advice


@pytest.mark.parametrize(
    ("rest", "status", "found"),
    [
        (
            'echo "[together]"; echo "$*" > {place}/words',
            "ok",
            "2 hosts for 6 ranks: localhost, 127.0.0.1; a rank on each",
        ),
        ('echo "[alone]"', "fail", "each rank is alone"),
        ('echo "Permission denied (publickey)" >&2; exit 255', "fail", "did not run (Permission denied (publickey))"),
    ],
)
@pytest.mark.parametrize("open_mpi", [False, True])
def test_a_rank_is_tried_on_each_host(monkeypatch, tmp_path, rest, status, found, open_mpi):
    version = "mpirun (Open MPI) 5" if open_mpi else "HYDRA"
    stand_in(monkeypatch, tmp_path, PARTS.format(version=version, rest=rest.format(place=tmp_path)))
    file = tmp_path / "hosts"
    file.write_text(
        "localhost slots=4 # near\n127.0.0.1 slots=2\n" if open_mpi else "localhost:4 # near\n127.0.0.1:2\n"
    )
    [check] = check_hosts(str(file))
    assert check.status == status and found in check.finding
    if status == "ok":
        how = ["--hostfile", str(file), "--map-by", "node"] if open_mpi else ["-f", str(file), "-ppn", "1"]
        assert (tmp_path / "words").read_text().split()[: len(how) + 2] == [*how, "-n", "2"]


@pytest.mark.parametrize("name", ["mpirun", "mpiexec"])
@pytest.mark.parametrize("ended", ["together", "alone", "broken"])
def test_a_trial_on_the_hosts_takes_the_launcher_that_there_is(monkeypatch, tmp_path, name, ended):
    launchers = []

    def start_trial(command):
        launchers.append(command[0])
        return ended, "denied"

    monkeypatch.setattr(shutil, "which", lambda wanted: f"/bin/{name}" if wanted == name else None)
    monkeypatch.setattr(hostfile, "run_command", lambda command: (0, "HYDRA"))
    monkeypatch.setattr(hostfile, "start_trial", start_trial)
    (tmp_path / "hosts").write_text("127.0.0.1\n")
    [check] = check_hosts(str(tmp_path / "hosts"))
    said = {"together": "a rank on each sees", "alone": "each rank is alone", "broken": "did not run (denied)"}
    assert launchers == [f"/bin/{name}"] and said[ended] in check.finding
    assert check.finding.startswith("1 host for 1 rank: 127.0.0.1")
    assert check.status == ("ok" if ended == "together" else "fail")


@pytest.mark.parametrize(
    ("line", "whose"), [("localhost slots=4", "MPICH"), ("[::1] slots=4", "MPICH"), ("localhost:4", "Open MPI")]
)
def test_a_line_in_the_words_of_another_mpi_is_refused(line, whose):
    with pytest.raises(hostfile.WrongLine, match=f"is not in the format of {whose}"):
        hostfile.parse_line(1, line, whose)


@pytest.mark.parametrize(
    ("line", "whose", "name", "count"),
    [
        ("node1", "MPICH", "node1", 1),
        ("node1:4 binding=user:0", "MPICH", "node1", 4),
        ("slots1:4", "MPICH", "slots1", 4),
        ("[::1]:4", "MPICH", "[::1]", 4),
        ("node1", "Open MPI", "node1", 1),
        ("node1 slots = 4 max_slots=8", "Open MPI", "node1", 4),
        ("node1 max_slots=8 slots=4", "Open MPI", "node1", 4),
        ("fe80::1 slots=4", "Open MPI", "fe80::1", 4),
    ],
)
def test_a_line_names_a_host_and_its_ranks(line, whose, name, count):
    assert hostfile.parse_line(3, line, whose) == (3, name, count)


def test_a_host_file_without_a_launcher(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    [check] = check_hosts("hosts")
    assert check.status == "fail" and "no mpirun" in check.finding


@pytest.mark.mpi
def test_a_host_file_of_this_machine(capsys, tmp_path):
    file = tmp_path / "hosts"
    library = examine(capsys)["mpirun"][1]
    if "MPICH" not in library:
        pytest.skip("the file is written for MPICH's mpirun")
    file.write_text("localhost:2\n")
    assert main(["doctor", "--hostfile", str(file), "--format", "json"]) == 0
    check = json.loads(capsys.readouterr().out)["checks"][-1]
    assert check["found"] == "1 host for 2 ranks: localhost; a rank on each sees the others"


@pytest.mark.mpi
def test_under_a_launcher_without_a_library(tmp_path):
    done = start([MPIRUN, "-n", "2", sys.executable, "-m", "p2pkm", "doctor"], tmp_path, MPI4PY_LIBMPI="/nonexistent",
                 OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")  # fmt: skip
    assert done.returncode == 4
    assert done.stdout.count('-> install one, for example: pip install "p2pkm[mpich]"') == 1
