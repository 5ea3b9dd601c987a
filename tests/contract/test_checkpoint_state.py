"""What lives as long as a run is kept with it: a run goes on where it stood, and no field can be spared."""

import copy
import json
import shutil
from operator import attrgetter

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from p2pkm.channel.faults import FaultInjector
from p2pkm.channel.suppression import Disclosure
from p2pkm.engine.event_driven import Events
from p2pkm.methods.peer.gtvmin import GTVMin
from p2pkm.network.mailbox import Mailbox
from tests.support.resume import difference, keep_all, resume
from tests.support.run_cli import here
from tests.support.sampling import thin

SMALL = ("--data", "grid16:points=24", "--devices", "12", "--no-plot", "--no-baselines", "--quiet", "-k", "5",
         "--checkpoint-every", "1", "--record-every", "1", "--partition", "quantity:alpha=0.7", "--tol",
         "0")  # fmt: skip
STRUCK = ("--init", "local", "--rounds", "8", "--stale-policy", "keep:age=3", "--faults",
          "loss=0.1,delay=0.4,max_delay=3,dropout=0.2,dropout_length=3,straggler=0.1,link_failure=0.2,"
          "link_downtime=4")  # fmt: skip
EVERYWHERE = ("--rounds", "2", "--init", "d2-sampling", "--faults", "loss=0.3,delay=0.2,dropout=0.1,stages=all")
EVENTS = ("--init", "local", "--schedule", "async", "--rounds", "6", "--link-model")
CROWDED, DISTANT = (*EVENTS, "lora:speed=1e5,access=2000"), (*EVENTS, "wan:latency=0.2,speed=1e4")
RACED = ("--rounds", "2", "--init", "d2-sampling")

_TROUBLE = (
    "_availability.until",
    "_availability.down",
    "_count",
    "_held",
    "_since",
    "_queue",
    "_losses",
    "unavailable_total",
    "rounds",
)
_EVENTS = (
    "_begin",
    "_next_send",
    "_free",
    "_count",
    "_volume",
    "_sent",
    "_arrive",
    "_uses",
    "_sum",
    "_largest",
    "_next",
)
FIELDS = [
    *((STRUCK, 2, FaultInjector, name) for name in _TROUBLE),
    *((EVERYWHERE, 18, FaultInjector, name) for name in ("_availability.round", "_losses")),
    *((CROWDED, 3, Events, name) for name in _EVENTS),
    *((DISTANT, 2, Events, name) for name in ("turns", "_used")),
    (DISTANT, 4, Events, "_done"),
    (STRUCK, 2, Mailbox, "_sent_counts"),
    (RACED, 3, Disclosure, "left"),
    (RACED, 3, Disclosure, "receivers"),
]  # fmt: skip
WHOLE = [
    (STRUCK, 4, FaultInjector, (*_TROUBLE, "_availability.round", "_first", "_fresh")),
    (CROWDED, 3, Events, (*_EVENTS, "ends", "turns", "_used", "_done", "_ready", "_rows", "_mark")),
    (STRUCK, 4, Mailbox, ("tables", "_rows", "row_counts", "_sent_counts", "_slots", "_discarded", "_open_edges")),
]


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


@pytest.mark.parametrize("words", [STRUCK, CROWDED], ids=["struck", "events"])
@pytest.mark.sample(2)
def test_a_run_goes_on_with_the_round_after_its_checkpoint(tmp_path, monkeypatch, kept, words):
    whole, copies = kept(words)
    records = [json.loads(line) for line in (copies[4] / "rounds.jsonl").read_text().splitlines()]
    update, steps = GTVMin.update, []

    def watched(self, state, inbox, devices):
        steps.append(devices.round)
        return update(self, state, inbox, devices)

    monkeypatch.setattr(GTVMin, "update", watched)
    folder = shutil.copytree(copies[4], tmp_path / "run")
    assert difference(whole, resume(folder)) == ""
    last = json.loads((whole / "summary.json").read_text())["rounds"]
    assert sorted(set(steps)) == list(range(records[-1]["round"] + 2, last + 1))  # its own record comes after it


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "number", "kind", "name"), thin(FIELDS, 2), ids=lambda one: getattr(one, "__name__", None)
)
def test_no_field_can_be_spared(tmp_path, monkeypatch, kept, words, number, kind, name):
    whole, copies = kept(words)
    restore = kind.restore

    def forgetful(self, *given):
        owner, _, field = name.rpartition(".")
        holder = attrgetter(owner)(self) if owner else self
        before = copy.deepcopy(vars(holder)[field])
        found = restore(self, *given)
        vars(holder)[field] = before
        return found

    monkeypatch.setattr(kind, "restore", forgetful)
    folder = shutil.copytree(copies[number], tmp_path / "run")
    ending = here("resume", folder, "-q")
    assert ending.code != 0 or difference(whole, folder)


def _pick(one, names):
    """Return copies of some fields, or of fields of fields; messages on their way in the order of their edges."""
    found = {name: copy.deepcopy(attrgetter(name)(one)) for name in names}
    if "_queue" in found:
        found["_queue"] = found["_queue"][np.lexsort(found["_queue"].T)]
    return found


@pytest.mark.parametrize(("words", "number", "kind", "names"), WHOLE, ids=lambda one: getattr(one, "__name__", None))
@pytest.mark.sample(3)
def test_what_is_taken_up_is_what_was_kept(tmp_path, monkeypatch, words, number, kind, names):
    before, after = [], []
    snapshot, restore = kind.snapshot, kind.restore

    def watched(self):
        before.append(_pick(self, names))
        return snapshot(self)

    def restored(self, *given):
        found = restore(self, *given)
        after.append(_pick(self, names))
        return found

    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        patched.setattr(kind, "snapshot", watched)
        assert here(*SMALL, *words, "--out", tmp_path / "run").code == 0
    monkeypatch.setattr(kind, "restore", restored)
    resume(sorted((tmp_path / "copies").iterdir())[number])
    assert len(after) == 1
    for name, value in after[0].items():
        assert_array_equal(value, before[number][name], err_msg=name)
