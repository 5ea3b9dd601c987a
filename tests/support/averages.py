"""Graphs, data and plain-loop references for tests of methods that average over the graph."""

import numpy as np
from hypothesis import strategies as st

from p2pkm.engine.loop import Start
from p2pkm.methods.schedules import make
from tests.support.play_rounds import arrange

GRAPHS = {
    "one": (1, []),
    "two": (2, [(0, 1)]),
    "ring": (6, [(i, (i + 1) % 6) for i in range(6)]),
    "path": (5, [(i, i + 1) for i in range(4)]),
    "star": (5, [(2, i) for i in (0, 1, 3, 4)]),
    "tree": (7, [((i - 1) // 2, i) for i in range(1, 7)]),
    "complete": (4, [(i, j) for i in range(4) for j in range(i + 1, 4)]),
    "isolated": (5, [(0, 1), (1, 3), (0, 3), (3, 4)]),
}
seeds = st.tuples(st.integers(1, 9), st.floats(0, 1), st.integers(0, 2**32 - 1))


def column(*rows):
    """Build a table of one feature."""
    return np.array(rows, float)[:, None]


def deal(n, seed=0, d=2, *, empty=True):
    """Generate the points of n devices; if `empty`, devices 1, 5, 9, ... have none."""
    rng = np.random.default_rng(seed)
    return [rng.normal(0, 3, (0 if empty and i % 4 == 1 else int(rng.integers(1, 9)), d)) for i in range(n)]


def scene(name, seed=0, k=4, *, weighted=False, **options):
    """Build data, neighbors, the batch, and common initial centroids whose last row is absent.

    If `weighted`, links have weights and are returned instead of neighbors.
    """
    n, links = GRAPHS[name]
    if weighted:
        links = weigh(links)
    data = deal(n, seed)
    start = np.random.default_rng(seed + 1).normal(0, 3, (k, 2))
    start[-1] = np.inf
    return data, links if weighted else neighbors(n, links), arrange(data, links, **options), np.array([start] * n)


def draw(graph, k=3, **options):
    """Build a batch on a random graph, and initial centroids with absent rows, from (n, share of links, seed)."""
    n, share, seed = graph
    rng = np.random.default_rng(seed)
    links = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < share]
    data = [rng.normal(0, 3, (int(rng.integers(i == 0, 5)), 2)) for i in range(n)]
    start = rng.normal(0, 3, (n, k, 2))
    start[rng.random((n, k)) < 0.15] = np.inf
    return arrange(data, links, d=2, **options), start


def neighbors(n, links):
    """List the neighbors of each device in ascending order."""
    found = [set() for _ in range(n)]
    for i, j in links:
        found[i].add(j)
        found[j].add(i)
    return [sorted(one) for one in found]


def states(algorithm, table, start, rounds):
    """Return states and messages after the initial exchange and after each turn."""
    devices, network = table.devices, table.network
    schedule = make(algorithm.schedule, devices, table.topology.colors)
    network.open()
    found = [algorithm.initial_state(devices, Start(np.array(start, float), np.ones(len(devices), np.bool_)))]
    said = [algorithm.message(found[0], devices.at_stage_start(schedule.opening))]
    for t in range(1, rounds + 1):
        for turn, awake in enumerate(schedule.turns(t)):
            inbox = network.exchange(said[-1])
            now = devices.at_turn(t, turn, awake)
            found.append(algorithm.update(found[-1], inbox, now))
            said.append(algorithm.message(found[-1], now))
    return found, said


def sums(points, centroids):
    """Compute (S_c, n_c) of one device by plain loops, float64[k, d + 1]; absent centroids have no points."""
    k, d = np.shape(centroids)
    table = np.zeros((k, d + 1))
    for x in points:
        distances = [((x - w) ** 2).sum() for w in centroids]
        table[int(np.argmin(distances))] += [*x, 1.0]
    return table


def divide(table, centroids, least):
    """Compute S / n by plain loops; a centroid with n below `least` does not change."""
    rows = zip(table, centroids, strict=True)
    return np.array([row[:-1] / row[-1] if row[-1] >= least else old for row, old in rows])


def weigh(links, seed=5):
    """Add weights between 1/8 and 8 to the links."""
    return [(i, j, 2.0**power) for (i, j), power in zip(links, weights_of(links, seed), strict=True)]


def weights_of(links, seed):
    return np.random.default_rng(seed).uniform(-3, 3, len(links))


def proposals(n, links):
    """Compute the shares q_ij that device i proposes to give j: w_ij over all weights of i and their mean."""
    w = np.zeros((n, n))
    for i, j, weight in links:
        w[i, j] = w[j, i] = weight
    count = (w > 0).sum(axis=1)
    strength = w.sum(axis=1) * (1 + 1 / np.maximum(count, 1))
    return w / np.where(count > 0, strength, 1.0)[:, None]


def metropolis(near):
    """Compute the matrix of Metropolis weights."""
    n = len(near)
    P = np.zeros((n, n))
    for i in range(n):
        for j in near[i]:
            P[i, j] = 1 / (1 + max(len(near[i]), len(near[j])))
        P[i, i] = 1 - P[i].sum()
    return P


def lloyd(data, centroids):
    """Perform a central Lloyd step on the pooled points; a centroid without points does not change."""
    return divide(sums(np.concatenate(data), centroids), centroids, 0.5)
