"""Measurements of the rows of a study besides the usual metrics: link models, time limit, metrics of a program."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from p2pkm.core.program_object import ProgramObject
from p2pkm.metrics.registry import request


class Measuring(NamedTuple):
    """Settings of the runs of a study that are not options of a run.

    Attributes
    ----------
    link_models : sequence of str
        Link models for whose simulated time the rows have a column, ``seconds_lan`` for "lan"; all from one run.
    time_limit : float or None
        Seconds after which a run ends, with a row whose termination is "timeout"; None: no limit.
    metrics : ProgramObject or None
        Metrics of a program, for which the rows have a column.
    """

    link_models: Sequence[str] = ()
    time_limit: float | None = None
    metrics: ProgramObject | None = None

    def request(self) -> AbstractContextManager[None]:
        """Add the metrics of the program to those of runs and tables, inside the context."""
        return request(() if self.metrics is None else self.metrics.value)


UNMEASURED = Measuring()
