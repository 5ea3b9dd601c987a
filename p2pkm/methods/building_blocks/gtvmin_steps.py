"""Steps of an update that only some parameters of `p2pkm.methods.peer.gtvmin.GTVMin` add.

The order is part of the results: neighbors are filtered, then come the passes, the grid, and the swaps.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Mask
from p2pkm.core.messages import Inbox
from p2pkm.methods.building_blocks.averaging import max_moves
from p2pkm.methods.building_blocks.centroid_swaps import swap_centroids
from p2pkm.methods.building_blocks.guarded_passes import PassRule, run_passes
from p2pkm.methods.building_blocks.quantization import move_on_grid
from p2pkm.methods.building_blocks.robust_neighbors import robust_filter

# Rounds between two attempts to swap a centroid, and failed attempts in a row after which a device stops.
SWAP_INTERVAL = 4
SWAP_ATTEMPTS = 3
# Two-cycle test: distance to the centroids two rounds ago, relative to the last move.
_TWO_CYCLE = 1e-3


class Turn(NamedTuple):
    """Turn of the active devices: what the steps of an update read.

    Attributes
    ----------
    state : GTVMinState
        State before the turn.
    inbox : Inbox
        Received tables, after the filter of Byzantine neighbors.
    devices : Devices
        Points weighted as in the objective.
    alpha : float64[e]
        Strength of each link in this turn.
    relaxation : float64[n]
        Of each device.
    """

    state: Any
    inbox: Inbox
    devices: Devices
    alpha: Floats
    relaxation: Floats

    @property
    def theta(self) -> Floats:
        """Relaxation of the passes. On a grid they compute the exact minimizer: the relaxation acts in whole steps."""
        return self.relaxation if self.devices.grid is None else np.ones(len(self.devices))


class Moved(NamedTuple):
    """Outcome of a step.

    Attributes
    ----------
    centroids : float64[n, k, d]
    moves : float64[a, 2]
        Largest coordinate change of each active device since the last turn, and since the turn before that.
    failed_swaps : int8[n]
        Failed swap attempts in a row.
    shares : Shares or None
        Shares of the clusters, if the method uses them.
    """

    centroids: Floats
    moves: Floats
    failed_swaps: NDArray[np.int8]
    shares: Any = None


class Steps(NamedTuple):
    """Steps of an update, chosen from the parameters of the method; each is called with the method first.

    Attributes
    ----------
    listen : callable
        (method, centroids, inbox, devices) -> inbox.
    weigh : callable
        Devices -> devices with the point weights of the objective.
    minimize : callable
        (method, turn) -> moved.
    adjustments : tuple of callable
        (method, turn, moved) -> moved, in order.
    find_two_cycles : callable
        (turn, moved) -> bool[n], the devices whose centroids equal those two rounds ago.
    calm_turns, failed_swaps : int
        Turns without a move, and failed swap attempts in a row, after which a device has converged.
    """

    listen: Callable[[Any, Floats, Inbox, Devices], Inbox]
    weigh: Callable[[Devices], Devices]
    minimize: Callable[[Any, Turn], Moved]
    adjustments: tuple[Callable[[Any, Turn, Moved], Moved], ...]
    find_two_cycles: Callable[[Turn, Moved], Mask]
    calm_turns: int
    failed_swaps: int


def hear_all(method: Any, centroids: Floats, inbox: Inbox, devices: Devices) -> Inbox:
    """Use all received tables as they are."""
    return inbox


def hear_robustly(method: Any, centroids: Floats, inbox: Inbox, devices: Devices) -> Inbox:
    """Clip or trim what neighbors sent."""
    return robust_filter(method.robust, centroids, inbox, devices)


def keep_weights(devices: Devices) -> Devices:
    """Use the point weights as they are."""
    return devices


def minimize_by_guarded_passes(method: Any, turn: Turn) -> Moved:
    """Run passes with optimal matching, or with the safeguard."""
    state = turn.state
    rule = PassRule(method.matching == "optimal", turn.theta, method.local_steps, method.safeguard)
    centroids, moves = run_passes(turn.devices, state.centroids, state.previous, turn.inbox, turn.alpha, rule)
    return Moved(centroids, moves[turn.devices.active], state.quiet)


def adjust_to_grid(method: Any, turn: Turn, moved: Moved) -> Moved:
    """Move by whole steps instead. The run, not a parameter, decides whether there is a grid."""
    devices = turn.devices
    if devices.grid is None:
        return moved
    # Neighbors that move at the same time must not move beyond the minimizer.
    within = method.schedule == "jacobi"
    centroids, grid_moves = move_on_grid(devices, turn.state.centroids, moved.centroids, turn.relaxation, within=within)
    moved.moves[:, 0] = grid_moves[devices.active]
    return moved._replace(centroids=centroids)


def adjust_by_swaps(method: Any, turn: Turn, moved: Moved) -> Moved:
    """Try to swap a centroid at the active devices, in every fourth round."""
    devices, before = turn.devices, turn.state.centroids
    if devices.round % SWAP_INTERVAL:
        return moved
    candidates = devices.active_devices & (moved.failed_swaps < SWAP_ATTEMPTS)
    centroids, swapped = swap_centroids(devices, moved.centroids, turn.inbox, turn.alpha, candidates)
    failed_swaps = np.where(swapped, 0, moved.failed_swaps + candidates).astype(np.int8)
    moved.moves[swapped[devices.active], 0] = max_moves(centroids[swapped], before[swapped])
    return Moved(centroids, moved.moves, failed_swaps)


def find_two_cycles(turn: Turn, moved: Moved) -> Mask:
    """Compare the centroids with those two rounds ago."""
    two_cycle = np.ones(len(turn.state.echo), np.bool_)
    two_cycle[turn.devices.active] = moved.moves[:, 1] <= _TWO_CYCLE * moved.moves[:, 0]
    return two_cycle


def find_no_two_cycles(turn: Turn, moved: Moved) -> Mask:
    """Find none: only devices that move at the same time can alternate."""
    echo: Mask = turn.state.echo
    return echo
