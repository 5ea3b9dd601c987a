"""What the monitor says of itself."""

from itertools import count
from types import SimpleNamespace

import numpy as np

from p2pkm.engine.loop import Start
from p2pkm.metrics import monitor
from p2pkm.metrics.monitor import Monitor


def test_compiling_is_no_measuring(monkeypatch):
    """Of every 5 seconds 2 are spent on compiling, which is left out of the seconds of the whole run, too."""
    monkeypatch.setattr(monitor, "time", SimpleNamespace(perf_counter=count(0, 5).__next__))
    monkeypatch.setattr(monitor, "count_compilation", count(0, 2).__next__)
    nothing = SimpleNamespace(
        every=1, seconds=0.0, prices=None, recorder=SimpleNamespace(skip=lambda: None), _record=lambda *_: None
    )
    state = Start(np.zeros((1, 1, 1)), np.ones(1, np.bool_))
    for number in range(4):
        Monitor.record(nothing, {"round": number}, state, None, last=False, closing=False)
    assert nothing.seconds == 4 * (5 - 2)
