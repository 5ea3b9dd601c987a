"""Groups of devices with separate clusterings, found among summary rows of all devices.

With rows (mean a_r, weight n_r, SSE) of device i, ``L_i(T) = sum_r n_r min_c |a_r - T_c|^2``. The search looks for G
tables T_1, ..., T_G of k centroids and a label l(i) of every device that minimize ``sum_i L_i(T_l(i))``: k-means of
devices, whose centers are clusterings.
"""

import math
from functools import partial

import numpy as np

from p2pkm.core.batch import Floats, Stream
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.device_rows import DeviceRows
from p2pkm.methods.building_blocks.group_bootstrap import is_beyond
from p2pkm.methods.building_blocks.total_variation import squared_distances

# Largest number of groups that the rule can choose.
MAX_GROUPS = 8
# Restarts of a search, and largest number of steps of a restart.
_RESTARTS = 12
_STEPS = 12
# Smallest ratio of costs whose logarithm is computed.
_MIN_RATIO = 1e-12
# An additional group must reduce the cost to less than this share. The cost falls below it if the devices contain
# another group; splitting a single group reduces it by less.
_MAX_COST_SHARE = 0.8


def find_groups(devices: DeviceRows, count: int | None = None) -> Floats:
    """Find groups of devices; the result is the table of each group, float64[G, k, d].

    J_G is the least cost found for G groups plus the SSE of all rows. Starting from G = 1, a group is added while
    ``J_(G+1) < 0.8 J_G``, the decrease is larger than by chance
    (`p2pkm.methods.building_blocks.group_bootstrap.is_beyond`), and G is below 8 and the number of devices.

    Parameters
    ----------
    devices : DeviceRows
    count : int, optional
        Fixed number of groups, instead of this rule.
    """
    local_results = devices.cluster_each()
    if count is not None:
        return search_groups(devices, local_results, count)[0]
    within = float(np.cumsum(devices.rows.within)[-1])
    tables, cost = search_groups(devices, local_results, 1)
    while len(tables) < min(MAX_GROUPS, devices.n):
        count = len(tables)
        next_tables, next_cost = search_groups(devices, local_results, count + 1)
        if not next_cost + within < _MAX_COST_SHARE * (cost + within):
            break
        if not is_beyond(devices, tables, partial(_log_cost_ratio, count=count)):
            break
        tables, cost = next_tables, next_cost
    return tables


def _log_cost_ratio(devices: DeviceRows, count: int) -> float:
    """Compute ``ln(J_(G+1) / J_G)`` for G = `count`."""
    local_results = devices.cluster_each()
    within = float(np.cumsum(devices.rows.within)[-1])
    smaller = search_groups(devices, local_results, count + 1)[1] + within
    larger = search_groups(devices, local_results, count)[1] + within
    return math.log(max(smaller, _MIN_RATIO * larger) / larger) if larger > 0.0 else 0.0


def search_groups(devices: DeviceRows, local_results: tuple[Floats, Floats], count: int) -> tuple[Floats, float]:
    """Find the best tables of 12 restarts, float64[count, k, d], and their cost.

    A restart draws devices and starts with their local tables. Then, up to 12 times, every device is labeled with its
    cheapest table, and the table of each group is replaced by the best of 4 weighted k-means on its rows if that costs
    less. So the cost never increases.

    Parameters
    ----------
    devices : DeviceRows
    local_results : tuple
        Result of `DeviceRows.cluster_each`.
    count : int
        Number of groups.
    """
    best, least = local_results[0][:0], np.inf
    for number in range(_RESTARTS):
        start = local_results[0][_draw_devices(devices, local_results, count, number)]
        tables, cost = _improve_tables(devices, start, number)
        if cost < least:
            best, least = tables, cost
    return best, least


def _draw_devices(devices: DeviceRows, local_results: tuple[Floats, Floats], count: int, number: int) -> list[int]:
    """Draw `count` devices: the first uniformly, the others by their least cross cost to those drawn before.

    The cross cost of i and j is ``L_i(A_j) - L_i(A_i) + L_j(A_i) - L_j(A_j)`` with their local tables A.
    """
    (tables, local_costs), n = local_results, devices.n
    draws = uniforms(devices.key, Stream.CHOICE, [number], count)[0]
    chosen, weight = [int(draws[0] * n)], np.full(n, np.inf)
    for draw in draws[1:]:
        last = chosen[-1]
        rows = slice(*np.searchsorted(devices.owner, [last, last + 1]))
        distances = squared_distances(devices.rows.means[rows], tables.reshape(-1, tables.shape[2]))
        nearest = distances.reshape(-1, *tables.shape[:2]).min(axis=2)
        costs_of_last = np.cumsum(devices.rows.weights[rows, None] * nearest, axis=0)[-1]
        cross_costs = devices.costs(tables[[last]])[0] - local_costs + costs_of_last - local_costs[last]
        weight = np.minimum(weight, np.maximum(cross_costs, 0.0))
        weight[chosen] = 0.0
        cumulative = np.cumsum(weight)
        position = np.searchsorted(cumulative, draw * cumulative[-1], side="right")
        chosen.append(int(position) if cumulative[-1] > 0.0 else last)
    return chosen


def _improve_tables(devices: DeviceRows, tables: Floats, number: int) -> tuple[Floats, float]:
    """Alternate labels and weighted k-means: improved tables, and their cost."""
    costs, tables = devices.costs(tables), tables.copy()
    labels = np.full(devices.n, -1)
    for step in range(_STEPS):
        previous, labels = labels, np.argmin(costs, axis=0)
        for group in range(len(tables)):
            members = labels == group
            if not members.any() or (members == (previous == group)).all():
                continue
            table = devices.cluster_group(members, (number * _STEPS + step) * len(tables) + group)
            cost = devices.costs(table[None])[0]
            if np.cumsum(cost[members])[-1] < np.cumsum(costs[group, members])[-1]:
                tables[group] = table
                costs[group] = cost
    return tables, float(np.cumsum(costs.min(axis=0))[-1])
