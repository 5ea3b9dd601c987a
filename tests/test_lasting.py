"""What lives as long as a run is kept with it: a run goes on where it stood, and no field can be spared."""

import copy
import json
import shutil

import pytest

from p2pkm.algorithms.gtvmin import GTVMin
from p2pkm.byzantine import Lies
from p2pkm.disclosure import Disclosure
from p2pkm.events import Events
from p2pkm.network.memory import Memory
from p2pkm.struck import Trouble
from tests.invoke import here
from tests.resumed import difference, keep_all, resume

SMALL = ("--data", "grid16:points=24", "--devices", "12", "--no-plot", "--no-central", "--quiet", "-k", "5",
         "--checkpoint-every", "1", "--every", "1", "--partition", "quantity:alpha=0.7", "--tol", "0")  # fmt: skip
STRUCK = ("--seeding", "own", "--rounds", "8", "--stale", "keep:age=3", "--faults",
          "loss=0.1,delay=0.4,lag=3,churn=0.2,away=3,stragglers=0.1,links=0.2,repair=4")  # fmt: skip
EVERYWHERE = ("--rounds", "2", "--seeding", "raced", "--faults", "loss=0.3,delay=0.2,churn=0.1,stages=all")
EVENTS = ("--seeding", "own", "--schedule", "async", "--net", "lora", "--rounds", "6")
LIARS = ("--byzantine", "2:kind=flip", "--recipe", "groups", "--rounds", "2", "--graph", "complete")
RACED = ("--rounds", "2", "--seeding", "raced")

FIELDS = [
    *((STRUCK, 4, Trouble, name) for name in ("_first", "_until", "_down", "_count", "_held", "_since", "_fresh",
                                              "_queue", "_losses", "away", "rounds")),
    (EVERYWHERE, 2, Trouble, "_round"),
    *((STRUCK, 4, Memory, name) for name in ("tables", "_rows", "_count", "_slots")),
    *((EVENTS, 3, Events, name) for name in ("turns", "_begin", "_say", "_ready", "_free", "_done", "_count",
                                             "_volume", "_rows", "_said", "_arrive", "_used", "_uses", "_sum",
                                             "_largest", "_next", "ends")),
    (LIARS, 9, Lies, "started"),
    (RACED, 3, Disclosure, "left"),
]  # fmt: skip


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Return a function from the words of a run to its folder and the copies after each checkpoint."""
    known = {}

    def play(words):
        if words not in known:
            place = tmp_path_factory.mktemp("kept")
            with pytest.MonkeyPatch.context() as patched:
                keep_all(patched, place / "run", place / "copies")
                ending = here(*SMALL, *words, "--out", place / "run")
            assert ending.code == 0, ending.err
            known[words] = place / "run", sorted((place / "copies").iterdir())
        return known[words]

    return play


@pytest.mark.parametrize("words", [STRUCK, EVENTS], ids=["struck", "events"])
def test_a_run_goes_on_with_the_round_after_its_checkpoint(tmp_path, monkeypatch, kept, words):
    whole, copies = kept(words)
    records = [json.loads(line) for line in (copies[4] / "rounds.jsonl").read_text().splitlines()]
    update, steps = GTVMin.update, []

    def watched(self, state, inbox, devices):
        steps.append(devices.step)
        return update(self, state, inbox, devices)

    monkeypatch.setattr(GTVMin, "update", watched)
    folder = shutil.copytree(copies[4], tmp_path / "run")
    assert difference(whole, resume(folder)) == ""
    last = json.loads((whole / "summary.json").read_text())["rounds"]
    assert sorted(set(steps)) == list(range(records[-1]["round"] + 2, last + 1))  # its own record comes after it


@pytest.mark.parametrize(("words", "number", "kind", "name"), FIELDS, ids=lambda one: getattr(one, "__name__", None))
def test_no_field_can_be_spared(tmp_path, monkeypatch, kept, words, number, kind, name):
    whole, copies = kept(words)
    restore = kind.restore

    def forgetful(self, *given):
        before = copy.deepcopy(vars(self)[name])
        found = restore(self, *given)
        vars(self)[name] = before
        return found

    monkeypatch.setattr(kind, "restore", forgetful)
    folder = shutil.copytree(copies[number], tmp_path / "run")
    ending = here("resume", folder, "-q")
    assert ending.code != 0 or difference(whole, folder)
