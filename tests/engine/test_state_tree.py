"""What ranks hold: kept once, whatever ranks it comes from, and back on any number of ranks."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal, assert_equal

from p2pkm.core.errors import DataError
from p2pkm.core.messages import InternedTables, RaggedArray, expand_ranges
from p2pkm.data.shards import Shards
from p2pkm.engine.state_tree import check_points, fingerprint, gather, rebuild, split
from p2pkm.kernels import reference
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.rank_partition import RankPartition
from tests.support.play_rounds import arrange


class Ranks:
    """As many networks as there are ranks, each in a thread, that only share and collect."""

    def __init__(self, division, topology):
        self.division, self._topology, self._barrier = division, topology, threading.Barrier(division.size)
        self._parts = [None] * division.size

    def network(self, rank):
        """Return what one rank calls."""
        placement = place(self._topology, rank, self.division.size, self.division)

        def allgather_by_device(values, counts=None):
            self._parts[rank] = values
            self._barrier.wait()
            rows = self.division.arrange(np.concatenate(self._parts), counts)
            self._barrier.wait()
            return rows

        def total(counts):
            self._parts[rank] = counts
            self._barrier.wait()
            found = sum(self._parts)
            self._barrier.wait()
            return found

        return SimpleNamespace(
            placement=placement,
            allgather_by_device=allgather_by_device,
            gather_by_device=allgather_by_device,
            total=total,
        )

    def run(self, do):
        """Return what `do(rank, network)` returns on rank 0, when all have done it."""
        found = {}
        threads = [threading.Thread(target=lambda rank=rank: found.update({rank: do(rank, self.network(rank))}))
                   for rank in range(self.division.size)]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found[0]


def draw(rng, n):
    """Return what device i holds of origin j; equal tables are frequent, and so are different ones."""
    kinds = [[rng.normal(size=(int(rng.integers(0, 3)), 2)) for _ in range(int(rng.integers(1, 5)))] for _ in range(n)]
    return [{j: kinds[j][rng.integers(len(kinds[j]))] for j in range(n) if i == j or rng.random() < 0.7}
            for i in range(n)]  # fmt: skip


def intern(rng, held, n):
    """Return the same as a batch keeps it, the versions of each origin in any order."""
    versions, tables, firsts = np.zeros((len(held), n), np.min_scalar_type(len(held))), [], [0]
    for j in range(n):
        names = sorted({one[j].tobytes() for one in held if j in one})
        names = [names[place] for place in rng.permutation(len(names))]
        for i, one in enumerate(held):
            versions[i, j] = names.index(one[j].tobytes()) + 1 if j in one else 0
        tables += [np.frombuffer(name).reshape(-1, 2) for name in names]
        firsts.append(len(tables))
    rows = np.array([len(table) for table in tables], np.int64)
    values = np.concatenate([np.zeros((0, 2)), *tables])
    return InternedTables(versions, np.array(firsts), np.cumsum(rows) - rows, rows, values)


def tables_of(tree, device):
    """Return the tables that a device holds, by origin."""
    found = [tree.store_values[expand_ranges(tree.store_starts[[table]], tree.store_rows[[table]])]
             for table in tree.find(device)]  # fmt: skip
    return dict(zip(np.flatnonzero(tree.versions[device]).tolist(), found, strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_what_each_device_holds_is_the_same_on_any_number_of_ranks(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 9))
    held, kept = draw(rng, n), []
    topology = Topology.from_links(n, np.array([[i, i + 1, 1.0] for i in range(n - 1)]))
    for size in (1, 2, 3):
        owner = np.concatenate((np.arange(size), rng.integers(0, size, n - size)))
        division, arrays = RankPartition.by_owner("any", owner, size), [{} for _ in range(size)]
        trees = [intern(rng, [held[i] for i in division.of(rank)], n) for rank in range(size)]
        outline = Ranks(division, topology).run(
            lambda rank, network, trees=trees, arrays=arrays: gather(trees[rank], network, arrays[rank], "held")
        )
        kept.append(arrays[0])
        for ranks, rank in ((1, 0), (3, 0), (3, 1), (3, 2)):
            other = RankPartition.blocks(n, ranks)
            back = rebuild(outline, split(outline, arrays[0], topology, other, rank))
            assert back.store_firsts.shape == (n + 1,)
            for row, i in enumerate(other.of(rank)):
                found = tables_of(back, row)
                assert sorted(found) == sorted(held[i])
                assert not [(j, table) for j, table in found.items() if not np.array_equal(table, held[i][j])]
    for arrays in kept[1:]:
        assert_array_equal(arrays["held.versions"], kept[0]["held.versions"])
        assert arrays["held.values"].shape == kept[0]["held.values"].shape


@pytest.mark.parametrize(("n", "kind"), [(255, np.uint8), (300, np.uint16)])
def test_versions_that_do_not_fit_into_a_byte_are_kept(n, kind):
    held, arrays = [{0: np.full((1, 2), float(i))} for i in range(n)], {}
    topology = Topology.from_links(n, np.array([[i, i + 1, 1.0] for i in range(n - 1)]))
    division, tree = RankPartition.blocks(n, 1), intern(np.random.default_rng(0), held, n)
    outline = Ranks(division, topology).run(lambda rank, network: gather(tree, network, arrays, "held"))
    back = rebuild(outline, split(outline, arrays, topology, division, 0))
    assert back.versions.dtype == kind
    assert [tables_of(back, i)[0][0, 0] for i in range(n)] == list(range(n))


def part_of(whole, topology, division, rank):
    """Return what a rank has of arrays of the whole system: of some its rows, of others all."""
    ids = division.of(rank)
    edges = expand_ranges(topology.indptr[ids], topology.degrees[ids])
    rows = np.concatenate([whole["rows"][i] for i in ids]), np.array([len(whole["rows"][i]) for i in ids])
    return whole | {"bits": whole["bits"][ids], "wide": whole["wide"][ids], "one": whole["one"][ids],
                    "edge_x": whole["edge_x"][edges], "root_x": whole["root_x"][: 3 * (rank == 0)],
                    "rows": RaggedArray(*rows)}  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3])
def test_arrays_of_every_kind_come_back_on_any_number_of_ranks(size):
    """Of what has a row for every device or link of the system, a rank has only its own right."""
    rng, n = np.random.default_rng(size), 7
    topology = Topology.from_links(n, np.array([[i, (i + 1) % n, 1.0] for i in range(n)]))
    owner = np.concatenate((np.arange(size), rng.integers(0, size, n - size)))
    division, arrays = RankPartition.by_owner("any", owner, size), [{} for _ in range(size)]
    whole = {
        "bits": rng.random((n, 11)) < 0.5, "one": rng.normal(size=n), "edge_x": rng.normal(size=(2 * n, 2)),
        "wide": rng.normal(size=(n, size)) * (np.arange(size) <= owner[:, None]),
        "store_x": rng.normal(size=(n, 2)), "arcs_x": rng.integers(9, size=2 * n), "root_x": rng.normal(size=3),
        "rows": [rng.normal(size=(i % 3, 2)) for i in range(n)], "number": 3, "none": None,
    }  # fmt: skip

    def keep(rank, network):
        own = part_of(whole, topology, division, rank)
        own["wide"] = own["wide"][:, : rank + 1]  # what is beyond it on other ranks is 0
        for name, rows in (("store_x", network.placement.ids), ("arcs_x", network.placement.edges)):
            right = own[name]
            own[name] = np.zeros_like(right)
            own[name][rows] = right[rows]
        return gather(own | {"number": np.int64(3)}, network, arrays[rank], "held")

    outline = Ranks(division, topology).run(keep)
    assert arrays[0]["held.bits"].shape == (n, 2)  # a byte for 8 of them
    for ranks, rank in ((1, 0), (3, 0), (3, 1), (3, 2)):
        other = RankPartition.blocks(n, ranks)
        back = rebuild(outline, split(outline, arrays[0], topology, other, rank))
        assert_equal(back, part_of(whole, topology, other, rank))


def test_a_fingerprint_feels_every_value_and_the_order_of_the_points_of_a_device():
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(3, 2)), np.zeros((0, 2)), rng.normal(size=(2, 2))]
    marks = fingerprint(Shards.from_list(data), reference)
    check_points(Shards.from_list(data), marks, reference)
    changes = [(i, row, column) for i in (0, 2) for row in range(len(data[i])) for column in range(2)]
    for i, *at in [*changes, (0,), (2,)]:
        changed = [one.copy() for one in data]
        if at:
            changed[i][*at] += 1e-9
        else:
            changed[i] = changed[i][::-1]
        found = fingerprint(Shards.from_list(changed), reference)
        assert [other for other in range(3) if (found[other] != marks[other]).any()] == [i]
        with pytest.raises(DataError, match="the points differ from those of the original run"):
            check_points(Shards.from_list(changed), marks, reference)


def test_ragged_rows_are_saved_and_restored():
    table = arrange([np.zeros((1, 1))] * 3, [(0, 1), (1, 2)])
    held, arrays = RaggedArray(np.arange(8.0).reshape(4, 2), np.array([1, 0, 3])), {}
    outline = gather(held, table.network, arrays, "held")
    division = RankPartition.blocks(3, 1)
    back = rebuild(outline, split(outline, arrays, table.topology, division, 0))
    assert back.values.tolist() == held.values.tolist() and back.counts.tolist() == held.counts.tolist()
