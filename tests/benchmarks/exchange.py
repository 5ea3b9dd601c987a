"""What an exchange costs beside a bare persistent-request loop: ``mpirun -n 16 python -m tests.benchmarks.exchange``.

Devices on a ring, one per rank. Both loops send the same tables between the same ranks, in turn, several times; the
CPU time is this process's own (a rank that yields while it waits uses little), the wall time is what the loop took.
"""

import argparse
import json
import time
from typing import Any

import numpy as np

import topologies
from p2pkm.core.messages import DenseMessages
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.world import connect

connect()  # sets how ranks yield before MPI starts
from mpi4py import MPI  # noqa: E402


def bare(placement: Any, shape: tuple[int, int]) -> list[MPI.Prequest]:
    """Return persistent requests between fixed buffers, without any ledger or memory."""
    requests = []
    for peer in placement.peers:
        sent, received = np.zeros((len(peer.send), *shape)), np.zeros((peer.last - peer.first, *shape))
        requests += [MPI.COMM_WORLD.Send_init(sent, peer.rank), MPI.COMM_WORLD.Recv_init(received, peer.rank)]
    return requests


def clock(work: Any, repeats: int) -> tuple[float, float]:
    """Return CPU and wall microseconds of one call."""
    MPI.COMM_WORLD.Barrier()
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(repeats):
        work()
    return 1e6 * (time.process_time() - cpu) / repeats, 1e6 * (time.perf_counter() - wall) / repeats


def main() -> None:
    """Print medians over ranks and trials for several sizes of table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--trials", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args()
    world = connect()
    placement = place(Topology.from_networkx(topologies.ring(world.size)), world.rank, world.size)
    rows = []
    if world.rank == 0 and not options.json:
        print(f"{world.size} ranks, ring; microseconds per exchange (median of ranks and {options.trials} trials)")
        print(f"{'table':>10} {'KB':>7} {'CPU':>8} {'bare CPU':>9} {'wall':>8} {'bare wall':>10} {'ratio wall':>11}")
    for shape in ((4, 2), (16, 2), (16, 16), (64, 128), (64, 784)):
        network = world.network(placement)
        network.open()
        messages = DenseMessages(np.zeros((1, *shape)), np.array([shape[0]]))
        requests = bare(placement, shape)

        def raw(requests: list[MPI.Prequest] = requests) -> None:
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)

        def full(network: Any = network, messages: DenseMessages = messages) -> None:
            network.exchange(messages)

        repeats = options.repeats if shape[1] < 100 else options.repeats // 5
        clock(full, 5), clock(raw, 5)
        pairs = np.array([(*clock(full, repeats), *clock(raw, repeats)) for _ in range(options.trials)])
        medians = np.array(MPI.COMM_WORLD.allgather(np.median(pairs, axis=0))).mean(axis=0)
        ratios = np.median(pairs[:, :2] / pairs[:, 2:], axis=0)
        cpu, wall, bare_cpu, bare_wall = map(float, medians)
        name = f"{shape[0]} x {shape[1]}"
        rows.append({"table": name, "cpu": cpu, "bare_cpu": bare_cpu, "wall": wall, "bare_wall": bare_wall,
                     "ratio_cpu": float(ratios[0]), "ratio_wall": float(ratios[1])})  # fmt: skip
        if world.rank == 0 and not options.json:
            print(f"{name:>10} {8 * np.prod(shape) / 1000:7.1f} {cpu:8.1f} {bare_cpu:9.1f} {wall:8.1f} "
                  f"{bare_wall:10.1f} {ratios[1]:11.2f}", flush=True)  # fmt: skip
        network.close()
        for request in requests:
            request.Free()
    if world.rank == 0 and options.json:
        print(json.dumps(rows), flush=True)


if __name__ == "__main__":
    main()
