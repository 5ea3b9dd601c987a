"""`simulate` writes checkpoints, and a second call goes on from the last one with the same bits."""

from pathlib import Path

import numpy as np
import pytest

import p2pkm
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.storage.checkpoint import CheckpointWriter, listed
from tests.contract.test_determinism import start
from tests.support.programs import resumed
from tests.support.programs.resumed import OPTIONS, deal, play


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


@pytest.mark.parametrize("name", OPTIONS)
def test_an_interrupted_run_goes_on_with_the_same_bits(name, interrupt):
    expected = play(name, None)
    folder = interrupt(name)
    before = listed(folder)[0]
    assert play(name, folder) == expected
    assert listed(folder)[0] > before and not (folder / "p2pkm.lock").exists()
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
        ({"seed": 1}, "another seed;"),
        ({"rounds": 8}, "another rounds;"),
        ({"method": p2pkm.GTVMin(3, init="local", tol=0.5)}, "another algorithm;"),
        ({"faults": "loss=0.2"}, "another channel;"),
        ({"start": np.zeros((5, 3, 2))}, "another start;"),
        ({"shards": deal(1.0)}, "the points are not those"),
    ],
)
def test_other_arguments_are_refused(more, told, interrupt):
    folder = interrupt("plain")
    with pytest.raises(DataError, match=told):
        play("plain", folder, **more)
    assert not (folder / "p2pkm.lock").exists()
    assert play("plain", folder) == play("plain", None)


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(ExperimentError, match="without checkpoint"):
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
