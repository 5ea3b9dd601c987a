"""Meter of one rank: memory, processor time and received bytes of each phase of a run; Linux only.

``mpirun -n 2 python -m tests.benchmarks.scale_meter FOLDER OPTION...`` runs ``p2pkm OPTION...`` and writes
``FOLDER/RANK.json``. Limits of labels, samples and digests are lowered to `POINTS`, so that a run of this size is
above all of them, as a run of 100 million devices is. The environment variable ``FIRST_SHARE`` is the share of the
devices that rank 0 of two ranks has, one half by default. Unequal ranks separate costs that grow with the devices of a
rank from costs that grow with all devices.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from p2pkm.core.allocator import retain_freed_memory

# Bytes that a rank receives: tables of halo devices and sparse messages, both between devices; and those of the
# simulator itself: values of halo devices for records, arrays that rank 0 broadcasts, rows gathered from all ranks.
RECEIVED = ("tables", "sparse", "uncounted", "broadcast", "gathered")
PHASES = ("start", "preparation", "setup", "initialization", "rounds", "records", "closing")
POINTS = 1_000_000
_KINDS = {"Recv": "uncounted", "Bcast": "broadcast", "Gatherv": "gathered", "Allgatherv": "gathered"}
_TAGGED = 3  # arguments of a call with a tag
_BLOCKING = ("Send", "Recv", "Probe", "Bcast", "Gatherv", "Scatterv", "Allgatherv", "Allreduce")


class Meter:
    """Measurements of this process, by phase."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, dict[str, float]]] = []
        self._begin("start")
        # Bytes that each persistent request receives.
        self.requests: dict[int, int] = {}
        # Devices, halo devices, edges to other ranks, and ranks with neighbors.
        self.size: dict[str, int] = {}

    def _begin(self, name: str) -> None:
        self.now = dict.fromkeys(("cpu", *RECEIVED, "turns"), 0.0)
        self.waited = 0.0
        self.name, self.since = name, time.process_time()
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak of the resident memory

    def enter(self, name: str) -> None:
        """End the present phase and begin another; a phase may come several times."""
        lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        self.now["cpu"] = time.process_time() - self.since - self.waited
        self.now["peak"] = 1024 * int(lines["VmHWM"].split()[0])
        self.phases.append((self.name, self.now))
        self._begin(name)

    def wait(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call MPI. Its processor time is not counted: a rank that waits for others polls."""
        began = time.process_time()
        result = call(*arguments)
        self.waited += time.process_time() - began
        return result

    def merge(self) -> dict[str, dict[str, float]]:
        """Add up the parts of each phase; the peak is the largest."""
        merged = {}
        for name in PHASES:
            parts = [part for phase, part in self.phases if phase == name]
            merged[name] = {key: sum(part[key] for part in parts) for key in self.now}
            merged[name]["peak"] = max(part["peak"] for part in parts)
        return merged


class MeteredComm:
    """Communicator that counts what this rank receives."""

    def __init__(self, comm: Any, meter: Meter) -> None:
        self._comm, self._meter = comm, meter

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._comm, name)
        if name not in _BLOCKING:
            return call

        def metered(*arguments: Any) -> Any:
            # Only sparse messages have a tag; they are counted when they are assembled.
            if name in _KINDS and len(arguments) < _TAGGED:
                self._meter.now[_KINDS[name]] += self._count(name, *arguments)
            return self._meter.wait(call, *arguments)

        return metered

    def _count(self, name: str, first: Any, second: Any = None) -> int:
        """Return the bytes that this rank receives in a call."""
        rank = self._comm.rank
        if name == "Recv" or (name == "Bcast" and rank):
            return int(first.nbytes)
        if name == "Allgatherv" or (name == "Gatherv" and not rank):
            rows, kind = second[1:]
            return int(rows.sum() - rows[rank]) * int(kind.Get_size())
        return 0

    def Send_init(self, *arguments: Any) -> Any:  # noqa: N802 - MPI's name
        """Create a persistent request."""
        request = self._comm.Send_init(*arguments)
        self._meter.requests[id(request)] = 0
        return request

    def Recv_init(self, tables: Any, *arguments: Any) -> Any:  # noqa: N802 - MPI's name
        """Create a persistent request and note its size."""
        request = self._comm.Recv_init(tables, *arguments)
        self._meter.requests[id(request)] = tables.nbytes
        return request


class MeteredMPI:
    """The MPI module with a metered communicator and metered requests."""

    def __init__(self, mpi: Any, meter: Meter) -> None:
        self._mpi, self._meter = mpi, meter
        self.COMM_WORLD = MeteredComm(mpi.COMM_WORLD, meter)
        self.Prequest = self.Request = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mpi, name)

    def Startall(self, requests: list[Any]) -> None:  # noqa: N802 - MPI's name
        """Start persistent requests."""
        self._meter.now["tables"] += sum(self._meter.requests[id(request)] for request in requests)
        self._meter.wait(self._mpi.Prequest.Startall, requests)

    def Waitall(self, requests: list[Any]) -> None:  # noqa: N802 - MPI's name
        """Wait for requests."""
        self._meter.wait(self._mpi.Request.Waitall, requests)


def install(meter: Meter) -> None:
    """Connect the meter with the modules of the program, and lower the limits."""
    from p2pkm.engine import loop, run_job
    from p2pkm.experiments import worker
    from p2pkm.metrics import cost_ratio, final_labels, monitor
    from p2pkm.network import mpi

    cost_ratio._PRICED = final_labels._LABELED = final_labels._PROFILED = POINTS
    cost_ratio._REMEMBERED = monitor._REMEMBERED = 0
    begin_mpi, place, job, stage = mpi._start, run_job.place, worker.play, loop.run_stage
    record, assemble = monitor.Monitor.record, mpi.SparseRouter.assemble

    def start() -> Any:
        metered = MeteredMPI(begin_mpi(), meter)
        meter.enter("preparation")
        return metered

    def place_devices(*arguments: Any) -> Any:
        placement = place(*arguments)
        meter.size = {
            "local": len(placement.ids),
            "halo": len(placement.ghosts),
            "cut": sum(len(peer.send_edges) for peer in placement.peers),
            "peers": len(placement.peers),
        }
        return placement

    def run_whole(*arguments: Any) -> Any:
        meter.enter("setup")
        return job(*arguments)

    def run_stage(run: Any, start: Any, context: Any, number: int, *, is_method_stage: bool, is_last: bool) -> Any:
        meter.enter("rounds" if is_method_stage else "initialization")
        # As in the loop: neither this frame nor a tuple of arguments holds the start state while the stage runs.
        starts = [start]
        del start
        result = stage(run, starts.pop(), context, number, is_method_stage=is_method_stage, is_last=is_last)
        meter.enter("closing")
        return result

    def record_round(*arguments: Any, **named: Any) -> None:
        phase = meter.name
        meter.enter("records")
        record(*arguments, **named)
        meter.enter(phase)

    def assemble_received(router: Any, delivery: Any, received: list[Any]) -> Any:
        meter.now["sparse"] += sum(message.nbytes for message in received)
        return assemble(router, delivery, received)

    monitor.Monitor.record = record_round  # type: ignore[method-assign]
    mpi.SparseRouter.assemble = assemble_received  # type: ignore[method-assign]
    mpi._start, run_job.place, loop.run_stage = start, place_devices, run_stage
    run_job.play = worker.play = run_whole
    for name in ("exchange", "deliver"):
        setattr(mpi.MPINetwork, name, _count_turns(getattr(mpi.MPINetwork, name), meter))


def divide_unevenly(share: float) -> None:
    """Assign this share of the devices to rank 0 of two ranks."""
    import numpy as np

    from p2pkm.engine import receive_shard
    from p2pkm.network import rank_partition

    evenly = rank_partition.divide

    def divide(n: int, size: int) -> Any:
        return np.array([0, round(share * n), n]) if size == 2 else evenly(n, size)

    rank_partition.divide = receive_shard.divide = divide


def _count_turns(call: Callable[..., Any], meter: Meter) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        meter.now["turns"] += 1
        return call(*arguments)

    return counted


def main() -> int:
    """Run the program; write the measurements of this rank."""
    from p2pkm.cli.main import main as run_command

    meter = Meter()
    retain_freed_memory()
    install(meter)
    divide_unevenly(float(os.environ.get("FIRST_SHARE", "0.5")))
    code = run_command(sys.argv[2:])
    meter.enter("end")
    from p2pkm.network.world import connect

    measured = {**meter.size, "phases": meter.merge()}
    Path(sys.argv[1], f"{connect().rank}.json").write_text(json.dumps(measured))
    return code


if __name__ == "__main__":
    sys.exit(main())
