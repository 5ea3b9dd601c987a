"""Optional metrics: on request, or only for methods with a server."""

from typing import Any

import numpy as np

from p2pkm.core.batch import Devices, Floats
from p2pkm.core.chunks import label
from p2pkm.methods.building_blocks.averaging import max_moves
from p2pkm.metrics.clustering import distance, label_silhouettes
from p2pkm.metrics.clusters import number_clusters
from p2pkm.metrics.monitor import Monitor, add, mean
from p2pkm.metrics.result import Census
from p2pkm.network.transport import Network

_SCORED = ("ari_clients", "nmi_clients", "purity_clients")


def measure_last_move(devices: Devices, network: Network, state: Any) -> float:
    """Compute the largest last change of a coordinate on any device, in units of ``tol``; 0 on ranks other than 0."""
    moves = network.gather_by_device(max_moves(state.centroids, state.previous))
    return 0.0 if moves is None or not devices.data_std else float(moves.max()) / devices.data_std


def expect_rate(coupling: float, theta: float, schedule: str) -> float:
    """Compute the asymptotic contraction per round if all devices match the same clusters, see docs/explain/proofs.md.

    With the schedule "jacobi": 1 - theta (1 - mu), where mu = 2c / (1 + 2c). Otherwise the root l of Young's equation
    for two colors, (l + theta - 1)^2 = theta^2 mu^2 l.
    """
    mu = 2 * coupling / (1 + 2 * coupling)
    if schedule == "jacobi":
        return 1 - theta * (1 - mu)
    inner = (theta * mu) ** 2 - 4 * (theta - 1)
    return ((theta * mu + inner**0.5) / 2) ** 2 if inner >= 0 else theta - 1


def estimate_distance(move: float, fitted: float | None, expected: float | None) -> float | None:
    """Estimate the remaining distance to the limit of the centroids, in units of the last change.

    For geometric convergence it is change / (1 - q). The contraction q is the larger of the fitted and the expected
    one, because a run of few rounds does not show its slowest mode. None if neither is below 1.
    """
    known = [q for q in (fitted, expected) if q is not None and q < 1]
    return move / (1 - max(known)) if known else None


def score_clients(census: Census, monitor: Monitor) -> dict[str, float | None]:
    """Average the scores of clients on their local points, weighted by size, over honest clients with centroids."""
    if census.scores is None:
        return {}
    sizes = monitor.keep(census.sizes)
    scores = monitor.keep(census.scores).T
    return {name: mean(values, sizes) for name, values in zip(_SCORED, scores, strict=True)}


def measure_server_costs(devices: Devices, network: Network, state: Any, central: float) -> dict[str, float | None]:
    """Compute the cost of the server's centroids divided by the central cost (Pan et al. 2023); empty except on rank 0.

    ``loss_global`` assigns every point to the nearest server centroid. ``loss_local`` assigns it to the server centroid
    that is nearest to the nearest centroid of its client.
    """
    nearest, _ = devices.kernels.losses(*devices.kernel_inputs, state.centroids)
    through = np.zeros(len(devices))
    for piece in label(devices, state.centroids, through=state.local):
        owner = np.repeat(np.arange(len(piece.losses)), np.diff(piece.offsets))
        goals = state.centroids[piece.span][owner, np.maximum(piece.labels, 0)]
        squared = ((devices.stored[piece.rows] - goals) ** 2).sum(axis=1)
        costs = np.where(piece.labels < 0, np.nan, devices.point_weights[piece.rows] * squared)
        through[piece.span] = np.bincount(owner, costs, len(piece.losses))
    gathered = network.gather_by_device(np.column_stack((through, nearest)))
    if gathered is None or not central > 0:
        return {}
    ratios = {name: add(costs) / central for name, costs in zip(("loss_local", "loss_global"), gathered.T, strict=True)}
    return {name: ratio if np.isfinite(ratio) else None for name, ratio in ratios.items()}


def measure_silhouettes(
    model: Floats, reference: Floats, census: Census
) -> tuple[dict[str, float | None], dict[str, Any]]:
    """Compute silhouettes of the points (or a sample), labeled by the nearest centroid of a model.

    Parameters
    ----------
    model : float64[q, d]
    reference : float64[k, d]
        Model that defines the numbers of the clusters.
    census : Census

    Returns
    -------
    scores : dict
        Silhouette and simplified silhouette.
    arrays : dict
        Fields of `Census`; empty without silhouettes.
    """
    present = np.flatnonzero(model[:, 0] < np.inf)
    silhouette, simplified, values, labels = label_silhouettes(census.sample, model[present])
    scores = {"silhouette": silhouette, "simplified_silhouette": simplified}
    if values is None or labels is None:
        return scores, {}
    rows = np.full((1, max(len(model), len(reference)), model.shape[1]), np.inf)
    rows[0, : len(model)] = model
    numbers = number_clusters(rows, reference)[0][present[labels]]
    return scores, {"sample_silhouette": values, "sample_number": numbers}


def measure_center_distance(models: Floats, centers: Floats) -> dict[str, float | None]:
    """Average the distance of models float64[q, k, d] to known centers float64[c, d]."""
    return {"l2_centers": mean(np.array([distance(model[model[:, 0] < np.inf], centers) for model in models]))}
