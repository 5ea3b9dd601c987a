"""Blocks of a study: runs with equal points and graph, which one process executes one after the other.

The division depends only on the options of the runs, the sizes of their files and their graphs. So jobs that run parts
of one study agree on it without a message.
"""

import heapq
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.cache import memoize_in_study
from p2pkm.core.errors import P2PKMError
from p2pkm.core.program_object import ProgramObject
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import RunSpecs, build_topology, parse_specs
from p2pkm.methods.init.pipelines import needs_hub

# Blocks are divided until the longest of all shares is at most this many times the mean, as estimated.
_LONGEST = 1.1
# Divisions per share at most: two parts of a block repeat the work that its runs have in common.
_MAX_DIVISIONS = 8
# Rounds after which a run is expected to have converged, if it may end early.
_USUAL_ROUNDS = 50
# Seconds on one core of a Zen 4, from 100 runs of 17 methods, which they meet within a factor of 3 (standard deviation
# of the logarithm); only ratios matter. Of a run and each device; of a round; of a turn and each device; of a point,
# cluster and feature in a pass over the points; of a link and number of a table.
_RUN, _RUN_OF_DEVICE, _ROUND, _TURN, _TURN_OF_DEVICE, _VISIT, _LINK = 0.04, 4e-4, 2e-3, 5e-4, 5e-6, 1.5e-9, 2e-9
# Passes over all points: of central and local-only k-means, of initialization and closing measures, and of a round that
# trains networks.
_PASSES_OF_BASELINES, _PASSES_OF_RUN, _PASSES_OF_TRAINING = 200, 30, 1_000
# Seconds per link for generation and measures of a graph, and per value for generation and assignment of points.
_GRAPH, _POINT = 2e-6, 1e-7
# Assumed bytes of a value of a file and its features, and devices of a run without this option.
_BYTES, _FEATURES, _DEVICES = 8, 10, 16
_SIZES = 64  # data sets whose size a study keeps


class Cost(NamedTuple):
    """Estimated seconds of a run.

    Attributes
    ----------
    common : float
        Work whose result the runs of a block share: points, graph and central k-means.
    own : float
        Everything else.
    """

    common: float
    own: float


class Block(NamedTuple):
    """Runs that one process executes one after the other.

    Attributes
    ----------
    runs : tuple of int
        Their numbers in the study.
    costs : tuple of Cost
    """

    runs: tuple[int, ...]
    costs: tuple[Cost, ...]

    @property
    def cost(self) -> float:
        """Estimated seconds of the block."""
        return max(cost.common for cost in self.costs) + sum(cost.own for cost in self.costs)

    def halve(self) -> tuple["Block", "Block"]:
        """Divide a block of several runs into two of similar cost, whose runs keep their order."""
        single = [Block((run,), (cost,)) for run, cost in zip(self.runs, self.costs, strict=True)]
        first, second = deal(sorted(single, key=lambda block: -block.cost), 2)
        return _join(first), _join(second)


def _join(blocks: Sequence[Block]) -> Block:
    """Join blocks of single runs."""
    runs, costs = zip(*sorted((block.runs[0], block.costs[0]) for block in blocks), strict=True)
    return Block(runs, costs)


def divide_study(cells: Sequence[RunOptions], workers: int) -> list[list[int]]:
    """Divide the runs of a study into blocks for a number of workers that take them as they become free.

    Runs with equal points and graph form a block. If the largest blocks would leave workers idle, they are divided.

    Parameters
    ----------
    cells : sequence of RunOptions
    workers : int

    Returns
    -------
    list of list of int
        Numbers of the runs of each block, the block with the largest estimated cost first. For one worker they are in
        an order in which consecutive blocks share points, and nothing is estimated.
    """
    if workers == 1:
        return _group(cells)
    return [list(block.runs) for block in _balance(cells, workers)]


def select_share(cells: Sequence[RunOptions], index: int, count: int) -> list[int]:
    """Return the numbers of the runs in share `index` of `count` shares, 0 <= index < count, in their order."""
    return sorted(run for block in deal(_balance(cells, count), count)[index] for run in block.runs)


def deal(blocks: Sequence[Block], count: int) -> list[list[Block]]:
    """Deal blocks in their order, each to the share with the least cost so far; return the blocks of each share."""
    shares: list[list[Block]] = [[] for _ in range(count)]
    loads = [(0.0, index) for index in range(count)]
    for block in blocks:
        load, index = loads[0]
        shares[index].append(block)
        heapq.heapreplace(loads, (load + block.cost, index))
    return shares


def _balance(cells: Sequence[RunOptions], count: int) -> list[Block]:
    """Divide the runs into blocks, the largest first, that can be dealt to equal shares."""
    costs = _estimate_costs(cells)
    blocks = [Block(tuple(runs), tuple(costs[run] for run in runs)) for runs in _group(cells)]
    for _ in range(_MAX_DIVISIONS * count):
        # Blocks of equal cost keep their order.
        blocks.sort(key=lambda block: -block.cost)
        shares = deal(blocks, count)
        loads = [sum(block.cost for block in share) for share in shares]
        longest = shares[loads.index(max(loads))]
        divisible = next((block for block in longest if len(block.runs) > 1), None)
        if divisible is None or max(loads) <= _LONGEST * sum(loads) / count:
            break
        blocks.remove(divisible)
        blocks += divisible.halve()
    return sorted(blocks, key=lambda block: -block.cost)


def _group(cells: Sequence[RunOptions]) -> list[list[int]]:
    """Return the numbers of the runs with equal points and graph, group by group."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, cell in enumerate(cells):
        points = cell.seed, cell.data, *cell.name_columns().values(), cell.partition, cell.devices, cell.clusters
        groups.setdefault((*map(str, points), cell.dtype, str(cell.graph)), []).append(number)
    return [groups[key] for key in sorted(groups)]


def _estimate_costs(cells: Sequence[RunOptions]) -> list[Cost]:
    """Estimate the cost of each run; those that differ in the seed only cost the same."""
    known: dict[RunOptions, Cost] = {}
    for cell in cells:
        configuration = cell.replaced(seed=0)
        if configuration not in known:
            known[configuration] = estimate_cost(cell)
    return [known[cell.replaced(seed=0)] for cell in cells]


def estimate_cost(cell: RunOptions) -> Cost:
    """Estimate the seconds of a run from its options, without its points; 0 if it is rejected."""
    try:
        specs = parse_specs(cell, check=False)
        data_key = specs.options.data, *map(str, cell.name_columns().values())
        m, d = memoize_in_study("sizes", lambda: data_key, lambda: _measure_points(specs), keep=_SIZES)
        if needs_hub(specs.draft):
            n = cell.devices or _DEVICES
            links = 2 * n
        else:
            topology = build_topology(specs.graph, cell.devices, _DEVICES)
            n, links = topology.n, len(topology.indices)
    except (P2PKMError, OSError):
        return Cost(0.0, 0.0)
    method = specs.draft
    rounds = method.default_rounds if cell.rounds is None else cell.rounds
    if not cell.all_rounds:
        rounds = min(rounds, _USUAL_ROUNDS)
    # As in jacobi*3+1: three turns per round.
    turns = int(method.schedule.partition("*")[2].partition("+")[0] or 1)
    visit = _VISIT * m * d * method.k
    passes = _PASSES_OF_TRAINING if method.traits.derives_features else 1
    turn = _TURN + _TURN_OF_DEVICE * n + _LINK * links * method.k * d
    common = _POINT * m * d + _GRAPH * links
    if cell.baselines:
        common += _PASSES_OF_BASELINES * visit
    start = _RUN + _RUN_OF_DEVICE * n + _PASSES_OF_RUN * visit
    return Cost(common, start + rounds * (_ROUND + passes * visit + turns * turn))


def _measure_points(specs: RunSpecs) -> tuple[int, int]:
    """Return the number of points and features; files are not read but measured by their bytes, on every machine."""
    from p2pkm.data.readers.any_format import SUFFIXES
    from p2pkm.data.readers.folder import expand_path
    from p2pkm.data.shards import Shards
    from p2pkm.data.size_estimate import measure
    from p2pkm.data.table import Table

    source = specs.source
    if isinstance(source, ProgramObject):
        data: Any = source.value
        if isinstance(data, Shards):
            return data.m, data.d
        points = data
        # A table is a tuple, too.
        if isinstance(data, Table):
            points = data.points
        elif isinstance(data, tuple):
            points = data[0]
        rows, *columns = np.shape(points)
        return int(rows), math.prod(columns)
    if source.name != "file":
        size = measure(source)
        return size.points, size.features
    path = source.options["path"]
    files = expand_path(path, SUFFIXES) or [path]
    values = sum(Path(file).expanduser().stat().st_size for file in files) // _BYTES
    return values // _FEATURES, _FEATURES
