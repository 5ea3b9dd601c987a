"""Input of one rank: unpack the part that rank 0 sent, read points on disk, and validate them on all ranks."""

import json
from dataclasses import replace
from typing import Any

import numpy as np

from p2pkm.core.errors import DataError
from p2pkm.core.validation import check_limits, find_limits, merge_limits
from p2pkm.data.shards import Shards
from p2pkm.engine.build_run import Rank, Run
from p2pkm.engine.state_tree import check_points, rebuild
from p2pkm.kernels import select_kernels
from p2pkm.network.rank_partition import RankPartition, divide
from p2pkm.network.transport import World


def receive_rank(run: Run, world: World, order: dict[str, Any], part: dict[str, Any]) -> Rank:
    """Build this rank of a run.

    Parameters
    ----------
    run : Run
        Its points and initial centroids, of all ranks, are not kept.
    world : World
    order : dict
        Arrays that rank 0 broadcast: the rank partition; `saved`, the outline of a checkpoint; `stored`, the points on
        disk.
    part : dict
        Arrays that rank 0 sent to this rank: points, initial centroids, arrays of the checkpoint.

    Raises
    ------
    DataError
        On every rank, if a rank cannot read its points or they differ from those of the checkpoint.
    """
    part = _load_shard(world, order, part)
    start = part.pop("start", None)
    saved = rebuild(json.loads(order["saved"].tobytes()), part) if "saved" in order else None
    run = replace(run, points=None, start=None)
    return Rank(run, world, Shards.from_arrays(part), start, RankPartition.from_arrays(order), saved)


def _load_shard(world: World, order: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Add the points that this rank reads from disk, and compare all points with those of a resumed run."""
    if "stored" not in order and "saved" not in order:
        return part
    error_text, limits = "", np.zeros((2, 0))
    # A rank that raised an error here would leave the others waiting. So errors are collected first, and rank 0
    # broadcasts the first one.
    try:
        if "stored" in order:
            part = _read_shard(world, order) | part
            limits = find_limits(part["points"])
        if "saved" in order:
            _check_points(part)
    except (DataError, OSError, MemoryError) as error:
        is_data_error = isinstance(error, DataError)
        error_text = str(error) if is_data_error else f"the points cannot be read: {error or 'no memory'}"
    rank_errors = world.gather(np.frombuffer(error_text.encode(), np.uint8))
    rank_limits = world.gather(np.frombuffer(limits.tobytes(), np.uint8))
    first_error = next((text for text in rank_errors or [] if len(text)), np.empty(0, np.uint8))
    if "stored" in order and rank_limits is not None and not len(first_error):
        first_error = np.frombuffer(_check_rank_limits(order, rank_limits).encode(), np.uint8)
    verdict = world.broadcast({"fault": first_error})["fault"].tobytes().decode()
    if verdict:
        raise DataError(verdict)
    return part


def _check_rank_limits(order: dict[str, Any], rank_limits: list[Any]) -> str:
    """Validate the range of all points from the limits of each rank, as bytes; return the error, empty if valid."""
    from p2pkm.data.out_of_core.shards import DiskShards

    limits = [np.frombuffer(part.tobytes()).reshape(2, -1) for part in rank_limits]
    dtype = DiskShards.from_mapping(json.loads(order["stored"].tobytes())).dtype
    scaled = json.loads(order["experiment"].tobytes())["scale"] != "none"
    try:
        check_limits(merge_limits(limits), "the points", dtype, each=scaled)
    except DataError as error:
        return str(error)
    return ""


def _read_shard(world: World, order: dict[str, Any]) -> dict[str, Any]:
    # Imports the readers of all file formats, which points in memory do not need.
    from p2pkm.data.out_of_core.shards import DiskShards

    sharded = DiskShards.from_mapping(json.loads(order["stored"].tobytes()))
    first, last = divide(sharded.n, world.size)[world.rank :][:2]
    return sharded.part(int(first), int(last)).to_arrays()


def _check_points(part: dict[str, Any]) -> None:
    shards = Shards.from_arrays(part)
    check_points(shards, part[".marks"], select_kernels(2, 0, shards.points.size))
