"""What a rank does with its part: the points of a run that goes on must be those that it was begun with."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import DataError
from p2pkm.engine.build_run import Run
from p2pkm.engine.receive_shard import receive_rank
from p2pkm.engine.state_tree import fingerprint
from p2pkm.kernels import reference
from p2pkm.network.graph import Topology
from p2pkm.network.local import LocalWorld
from p2pkm.network.rank_partition import RankPartition


def test_points_of_a_run_that_goes_on_are_those_it_was_begun_with_on_every_rank():
    own = p2pkm.Shards.from_list([np.arange(6.0).reshape(3, 2), np.ones((1, 2))])
    outline = {"parts": {"marks": {"array": ".marks", "axis": "device"}}, "kind": ""}
    saved = {"saved": np.frombuffer(json.dumps(outline).encode(), np.uint8)}
    run = Run(p2pkm.GTVMin(2), Topology.from_graph(topologies.path(2)), points=own)
    order, marks = RankPartition.blocks(2, 1).to_arrays(), fingerprint(own, reference)

    def take(world, marks, **more):
        return receive_rank(run, world, order | more, own.to_arrays() | {".marks": marks})

    assert take(LocalWorld(), marks, **saved).saved["marks"] is marks
    assert take(LocalWorld(), None).saved is None  # a new run
    assert take(LocalWorld(), None).run.points is None  # those of all ranks would be held twice
    with pytest.raises(DataError, match="the points differ from those of the original run"):
        take(LocalWorld(), marks + 1e-9, **saved)
    said = {"fault": np.frombuffer(b"of another rank", np.uint8)}
    second = SimpleNamespace(rank=1, size=2, gather=lambda fault: None, broadcast=lambda given: said)
    with pytest.raises(DataError, match="of another rank"):
        take(second, marks, **saved)
