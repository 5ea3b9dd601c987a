"""Groups of devices, each with a clustering of its own, found among rows that stand for the points of all devices.

With rows (mean a_r, weight n_r, SSE) of device i, ``L_i(T) = sum_r n_r min_c |a_r - T_c|^2``. Sought are G tables T_1,
..., T_G and a label l(i) of every device that minimize ``sum_i L_i(T_l(i))``: k-means of devices, whose centers are
clusterings.
"""

import math
from functools import partial

import numpy as np

from p2pkm.core.batch import Floats, Stream
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.device_rows import DeviceRows
from p2pkm.methods.building_blocks.group_bootstrap import is_beyond
from p2pkm.methods.building_blocks.total_variation import squared

MOST = 8  # groups, where their number is open
_RESTARTS, _ROUNDS = 12, 12
_NOTHING = 1e-12  # share of a cost below which it counts as this share
_FALL = 0.8  # one group more must bring the cost below this share


def find_groups(devices: DeviceRows, count: int | None = None) -> Floats:
    """Return the tables of the groups, float64[G, k, d].

    J_G is the least cost found for G groups plus the SSE of all rows. From G = 1 on there is one group more while
    ``J_(G+1) < .8 J_G``, the fall is larger than by chance
    (`p2pkm.methods.building_blocks.group_bootstrap.is_beyond`), and G is below 8 and the number of devices.

    Parameters
    ----------
    devices : DeviceRows
    count : int, optional
        The number of groups, instead of the rule.
    """
    alone = devices.cluster_each()
    if count is not None:
        return search(devices, alone, count)[0]
    within = float(np.cumsum(devices.rows.within)[-1])
    tables, cost = search(devices, alone, 1)
    while len(tables) < min(MOST, devices.n):
        count = len(tables)
        more, less = search(devices, alone, count + 1)
        if not less + within < _FALL * (cost + within):
            break
        if not is_beyond(devices, tables, partial(_measure_fall, count=count)):
            break
        tables, cost = more, less
    return tables


def _measure_fall(devices: DeviceRows, count: int) -> float:
    """Return ``ln(J_(G+1) / J_G)``, G being `count`."""
    alone, within = devices.cluster_each(), float(np.cumsum(devices.rows.within)[-1])
    less, more = (search(devices, alone, number)[1] + within for number in (count + 1, count))
    return math.log(max(less, _NOTHING * more) / more) if more > 0.0 else 0.0


def search(devices: DeviceRows, alone: tuple[Floats, Floats], count: int) -> tuple[Floats, float]:
    """Return the best tables of 12 restarts, float64[count, k, d], and what the rows cost with them.

    A restart draws devices and begins with their own tables. Then, up to 12 times, every device is labeled with its
    cheapest table, and the table of each group gives way to the best of 4 weighted k-means on its rows if that costs
    less, so that the cost never rises.

    Parameters
    ----------
    devices : DeviceRows
    alone : tuple
        What `DeviceRows.cluster_each` returns.
    count : int
    """
    best, least = alone[0][:0], np.inf
    for number in range(_RESTARTS):
        tables, cost = _descend(devices, alone[0][_draw(devices, alone, count, number)], number)
        if cost < least:
            best, least = tables, cost
    return best, least


def _draw(devices: DeviceRows, alone: tuple[Floats, Floats], count: int, number: int) -> list[int]:
    """Return devices, the first one at random, each other one by its least cross cost to those before.

    The cross cost of i and j is ``L_i(A_j) - L_i(A_i) + L_j(A_i) - L_j(A_j)``, A their own tables.
    """
    (tables, own), n = alone, devices.n
    draws = uniforms(devices.key, Stream.CHOICE, [number], count)[0]
    chosen, weight = [int(draws[0] * n)], np.full(n, np.inf)
    for draw in draws[1:]:
        last = chosen[-1]
        mine = slice(*np.searchsorted(devices.owner, [last, last + 1]))
        apart = squared(devices.rows.means[mine], tables.reshape(-1, tables.shape[2])).reshape(-1, *tables.shape[:2])
        theirs = np.cumsum(devices.rows.weights[mine, None] * apart.min(axis=2), axis=0)[-1]
        cross = devices.price(tables[[last]])[0] - own + theirs - own[last]
        weight = np.minimum(weight, np.maximum(cross, 0.0))
        weight[chosen] = 0.0
        upto = np.cumsum(weight)
        chosen.append(int(np.searchsorted(upto, draw * upto[-1], side="right")) if upto[-1] > 0.0 else last)
    return chosen


def _descend(devices: DeviceRows, tables: Floats, number: int) -> tuple[Floats, float]:
    """Return tables after labels and weighted k-means in turns, and their cost."""
    costs, tables = devices.price(tables), tables.copy()
    labels = np.full(devices.n, -1)
    for step in range(_ROUNDS):
        before, labels = labels, np.argmin(costs, axis=0)
        for group in range(len(tables)):
            members = labels == group
            if not members.any() or (members == (before == group)).all():
                continue
            found = devices.cluster_group(members, (number * _ROUNDS + step) * len(tables) + group)
            cost = devices.price(found[None])[0]
            if np.cumsum(cost[members])[-1] < np.cumsum(costs[group, members])[-1]:
                tables[group], costs[group] = found, cost
    return tables, float(np.cumsum(costs.min(axis=0))[-1])
