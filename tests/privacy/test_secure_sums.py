"""Masks hide everything but totals: what is sent of any tables is sent of any others with the same totals, too."""

import math
from dataclasses import replace
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from scipy.stats import norm

import p2pkm
import topologies
from p2pkm.engine.build_batch import build_batch
from p2pkm.kernels import reference
from p2pkm.methods.building_blocks.gdp import delta_of
from p2pkm.methods.building_blocks.secure_sums import (
    SumName,
    add_masks,
    grain_of,
    link_keys,
    link_masks,
    public_words,
    standard_normals,
)
from p2pkm.methods.peer import private
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork
from tests.support.resume import keep_all, resume
from tests.support.run_cli import here
from tests.support.sampling import thin

GRAPHS = {
    "ring": topologies.ring(16),
    "small world": topologies.small_world(16, degree=4, rewire=0.2, seed=1),
    "path": topologies.path(16),
    "star": topologies.star(8),
}
NAME, SHAPE = SumName("private", 2), (5, 3)
LENGTH = SHAPE[0] * SHAPE[1]


def batch(graph):
    topology = Topology.from_graph(graph)
    shards = p2pkm.Shards.from_list([np.zeros((1, 2))] * topology.n)
    return build_batch(topology, shards, LocalNetwork(place(topology, 0, 1)), 11, reference, b"s" * 32)


def masks_of(devices, name=NAME):
    words = public_words(devices)[devices.indices]  # each device receives those of its neighbor
    return link_masks(link_keys(devices, words), name, LENGTH)


def words(seed, n):
    return np.random.default_rng(seed).integers(0, 2**64, (n, *SHAPE), dtype=np.uint64)


@pytest.mark.parametrize("graph", GRAPHS)
def test_both_ends_share_their_masks_and_these_cancel(graph):
    devices = batch(GRAPHS[graph])
    masks, tables = masks_of(devices), words(0, len(devices))
    assert (masks == masks[devices.mirror]).all()
    assert len(np.unique(masks)) == masks.size // 2
    covered = add_masks(tables, devices, masks)
    assert (covered != tables).all()
    assert (covered.sum(axis=0, dtype=np.uint64) == tables.sum(axis=0, dtype=np.uint64)).all()


def move(devices, masks, change, coalition):
    """Return masks under which tables that have changed, uint64[n, r, w], give the same messages; None: there are none.

    Along a tree of each component without the coalition, from the leaves on: a device hands its change to its parent.
    The masks of the coalition, which it knows, stay.
    """
    graph = nx.Graph(zip(devices.sources.tolist(), devices.indices.tolist(), strict=True))
    graph.remove_nodes_from(coalition)
    moved, left = masks.copy(), change.reshape(len(devices), LENGTH).copy()
    for component in nx.connected_components(graph):
        root = min(component)
        for child, parent in reversed(list(nx.bfs_predecessors(graph, root))):
            up = np.flatnonzero((devices.sources == child) & (devices.indices == parent))[0]
            down = devices.mirror[up]
            sign = np.uint64(1 if child < parent else 2**64 - 1)  # y = x + m at the lower end, x - m at the upper
            moved[up] -= sign * left[child]
            moved[down] = moved[up]
            left[parent] += left[child]
            left[child] = 0
        if left[root].any():
            return None
    return moved


@pytest.mark.parametrize("size", thin([0, 1, 2], 3))
@pytest.mark.parametrize("graph", GRAPHS)
def test_tables_of_the_same_totals_give_the_same_messages(graph, size):
    """For every coalition the other tables are anything with the same total over each component without it."""
    devices = batch(GRAPHS[graph])
    masks, tables, n = masks_of(devices), words(1, len(devices)), len(devices)
    said = add_masks(tables, devices, masks)
    for coalition in list(combinations(range(n), size))[:: 1 if size < 2 else 7]:
        rest = nx.Graph(GRAPHS[graph])
        rest.remove_nodes_from(coalition)
        change = words(2, n)
        change[list(coalition)] = 0
        for component in nx.connected_components(rest):
            one = sorted(component)
            change[one[0]] -= change[one].sum(axis=0, dtype=np.uint64)
        moved = move(devices, masks, change, coalition)
        known = np.isin(devices.sources, coalition) | np.isin(devices.indices, coalition)
        assert (moved[known] == masks[known]).all() and (moved == moved[devices.mirror]).all()
        assert (add_masks(tables + change, devices, moved) == said).all()
        change[min(set(range(n)) - set(coalition)), 0, 0] += np.uint64(1)  # a total that differs by 1
        assert move(devices, masks, change, coalition) is None


def test_no_masks_make_up_for_another_total():
    """What is sent adds up to the total over each component, up to masks that the coalition knows."""
    devices = batch(GRAPHS["path"])
    tables, coalition = words(1, 16), [8]
    masks = masks_of(devices)
    known = np.isin(devices.sources, coalition) | np.isin(devices.indices, coalition)
    own = add_masks(np.zeros_like(tables), devices, np.where(known[:, None], masks, np.uint64(0)))
    seen = add_masks(tables, devices, masks) - own
    for side in (slice(0, 8), slice(9, 16)):
        assert (seen[side].sum(axis=0, dtype=np.uint64) == tables[side].sum(axis=0, dtype=np.uint64)).all()


@pytest.mark.slow
def test_the_transport_of_1000_devices():
    graph = topologies.random_regular(1000, degree=6, seed=3)
    devices = batch(graph)
    masks, tables, change = masks_of(devices), words(1, 1000), words(2, 1000)
    change[[3, 500]] = 0
    change[0] -= change.sum(axis=0, dtype=np.uint64)
    moved = move(devices, masks, change, (3, 500))
    assert (add_masks(tables + change, devices, moved) == add_masks(tables, devices, masks)).all()


def test_what_is_sent_of_zeros_looks_uniform():
    """Chi-squared of the bytes, 255 degrees of freedom; 359 has a probability of 1e-5, 406 one of 1e-9."""
    devices, count = batch(GRAPHS["ring"]), np.zeros(256)
    for number in range(1, 60):
        said = add_masks(np.zeros((16, *SHAPE), np.uint64), devices, masks_of(devices, SumName("private", number)))
        count += np.bincount(said.view(np.uint8).ravel(), minlength=256)
    expected = count.sum() / 256
    assert 150 < ((count - expected) ** 2 / expected).sum() < 359


def test_masks_are_fresh_for_every_sum_stage_link_and_seed():
    devices = batch(GRAPHS["ring"])
    names = [SumName("private", 1), SumName("private", 2), SumName("another", 1)]
    seen = np.concatenate([masks_of(devices, name).ravel() for name in names])
    assert len(np.unique(seen)) == len(seen) // 2  # each stands at both ends


def test_a_unit_is_small_and_rounding_is_counted_in():
    for sensitivity in (1.0, 0.3, 1e-9, 1e12, 4095.9):
        grain = grain_of(sensitivity, 9)
        assert sensitivity / 8192 < 3 * grain.unit <= sensitivity / 4096
        assert np.log2(grain.unit) % 1 == 0 and grain.sensitivity == sensitivity + 3 * grain.unit


@pytest.mark.parametrize("devices", [1, 2, 3, 5])
@pytest.mark.parametrize("change", [1, 3, 11])
def test_a_sum_of_rounded_noise_hides_a_change_as_well_as_normal_noise(devices, change):
    """The exact delta of the sum of rounded normal variables of 4 units is at most that of their normal sum."""
    whole = np.arange(-200, 201)
    one = norm.sf(whole - 0.5, scale=4.0) - norm.sf(whole + 0.5, scale=4.0)
    law = one
    for _ in range(devices - 1):
        law = np.convolve(law, one)
    before, after = np.append(law, np.zeros(change)), np.append(np.zeros(change), law)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0):
        exact = np.maximum(before - math.exp(epsilon) * after, 0.0).sum()
        assert exact <= delta_of(change / (4.0 * math.sqrt(devices)), epsilon) + 1e-14


def test_noise_is_normal():
    """Kolmogorov and Smirnov's distance of 4,000 draws: beyond 0.0353 with probability 1e-4."""
    drawn = np.sort(standard_normals(np.arange(40, dtype=np.uint64), 1, 2, 100).ravel())
    shares = (np.arange(4000) + 0.5) / 4000
    assert np.abs(norm.cdf(drawn) - shares).max() < 0.0353
    assert len(np.unique(drawn)) == 4000


@pytest.mark.parametrize(("data", "least"), [("grid16:points=6", 5), pytest.param("wine", 9, marks=pytest.mark.slow)])
def test_a_resumed_run_covers_nothing_new_with_old_masks_or_noise(data, least, tmp_path, monkeypatch):
    """Every sum that is taken again, after a run was killed at any checkpoint, is of the same table to the bit."""
    taken = []
    prepare = private.PrivateOnGraph.cover

    def keep(self, state, devices):
        found = prepare(self, state, devices)
        taken.append((devices.round, found.up.tobytes()))
        return found

    monkeypatch.setattr(private.PrivateOnGraph, "cover", keep)
    words = ("--algorithm", "private:epsilon=20,radius=40,noise_seed=0", "--graph", "ring", "--devices", 5,
             "-k", 3, "--data", data, "--no-plot", "--quiet", "--checkpoint-every", 1)  # fmt: skip
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        assert here(*words, "--out", tmp_path / "run").code == 0
    first, copies = dict(taken), sorted((tmp_path / "copies").iterdir())
    last = max(first)
    assert list(first) == list(range(1, last + 1)) and last >= least and len(copies) >= last - 1
    for number, copy in enumerate(copies, 1):
        del taken[:]
        resume(copy)
        assert [round for round, _ in taken] == list(range(number + 1, last + 1))
        assert not [(round, words) for round, words in taken if first[round] != words]


def test_words_alone_do_not_give_the_key_of_a_link():
    """Whoever receives all words, and knows how keys are made, still needs the secret of the run."""
    devices = batch(GRAPHS["small world"])
    words = public_words(devices)
    other = replace(devices, secrets=devices.secrets._replace(shared=devices.secrets.shared ^ 1))
    assert (public_words(other) == words).all()
    one, two = (link_keys(each, words[each.indices]) for each in (devices, other))
    assert not set(one.tolist()) & set(two.tolist())
