"""Fault traces, written before a run."""

from typing import NamedTuple

from p2pkm.channel.fault_model import build_fault_model, record
from p2pkm.channel.fault_trace import KIND, WORDS, FaultTrace, write_trace
from p2pkm.channel.sampled_faults import Faults
from p2pkm.core.errors import NetworkError
from p2pkm.core.plugins import families
from p2pkm.core.spec import complete, parse
from p2pkm.experiments.config import build_topology
from p2pkm.experiments.console import print_file_summary
from p2pkm.network.graph import Topology

_USUAL = 16  # devices


class TraceRequest(NamedTuple):
    """What to write: the faults, the graph, how many rounds, and turns in each; server: on the star around one."""

    faults: str
    graph: str
    devices: int | None
    rounds: int
    turns: int
    seed: int
    server: bool = False


def write_fault_trace(wish: TraceRequest, out: str | None) -> tuple[list[str], str]:
    """Write the trace into a file, or return its lines; and what there is to say of it.

    Raises
    ------
    P2PKMError
        If the faults or the graph cannot be used, it would have too many events, or the file cannot be written.
    """
    if wish.server:
        topology = Topology.star(wish.devices or _USUAL)
    else:
        kinds = families(wish.graph)
        spec = complete(parse(wish.graph, kinds, "graph"), kinds, wish.seed)
        topology = build_topology(spec, wish.devices, _USUAL)
        print_file_summary(topology.file_summary)
    trace = record(build_fault_model(Faults.of(wish.faults), topology, wish.seed), topology, wish.rounds, wish.turns)
    lines, summary = list(write_trace(trace, topology.clients)), _count(trace, wish.rounds)
    if out is None:
        return lines, summary
    try:
        with open(out, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise NetworkError(
            f"the fault trace {out} cannot be written: {error.strerror or error}; choose another file"
        ) from None
    return [], f"{summary}, in {out}"


def _count(trace: FaultTrace, rounds: int) -> str:
    """State how many events of which kind there are."""
    counts = [(word, int((trace.events[:, KIND] == kind).sum())) for kind, word in enumerate(WORDS)]
    found = ", ".join(f"{count:,} {word}" for word, count in counts if count) or "no events"
    return f"rounds 0 to {rounds}: {found}"
