"""Tables that several devices hold: kept once, whatever ranks they come from, and back on any number of ranks."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from p2pkm.core.messages import Interned, expand_ranges
from p2pkm.engine.state_tree import gather, rebuild, split
from p2pkm.network.graph import Topology
from p2pkm.network.rank_partition import RankPartition


class Ranks:
    """As many networks as there are ranks, each in a thread, that only share and collect."""

    def __init__(self, division):
        self.division, self._barrier = division, threading.Barrier(division.size)
        self._parts = [None] * division.size

    def network(self, rank):
        """Return what one rank calls."""
        ids = self.division.of(rank)
        placement = SimpleNamespace(ids=ids, division=self.division, rank=rank)

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
    return Interned(versions, np.array(firsts), np.cumsum(rows) - rows, rows, values)


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
        outline = Ranks(division).run(
            lambda rank, network, trees=trees, arrays=arrays: gather(trees[rank], network, arrays[rank], "held")
        )
        kept.append(arrays[0])
        for ranks, rank in ((1, 0), (3, 0), (3, 1), (3, 2)):
            other = RankPartition.blocks(n, ranks)
            back = rebuild(outline, split(outline, arrays[0], topology, other, rank))
            for place, i in enumerate(other.of(rank)):
                found = tables_of(back, place)
                assert sorted(found) == sorted(held[i])
                assert all(np.array_equal(table, held[i][j]) for j, table in found.items())
    for arrays in kept[1:]:
        assert_array_equal(arrays["held.versions"], kept[0]["held.versions"])
        assert arrays["held.values"].shape == kept[0]["held.values"].shape


@pytest.mark.parametrize(("n", "kind"), [(255, np.uint8), (300, np.uint16)])
def test_versions_that_do_not_fit_into_a_byte_are_kept(n, kind):
    held, arrays = [{0: np.full((1, 2), float(i))} for i in range(n)], {}
    topology = Topology.from_links(n, np.array([[i, i + 1, 1.0] for i in range(n - 1)]))
    division, tree = RankPartition.blocks(n, 1), intern(np.random.default_rng(0), held, n)
    outline = Ranks(division).run(lambda rank, network: gather(tree, network, arrays, "held"))
    back = rebuild(outline, split(outline, arrays, topology, division, 0))
    assert back.versions.dtype == kind
    assert [tables_of(back, i)[0][0, 0] for i in range(n)] == list(range(n))
