"""Objective of GTVMin: equation (7) of Jung (2025), with its variants."""

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

# Devices up to which every run predicts the excess: above, the eigenvalues take longer than the run.
_PREDICTED = 1_000


@dataclass(frozen=True)
class GTVObjective(Objective):
    """Losses (6) of all devices and alpha_ij d(W_i, W_j) of all links.

    Attributes
    ----------
    method : GTVMin
        With normalized losses each loss is divided by the weight of the points, with optimal matching d is the cost of
        that, and where links saturate phi(d) replaces d.
    """

    method: Any

    def link_alpha(self, devices: Devices, state: Any = None) -> Floats:
        """Return alpha_ij of every own edge, float64[e]; 0 where it is not in use."""
        if self.method.alpha is not None:
            raw: Floats = self.method.alpha * (devices.link_weights * devices.active_edges)
            return raw
        coupling = self.method.settle(state).effective_coupling(devices.total, devices.hops) or 0.0
        mean = 1.0 if self.method.normalize_losses else devices.total_weight / devices.total
        base = coupling * mean / self.method.k
        alpha = devices.degrees.astype(np.float64).repeat(np.diff(devices.indptr))
        alpha *= devices.neighbor_degrees  # in place: of many devices each array counts
        np.sqrt(np.maximum(alpha, 1.0, out=alpha), out=alpha)
        np.divide(base, alpha, out=alpha)
        alpha *= devices.link_weights
        alpha *= devices.active_edges
        return alpha

    def loss_weights(self, devices: Devices) -> Floats:
        """Return 1 / m_i where losses are normalized, else 1."""
        return inverse_weights(devices) if self.method.normalize_losses else np.ones(len(devices))

    def variation(self, devices: Devices, tables: Floats, slots: Integers) -> Floats | None:
        """Return the cost of the optimal matching of every link, if rows are paired so."""
        if self.method.matching == "nearest":
            return None
        return optimal_variation(tables, devices.ids, devices.indptr, devices.indices, slots)

    def penalties(self, state: Any, devices: Devices, gtv: Floats) -> Floats:
        """Return the term of each own edge, float64[e], given its variation."""
        limit = optional(state, "edge_limit")
        return self.link_alpha(devices, state) * (gtv if limit is None else saturated_penalty(limit, gtv))

    def predict_excess(self, topology: Topology, points: int) -> float | None:
        """Return the excess of the mean cost ratio from noise alone, labels fixed; None without a theorem for it."""
        method = self.method
        coupling = method.effective_coupling(topology.n, topology.hops)
        silent = method.groups or method.robust != "none" or topology.varying is not None or topology.n > _PREDICTED
        if coupling is None or silent or points <= 0:
            return None
        return predict_excess(topology, coupling, points, method.k)
