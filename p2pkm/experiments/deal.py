"""Distribution of a run over the ranks, each of which gets the points of its devices.

With the command line only rank 0 has the points, and sends them (`deal`). With `p2pkm.simulate` every rank has all of
them, and takes its part (`take_part`).
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from p2pkm.core.digest import digest
from p2pkm.core.errors import DataError, ExperimentError, P2PKMError
from p2pkm.engine.build_run import Rank, Run
from p2pkm.engine.receive_shard import receive_rank
from p2pkm.engine.state_tree import split
from p2pkm.metrics.final_labels import is_labeled
from p2pkm.network.rank_partition import RankPartition, choose
from p2pkm.network.transport import World
from p2pkm.storage.checkpoint import Checkpoint


def deal(run: Run, world: World, saved: Checkpoint | None) -> Rank:
    """Broadcast a run from rank 0, scatter its points, and return the part of rank 0.

    Parameters
    ----------
    run : Run
        Result of `p2pkm.experiments.run.assemble`.
    world : World
        Its other ranks are in `p2pkm.experiments.worker.worker_loop`.
    saved : Checkpoint or None
        Checkpoint from which the run continues.
    """
    shards, topology, options = run.points, run.topology, run.completed
    texts: dict[str, Any] = {"experiment": options.to_mapping()}
    if shards.in_memory:
        division = choose(topology, shards.sizes, world.size, options.rank_partition)
    else:
        # Each rank reads one range of rows of points on disk, so each takes a block with the same number of devices.
        division = choose(topology, np.ones(topology.n, np.int64), world.size, "blocks")
        texts["stored"] = shards.to_mapping()
    if saved is not None:
        texts["saved"] = saved.outline
    order: dict[str, Any] = {name: encode(json.dumps(text)) for name, text in texts.items()}
    order |= run.to_arrays() | topology.to_arrays() | topology.derive()
    # The links of a star are drawn from the options, see `ClientShare`.
    if topology.varying is not None and topology.hub < 0:
        order["changing"] = np.ones(1)
    order = world.broadcast(order | division.to_arrays())
    if world.size > 1:
        # The arrays that the ranks of this machine share replace those of this rank.
        topology = topology.move(order)
        outline = None if run.outline is None else run.outline._replace(topology=topology)
        run = replace(run, topology=topology, outline=outline)
    parts = _split_points(run, division)
    if saved is not None:
        split_state = partial(split, saved.outline, saved.arrays, topology, division)
        parts = (part | split_state(rank) for rank, part in enumerate(parts))
    return receive_rank(run, world, order, world.scatter(parts))


def take_part(run: Run, world: World, saved: Checkpoint | None, refusal: P2PKMError | None) -> Rank:
    """Return this rank's part of a run whose points every rank has.

    Parameters
    ----------
    run : Run
        The same on all ranks, which `p2pkm.engine.run_job.play` verifies.
    world : World
    saved : Checkpoint or None
        Checkpoint from which the run continues, on rank 0.
    refusal : P2PKMError or None
        Error of rank 0, which is raised on every rank.
    """
    shards, start, topology, options, order = run.points, run.start, run.topology, run.options, None
    if world.rank == 0:
        order = choose(topology, shards.sizes, world.size, options.rank_partition).to_arrays()
        if refusal is not None:
            order |= {"refusal": encode(str(refusal)), "code": np.array(refusal.code)}
        if saved is not None:
            order["saved"] = encode(json.dumps(saved.outline))
    order = world.broadcast(order)
    if "refusal" in order:
        kind = ExperimentError if order["code"] == ExperimentError.code else DataError
        raise kind(order["refusal"].tobytes().decode())
    division = RankPartition.from_arrays(order)
    ids = division.of(world.rank)
    # Ranks that call with different graphs would index out of range here; `play` compares digests and reports it.
    ids = ids[ids < topology.n]
    part = shards.take(ids).to_arrays() | ({} if start is None else {"start": start[ids]})
    if "saved" in order:
        split_state = None if saved is None else partial(split, saved.outline, saved.arrays, topology, division)
        part |= world.scatter(None if split_state is None else map(split_state, range(world.size)))
    rank = receive_rank(run, world, order, part)
    if world.size == 1:
        return rank
    digests = {"points": digest(*shards.to_arrays().values()), "start": digest(*([] if start is None else [start]))}
    return replace(rank, input_digests=digests)


def _split_points(run: Run, division: RankPartition) -> Iterator[dict[str, Any]]:
    """Yield the arrays of each rank, one rank at a time: a part of non-contiguous devices is a copy."""
    shards, start = run.points, run.start
    if shards.in_memory and not is_labeled(shards.m):
        shards = replace(shards, order=None)
    for rank in range(division.size):
        ids = division.of(rank)
        part = shards.take(ids).to_arrays() if shards.in_memory else {}
        if rank == 0 and division.size > 1:
            # Views would hold the points of all ranks.
            part = {name: array.copy() for name, array in part.items()}
        yield part if start is None else part | {"start": start[ids]}


def encode(text: str) -> Any:
    """Encode text as an array of bytes, which can be broadcast."""
    return np.frombuffer(text.encode(), np.uint8)
