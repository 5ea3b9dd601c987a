"""What a rank does with its part of what rank 0 deals: read the points that stay on disk, and see that they fit."""

import json
from typing import Any

import numpy as np

from p2pkm.core.errors import DataError
from p2pkm.core.validation import check_limits, find_limits, merge_limits
from p2pkm.data.shards import Shards
from p2pkm.engine.run_job import RankPart
from p2pkm.engine.state_tree import check_points, rebuild
from p2pkm.kernels import select_kernels
from p2pkm.network.rank_partition import RankPartition, divide
from p2pkm.network.transport import World


def receive_part(world: World, order: dict[str, Any], part: dict[str, Any]) -> RankPart:
    """Return this rank's part of a run.

    Parameters
    ----------
    order : dict
        What was broadcast: the rank partition; `saved`, the outline of a checkpoint; `stored`, which points to read.
    part : dict
        What was dealt: points, centroids to start from, arrays of the checkpoint.

    Raises
    ------
    DataError
        On every rank, if one cannot read its points or they are not those of the checkpoint.
    """
    part = _load_own_shard(world, order, part)
    start = part.pop("start", None)
    saved = rebuild(json.loads(order["saved"].tobytes()), part) if "saved" in order else None
    return RankPart(Shards.from_arrays(part), start, RankPartition.from_arrays(order), saved)


def _load_own_shard(world: World, order: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Add the points that this rank reads by itself, and check that they are those of a run that goes on."""
    if "stored" not in order and "saved" not in order:
        return part
    fault, limits = "", np.zeros((2, 0))
    try:
        if "stored" in order:
            part = _read_own(world, order) | part
            limits = find_limits(part["points"])
        if "saved" in order:
            _check_points(part)
    except (DataError, OSError, MemoryError) as error:
        fault = str(error) if isinstance(error, DataError) else f"the points cannot be read: {error or 'no memory'}"
    faults = world.gather(np.frombuffer(fault.encode(), np.uint8))
    ranges = world.gather(np.frombuffer(limits.tobytes(), np.uint8))
    found = next((one for one in faults or [] if len(one)), np.empty(0, np.uint8))
    if "stored" in order and ranges is not None and not len(found):
        found = np.frombuffer(_judge(order, ranges).encode(), np.uint8)
    verdict = world.broadcast({"fault": found})["fault"].tobytes().decode()
    if verdict:
        raise DataError(verdict)
    return part


def _judge(order: dict[str, Any], ranges: list[Any]) -> str:
    """Return why the points of all ranks cannot be used, or nothing, from the bytes of the limits on each rank."""
    from p2pkm.data.out_of_core.shards import Sharded

    limits = [np.frombuffer(one.tobytes()).reshape(2, -1) for one in ranges]
    dtype = Sharded.from_mapping(json.loads(order["stored"].tobytes())).dtype
    scaled = json.loads(order["experiment"].tobytes())["scale"] != "none"
    try:
        check_limits(merge_limits(limits), "the points", dtype, each=scaled)
    except DataError as error:
        return str(error)
    return ""


def _read_own(world: World, order: dict[str, Any]) -> dict[str, Any]:
    from p2pkm.data.out_of_core.shards import Sharded  # readers of every format, which points in memory do without

    sharded = Sharded.from_mapping(json.loads(order["stored"].tobytes()))
    first, last = divide(sharded.n, world.size)[world.rank :][:2]
    return sharded.part(int(first), int(last)).to_arrays()


def _check_points(part: dict[str, Any]) -> None:
    own = Shards.from_arrays(part)
    check_points(own, part[".marks"], select_kernels(2, 0, own.points.size))
