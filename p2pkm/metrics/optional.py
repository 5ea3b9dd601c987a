"""Marks that are given on request, or that only a method with a server has."""

from typing import Any

import numpy as np

from p2pkm.core.batch import Devices, Floats
from p2pkm.core.chunks import label
from p2pkm.methods.building_blocks.averaging import max_moves
from p2pkm.metrics.clustering import distance, silhouettes
from p2pkm.metrics.monitor import Monitor, add, mean
from p2pkm.metrics.result import Census
from p2pkm.network.transport import Network

_SCORED = ("ari_clients", "nmi_clients", "purity_clients")


def mark_move(devices: Devices, network: Network, state: Any) -> float:
    """Return the largest move of a coordinate of any device in its last turn, over the scale: the units of ``tol``."""
    moves = max_moves(state.centroids, state.previous)
    return float(network.allgather_by_device(moves).max()) / devices.data_std if devices.data_std else 0.0


def expect_rate(coupling: float, theta: float, schedule: str) -> float:
    """Return the asymptotic contraction of a round where all devices match the same clusters, see docs/proofs.md.

    Of jacobi mu = 2c / (1 + 2c), relaxed by theta; else Young's of two colors: (l + theta - 1)^2 = theta^2 mu^2 l.
    """
    mu = 2 * coupling / (1 + 2 * coupling)
    if schedule == "jacobi":
        return 1 - theta * (1 - mu)
    inner = (theta * mu) ** 2 - 4 * (theta - 1)
    return ((theta * mu + inner**0.5) / 2) ** 2 if inner >= 0 else theta - 1


def estimate_distance(move: float, fitted: float | None, expected: float | None) -> float | None:
    """Return about how far the centroids still are from where more rounds would take them, in the units of a move.

    What is left of a geometric approach, move / (1 - q), with the larger of the contraction that was fitted to the run
    and the expected one: a run of few rounds has not yet shown its slowest mode. None if neither is below 1.
    """
    known = [q for q in (fitted, expected) if q is not None and q < 1]
    return move / (1 - max(known)) if known else None


def mark_clients(census: Census, monitor: Monitor) -> dict[str, float | None]:
    """Return the size-weighted means of the scores of the own points of the honest clients that hold a centroid."""
    if census.scores is None:
        return {}
    sizes, scores = monitor.keep(census.sizes), monitor.keep(census.scores).T
    return {name: mean(one, sizes) for name, one in zip(_SCORED, scores, strict=True)}


def measure_server_costs(devices: Devices, network: Network, state: Any, central: float) -> dict[str, float | None]:
    """Return what the server's centroids cost, over the central cost (Pan et al. 2023); None on ranks other than 0.

    ``loss_global``: every point by the nearest server centroid; ``loss_local``: by the one that is nearest to its own
    client's nearest centroid.
    """
    nearest, _ = devices.kernels.losses(*devices.kernel_inputs, state.centroids)
    through = np.zeros(len(devices))
    for piece in label(devices, state.centroids, through=state.local):
        owner = np.repeat(np.arange(len(piece.losses)), np.diff(piece.offsets))
        goals = state.centroids[piece.span][owner, np.maximum(piece.labels, 0)]
        apart = ((devices.stored[piece.rows] - goals) ** 2).sum(axis=1)
        costs = np.where(piece.labels < 0, np.nan, devices.point_weights[piece.rows] * apart)
        through[piece.span] = np.bincount(owner, costs, len(piece.losses))
    gathered = network.gather_by_device(np.column_stack((through, nearest)))
    if gathered is None or not central > 0:
        return {}
    found = {name: add(costs) / central for name, costs in zip(("loss_local", "loss_global"), gathered.T, strict=True)}
    return {name: cost if np.isfinite(cost) else None for name, cost in found.items()}


def silhouette_scores(model: Floats, census: Census) -> dict[str, float | None]:
    """Return silhouette and simplified silhouette of the points (or of a sample) labeled by the nearest centroid."""
    found = silhouettes(census.sample, model[model[:, 0] < np.inf])
    return {"silhouette": found[0], "simplified_silhouette": found[1]}


def mark_centers(sets: Floats, centers: Floats) -> dict[str, float | None]:
    """Return the mean over centroid sets, float64[q, k, d], of their distance to known centers, float64[c, d]."""
    return {"l2_centers": mean(np.array([distance(one[one[:, 0] < np.inf], centers) for one in sets]))}
