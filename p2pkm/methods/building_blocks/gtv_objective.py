"""Objective of GTVMin: equation (7) of Jung 2025, with its variants."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.protocols import Objective
from p2pkm.core.states import optional
from p2pkm.methods.building_blocks.coupling_choice import predict_excess
from p2pkm.methods.building_blocks.normalized_losses import inverse_weights
from p2pkm.methods.building_blocks.optimal_matching import optimal_variation
from p2pkm.methods.building_blocks.total_variation import saturated_penalty
from p2pkm.network.graph import Topology

# Largest number of devices for which a run predicts the excess: above, the eigenvalues take longer than the run.
_MAX_PREDICTED = 1_000


@dataclass(frozen=True)
class GTVObjective(Objective):
    """Sum of the local losses (6) of all devices and the penalties ``alpha_ij d(W_i, W_j)`` of all links.

    Attributes
    ----------
    method : GTVMin
        Determines the variant. Normalized losses are divided by the weight of the local points. With optimal matching d
        is the cost of the matching. With saturating links phi(d) replaces d.
    """

    method: Any

    def link_alpha(self, devices: Devices, state: Any = None) -> Floats:
        """Compute alpha_ij of every edge, float64[e]; 0 for inactive edges."""
        if self.method.alpha is not None:
            raw: Floats = self.method.alpha * (devices.link_weights * devices.active_edges)
            return raw
        coupling = self.method.settle(state).effective_coupling(devices.total, devices.hops) or 0.0
        mean = 1.0 if self.method.normalize_losses else devices.total_weight / devices.total
        base = coupling * mean / self.method.k
        # In place: with millions of devices each temporary array takes gigabytes.
        alpha = devices.degrees.astype(np.float64).repeat(devices.indptr[1:] - devices.indptr[:-1])
        alpha *= devices.neighbor_degrees
        np.sqrt(np.maximum(alpha, 1.0, out=alpha), out=alpha)
        np.divide(base, alpha, out=alpha)
        alpha *= devices.link_weights
        alpha *= devices.active_edges
        return alpha

    def loss_weights(self, devices: Devices) -> Floats:
        """Compute the factor of each local loss: 1 / m_i for normalized losses, otherwise 1."""
        return inverse_weights(devices) if self.method.normalize_losses else np.ones(len(devices))

    def variation(self, devices: Devices, tables: Floats, slots: Integers) -> Floats | None:
        """Compute the cost of the optimal matching of every link; None if rows are matched to the nearest."""
        if self.method.matching == "nearest":
            return None
        return optimal_variation(tables, devices.ids, devices.indptr, devices.indices, slots)

    def penalties(self, state: Any, devices: Devices, gtv: Floats) -> Floats:
        """Compute the penalty of each edge, float64[e], from its variation."""
        limit = optional(state, "edge_limit")
        return self.link_alpha(devices, state) * (gtv if limit is None else saturated_penalty(limit, gtv))

    def predict_excess(self, topology: Topology, points: int) -> float | None:
        """Compute the expected excess of the mean cost ratio for fixed labels; None if the theorem does not apply."""
        method = self.method
        coupling = method.effective_coupling(topology.n, topology.hops)
        is_other_variant = method.groups or method.robust != "none" or topology.varying is not None
        if coupling is None or is_other_variant or topology.n > _MAX_PREDICTED or points <= 0:
            return None
        return predict_excess(topology, coupling, points, method.k)
