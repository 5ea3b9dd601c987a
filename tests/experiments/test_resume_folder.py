"""What was killed is finished by its folder: a list of seeds, a study, a comparison; nothing is computed twice."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest

import p2pkm.experiments.resume
import p2pkm.experiments.studies.run_study
import p2pkm.experiments.studies.seeds
from p2pkm.experiments.studies.seeds import parse_seeds, write_seeds
from tests.support.run_cli import environment, here

SMALL = ("--data", "grid16:points=5", "--devices", "3", "--rounds", "4", "-k", "4", "--no-plot", "-q", "--no-baselines",
         "--partition", "iid")  # fmt: skip
SEEDS = (*SMALL, "--init", "local", "--seeds", "0-2")
STUDY = 'devices = 4\ndata = "grid16:points=5"\nrounds = 3\nclusters = 4\nplot = false\nseeds = "0-1"\n[grid]\n' \
    'algorithm = ["gtvmin", "fkm"]\n'  # fmt: skip
COMPARE = ("compare", "--algorithm", "gtvmin,fkm", *SMALL, "--seeds", "0-1")


class Killed(BaseException):
    """What ends a process without warning, as far as one process can play it."""


def die_at(monkeypatch, module, number):
    """Let the run of this number die, counted from 1, and return the list of those that began."""
    execute, begun = module.execute, []

    def run(prepared, *more, **options):
        begun.append(prepared.options.seed)
        if len(begun) == number:
            raise Killed
        return execute(prepared, *more, **options)

    monkeypatch.setattr(module, "execute", run)
    return begun


def timeless(value):
    """Return JSON content without what the clock of this machine says."""
    if isinstance(value, dict):
        return {name: timeless(one) for name, one in value.items() if name not in {"wall_seconds", "compile_seconds"}}
    return [timeless(one) for one in value] if isinstance(value, list) else value


def closing(folder, name="summary.json"):
    return timeless(json.loads((folder / name).read_text()))


def lines(folder, name):
    return [timeless(json.loads(line)) for line in (folder / name).read_text().splitlines()]


@pytest.mark.slow
def test_seeds_that_were_killed_are_finished_and_none_is_run_again(tmp_path, monkeypatch):
    whole = here(*SEEDS, "--out", tmp_path / "run")
    assert whole.code == 0
    expected = closing(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    with monkeypatch.context() as patch:
        die_at(patch, p2pkm.experiments.studies.seeds, 2)
        with pytest.raises(Killed):
            here(*SEEDS, "--out", tmp_path / "run")
    assert not (tmp_path / "run/summary.json").exists() and (tmp_path / "run/seed-0/summary.json").is_file()
    with monkeypatch.context() as patch:
        begun, again = (
            die_at(patch, module, 0) for module in (p2pkm.experiments.studies.seeds, p2pkm.experiments.resume)
        )
        ending = here("resume", tmp_path / "run", "-q")
        assert (ending.code, begun, again) == (0, [1, 2], [])
        assert ending.out == whole.out and closing(tmp_path / "run") == expected
        ending = here("resume", tmp_path / "run", "-q")
        assert (ending.code, ending.out, begun, again) == (0, whole.out, [1, 2], [])


@pytest.mark.slow
def test_a_seed_goes_on_from_its_last_checkpoint(tmp_path, monkeypatch):
    words = (*SEEDS, "--checkpoint-every", "1", "--record-every", "1", "--out", tmp_path / "run")
    whole = here(*words)
    expected = closing(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    record = p2pkm.experiments.run.RunFolder.record

    def break_down(self, given):
        if self.path.name == "seed-1" and given["stage"] == "gtvmin" and given["round"] == 3:
            raise Killed
        record(self, given)

    with monkeypatch.context() as patch:
        patch.setattr(p2pkm.experiments.run.RunFolder, "record", break_down)
        with pytest.raises(Killed):
            here(*words)
    ending = here("resume", tmp_path / "run")
    assert ending.code == 0 and "seed-1 after round 3 of gtvmin" in ending.err
    assert ending.out == whole.out and closing(tmp_path / "run") == expected


def test_seeds_are_refused_where_anything_has_changed(tmp_path, monkeypatch):
    points = tmp_path / "p.csv"
    points.write_text("x\n" + "\n".join(str(i * i % 17) for i in range(24)) + "\n")
    folder = tmp_path / "run"
    assert here("--data", points, "--devices", "3", "-k", "2", "--no-plot", "-q", "--seeds", "0,1", "--out",
                folder).code == 0  # fmt: skip
    shutil.rmtree(folder / "seed-1")
    points.write_text(points.read_text().replace("16", "15"))
    ending = here("resume", folder)
    assert ending.code == 3 and "differ from those of the original runs" in ending.err
    assert not (folder / "seed-1").exists()
    mark = (folder / "study.toml").read_text()
    (folder / "study.toml").write_text(mark.replace(f'version = "{p2pkm.__version__}"', 'version = "0.0.1"'))
    ending = here("resume", folder)
    assert ending.code == 2 and "started with p2pkm 0.0.1" in ending.err
    (folder / "study.toml").write_text("kind = 'seeds'\nseeds = '0-1'\n")
    assert "is damaged: 'options' is missing" in here("resume", folder).err


@pytest.mark.slow
def test_a_resumed_list_of_seeds_removes_what_force_has_replaced(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    assert here(*SMALL, "--seeds", "7", "--out", folder).code == 0
    with monkeypatch.context() as patch:
        die_at(patch, p2pkm.experiments.studies.seeds, 2)
        with pytest.raises(Killed):
            here(*SMALL, "--seeds", "0-1", "--out", folder, "--force")
    assert len(list(tmp_path.iterdir())) == 2
    assert here("resume", folder, "-q").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    tables = {"study.csv", "study.jsonl", "study.parquet"}
    assert {path.name for path in folder.iterdir()} - tables == {"seed-0", "seed-1", "summary.json", "study.toml"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["study", "comparison"])
def test_a_study_and_a_comparison_are_finished_by_their_folder(tmp_path, monkeypatch, kind):
    (tmp_path / "s.toml").write_text(STUDY)
    words = ("sweep", tmp_path / "s.toml", "-q") if kind == "study" else COMPARE
    tables = ("study.jsonl", "traces.jsonl")
    folder = tmp_path / "out"
    whole = here(*words, "--out", folder)
    assert whole.code == 0
    expected = [lines(folder, name) for name in tables]
    shutil.rmtree(folder)
    with monkeypatch.context() as patch:
        die_at(patch, p2pkm.experiments.studies.run_study, 3)
        with pytest.raises(Killed):
            here(*words, "--out", folder)
    (tmp_path / "s.toml").unlink()  # the folder has all that is needed
    with monkeypatch.context() as patch:
        begun = die_at(patch, p2pkm.experiments.studies.run_study, 0)
        ending = here("resume", folder, "-q")
        assert (ending.code, len(begun)) == (0, 2), ending.err
    assert ending.out == whole.out
    assert [lines(folder, name) for name in tables] == expected
    assert not (folder / "p2pkm.lock").exists()


@pytest.mark.slow
def test_a_study_that_somebody_is_still_at_is_left_alone(tmp_path):
    from p2pkm.storage.lock import Lock

    (tmp_path / "s.toml").write_text(STUDY)
    (tmp_path / "out").mkdir()
    shutil.copy(tmp_path / "s.toml", tmp_path / "out/study.toml")
    with Lock(tmp_path / "out"):
        ending = here("resume", tmp_path / "out")
        assert ending.code == 3 and "is in use by process" in ending.err
        assert here("sweep", tmp_path / "s.toml", "--out", tmp_path / "out").code == 2


def test_processes_are_for_studies(tmp_path):
    assert here(*SMALL, "--out", tmp_path / "run").code == 0
    ending = here("resume", tmp_path / "run", "--jobs", "2")
    assert ending.code == 2 and "it holds no study, comparison or benchmark. Remove --jobs" in ending.err


@pytest.mark.parametrize("text", ["0", "0-4", "3,1,2", "0-2,7,9-11"])
def test_seeds_are_written_as_they_are_read(text):
    assert parse_seeds(write_seeds(parse_seeds(text))) == parse_seeds(text)
    assert write_seeds(range(10_000)) == "0-9999"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["seeds", "study"])
def test_killed_for_good_and_finished(tmp_path, kind):
    """SIGKILL at a moment of its own; the folder ends as that of a run that nobody has disturbed."""
    (tmp_path / "s.toml").write_text(STUDY.replace("points=5", "points=300").replace('"0-1"', '"0-9"'))
    words = ("sweep", tmp_path / "s.toml", "-q")
    if kind == "seeds":
        words = ("--data", "grid16:points=2000", "--devices", "16", "--no-plot", "-q", "--seeds", "0-4", "--tol", "0")
    whole = here(*words, "--out", tmp_path / "out")
    name = "summary.json" if kind == "seeds" else "study.jsonl"
    expected = [timeless(json.loads(text)) for text in _records(tmp_path / "out" / name)]
    shutil.rmtree(tmp_path / "out")
    done = "seed-1/summary.json" if kind == "seeds" else "runs/*.jsonl"
    process = subprocess.Popen([sys.executable, "-m", "p2pkm", *map(str, words), "--out", str(tmp_path / "out")],
                               env=environment(), stdout=subprocess.DEVNULL)  # fmt: skip
    until = time.monotonic() + 100
    while not list((tmp_path / "out").glob(done)) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    ending = here("resume", tmp_path / "out", "-q")
    assert (ending.code, ending.out) == (0, whole.out)
    assert [timeless(json.loads(text)) for text in _records(tmp_path / "out" / name)] == expected


def _records(path):
    text = path.read_text()
    return text.splitlines() if path.suffix == ".jsonl" else [text]
