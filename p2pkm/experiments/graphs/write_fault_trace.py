"""Command ``faults``: sample a fault trace before a run, or generate one, and write it."""

from typing import NamedTuple

from p2pkm.channel.fault_model import build_fault_model, record_faults
from p2pkm.channel.fault_trace import KIND, WORDS, FaultTrace, write_trace
from p2pkm.channel.phones import Phones
from p2pkm.channel.sampled_faults import Faults
from p2pkm.channel.timed_faults import TimedFaults
from p2pkm.channel.timed_trace import NAMES, TimedTrace, write_timed_trace
from p2pkm.core.errors import NetworkError
from p2pkm.core.plugins import families
from p2pkm.core.spec import complete, parse
from p2pkm.experiments.config import build_topology
from p2pkm.experiments.console import print_file_summary
from p2pkm.network.graph import Topology

_DEVICES = 16  # default number of devices
_WORLDS = {"phones": Phones}


class TraceRequest(NamedTuple):
    """Fault trace to write.

    Attributes
    ----------
    faults : str
        Fault model, or a generator such as ``"phones:days=7"``.
    graph : str
        Spec.
    devices : int or None
        None: 16, or the number of nodes of a graph of fixed size.
    rounds : int
    turns : int
        Turns per round.
    seed : int
    server : bool
        Use the star of a server method instead of `graph`.
    """

    faults: str
    graph: str
    devices: int | None
    rounds: int
    turns: int
    seed: int
    server: bool = False


def write_fault_trace(request: TraceRequest, out: str | None) -> tuple[list[str], str]:
    """Sample a fault trace and write it into a file.

    Returns
    -------
    lines : list of str
        Lines of the trace if `out` is None, otherwise empty.
    summary : str
        Number of events of each kind.

    Raises
    ------
    P2PKMError
        If the faults or the graph cannot be used, the trace has too many events, or the file cannot be written.
    """
    if request.server:
        topology = Topology.star(request.devices or _DEVICES)
    else:
        kinds = families(request.graph)
        spec = complete(parse(request.graph, kinds, "graph"), kinds, request.seed)
        topology = build_topology(spec, request.devices, _DEVICES)
        print_file_summary(topology.file_summary)
    lines, summary = _make_trace(request, topology)
    if out is None:
        return lines, summary
    try:
        with open(out, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise NetworkError(
            f"the fault trace {out} cannot be written: {error.strerror or error}. Use another file"
        ) from None
    return [], f"{summary}, in {out}"


def _make_trace(request: TraceRequest, topology: Topology) -> tuple[list[str], str]:
    """Make the lines of the trace, and their summary."""
    if request.faults.partition(":")[0].strip() in _WORLDS:
        return _list(Phones(**parse(request.faults, _WORLDS, "world").options).draw(topology, request.seed), topology)
    model = build_fault_model(Faults.of(request.faults), topology, request.seed)
    if isinstance(model, TimedFaults):
        return _list(model.trace, topology)
    trace = record_faults(model, topology, request.rounds, request.turns)
    return list(write_trace(trace, topology.clients)), _count(trace, request.rounds)


def _count(trace: FaultTrace, rounds: int) -> str:
    """Summarize the number of events of each kind."""
    counts = [(name, int((trace.events[:, KIND] == kind).sum())) for kind, name in enumerate(WORDS)]
    listed = ", ".join(f"{count:,} {kind}" for kind, count in counts if count) or "no events"
    return f"rounds 0 to {rounds}: {listed}"


def _list(trace: TimedTrace, topology: Topology) -> tuple[list[str], str]:
    """List the lines of a trace in seconds, and the number of values of each kind."""
    counts = [(name, int((trace.names == number).sum())) for number, name in enumerate(NAMES)]
    listed = ", ".join(f"{name} {count:,} times" for name, count in counts if count) or "no values"
    end = trace.seconds[-1] if len(trace.seconds) else 0.0
    return list(write_timed_trace(trace, topology)), f"0 to {end:g} s: {listed}"
