"""What a rank does with its part of what rank 0 deals: read the points that stay on disk, and see that they fit."""

import json
from typing import Any

import numpy as np

from p2pkm.core.errors import DataError
from p2pkm.data.out_of_core.shards import Sharded
from p2pkm.data.shards import Shards
from p2pkm.engine.state_tree import check_points
from p2pkm.kernels import pick
from p2pkm.network.rank_partition import divide
from p2pkm.network.transport import World


def load_own_shard(world: World, order: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Add the points that this rank reads by itself to its part, and see that they are those of a run that goes on.

    If one rank cannot, all raise its error.
    """
    if "stored" not in order and "saved" not in order:
        return part
    fault = ""
    try:
        if "stored" in order:
            part = _read_own(world, order) | part
        if "saved" in order:
            _check_points(part)
    except (DataError, OSError, MemoryError) as error:
        fault = str(error) if isinstance(error, DataError) else f"the points cannot be read: {error or 'no memory'}"
    faults = world.gather(np.frombuffer(fault.encode(), np.uint8))
    found = next((one for one in faults or [] if len(one)), np.empty(0, np.uint8))
    verdict = world.broadcast({"fault": found})["fault"].tobytes().decode()
    if verdict:
        raise DataError(verdict)
    return part


def _read_own(world: World, order: dict[str, Any]) -> dict[str, Any]:
    sharded = Sharded.from_mapping(json.loads(order["stored"].tobytes()))
    first, last = divide(sharded.n, world.size)[world.rank :][:2]
    return sharded.part(int(first), int(last)).to_arrays()


def _check_points(part: dict[str, Any]) -> None:
    own = Shards.from_arrays(part)
    check_points(own, part[".marks"], pick(2, 0, own.points.size))
