"""`simulate` writes checkpoints, and a second call goes on from the last one with the same bits."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import p2pkm
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.storage.checkpoint import CheckpointWriter, list_checkpoints, load_newest
from p2pkm.storage.lock import Lock
from tests.contract.test_determinism import start
from tests.support.programs import resumed
from tests.support.programs.resumed import OPTIONS, deal, play
from tests.support.run_cli import here
from tests.support.sampling import thin
from topologies import path


@pytest.fixture
def interrupt(monkeypatch, tmp_path):
    """Play a run until its second checkpoint is written; return the folder."""

    def begin(name, **more):
        put, written = CheckpointWriter.put, []

        def put_and_stop(self, outline, arrays):
            put(self, outline, arrays)
            written.append(outline["parts"]["scene"]["parts"]["round"]["value"])
            if len(written) == 2:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(CheckpointWriter, "put", put_and_stop)
            with pytest.raises(KeyboardInterrupt):
                play(name, tmp_path / "run", **more)
        return tmp_path / "run"

    return begin


@pytest.mark.parametrize("name", thin(OPTIONS, 2))
@pytest.mark.sample(3)
def test_an_interrupted_run_goes_on_with_the_same_bits(name, interrupt):
    expected = play(name, None)
    folder = interrupt(name)
    before = list_checkpoints(folder)[0]
    assert play(name, folder) == expected
    assert list_checkpoints(folder)[0] > before and not (folder / "p2pkm.lock").exists()
    assert play(name, folder) == expected  # also when it has ended


def test_it_does_go_on_and_does_not_begin_anew(interrupt, monkeypatch):
    folder, rounds = interrupt("plain"), []
    update = p2pkm.GTVMin.update

    def count(self, *given):
        rounds.append(1)
        return update(self, *given)

    monkeypatch.setattr(p2pkm.GTVMin, "update", count)
    play("plain", folder)
    resumed_rounds = len(rounds)
    play("plain", None)
    assert 0 < resumed_rounds < len(rounds) - resumed_rounds


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"seed": 1}, "different seed. Use the arguments"),
        ({"rounds": 8}, "different rounds. Use the arguments"),
        ({"method": p2pkm.GTVMin(3, init="local", tol=0.5)}, "different algorithm. Use the arguments"),
        ({"faults": "loss=0.2"}, "different channel. Use the arguments"),
        ({"start": np.zeros((5, 3, 2))}, "different start. Use the arguments"),
        ({"shards": deal(1.0)}, "the points differ from those of the original run"),
    ],
)
@pytest.mark.sample(3)
def test_other_arguments_are_refused(more, told, interrupt):
    folder = interrupt("plain")
    with pytest.raises(DataError, match=told):
        play("plain", folder, **more)
    assert not (folder / "p2pkm.lock").exists()
    assert play("plain", folder) == play("plain", None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_checkpoint_of_its_round_and_takes_its_usual_course(tmp_path, monkeypatch, number):
    update, expected = p2pkm.GTVMin.update, play("plain", None)

    def asking(self, state, inbox, devices):
        if devices.round == 4 and devices.turn == 0:
            signal.raise_signal(number)
        return update(self, state, inbox, devices)

    def usual(*_):
        raise InterruptedError

    monkeypatch.setattr(p2pkm.GTVMin, "update", asking)
    before = signal.signal(number, usual)
    try:
        with pytest.raises(InterruptedError):
            play("plain", tmp_path / "run", checkpoint_every=1000)
        assert signal.getsignal(number) is usual
    finally:
        signal.signal(number, before)
    monkeypatch.undo()
    kept = load_newest(tmp_path / "run", pytest.fail)
    assert kept.outline["parts"]["scene"]["parts"]["round"]["value"] == 4
    assert play("plain", tmp_path / "run") == expected


def test_checkpoints_are_written_in_a_thread_too(tmp_path):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(play, "plain", tmp_path / "run").result() == play("plain", None)


@pytest.mark.slow
def test_a_folder_in_use_is_refused_as_on_the_command_line(tmp_path):
    with Lock(tmp_path / "run"):
        told = here("--devices", 2, "--out", tmp_path / "run")
        with pytest.raises(ExperimentError) as refused:
            play("plain", tmp_path / "run")
    assert (told.code, told.err) == (ExperimentError.code, f"p2pkm: error: {refused.value}\n")


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(ExperimentError, match="checkpoint_every requires checkpoint"):
        play("plain", None, checkpoint_every=2)
    with pytest.raises(ExperimentError, match="checkpoint_every"):
        play("plain", tmp_path, checkpoint_every=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be used"):
        play("plain", tmp_path / "file")


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_it_goes_on_with_the_same_bits_on_other_numbers_of_ranks(ranks, interrupt):
    name = "scaled, under faults"
    folder = interrupt(name)
    assert start(ranks, f"{name}={folder}", Path(resumed.__file__), 120) == [play(name, None)]


def test_each_checkpoint_is_begun_before_it_is_put(tmp_path, monkeypatch):
    steps = []
    for name in ("start_timer", "put"):
        real = getattr(CheckpointWriter, name)
        monkeypatch.setattr(CheckpointWriter, name, lambda *a, name=name, real=real: steps.append(name) or real(*a))
    p2pkm.simulate(p2pkm.GTVMin(1, init="local", tol=0.0), path(2), p2pkm.Shards.from_list([np.zeros((1, 1))] * 2),
                   rounds=2, baselines=False, checkpoint=tmp_path / "run", checkpoint_every=1)  # fmt: skip
    assert steps == ["start_timer", "put"] * (len(steps) // 2) and steps
