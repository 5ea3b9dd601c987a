"""Objective of GTVMin: equation (7) of Jung 2025, with its variants."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.protocols import Objective
from p2pkm.core.states import optional
from p2pkm.methods.building_blocks.coupling_choice import ESTIMATED, WITHOUT_SHARES, predict_excess
from p2pkm.methods.building_blocks.normalized_losses import inverse_weights
from p2pkm.methods.building_blocks.optimal_matching import optimal_variation
from p2pkm.methods.building_blocks.total_variation import saturated_penalty
from p2pkm.network.graph import Topology

# Largest number of devices for which a run predicts the excess: above, the eigenvalues take longer than the run.
_MAX_PREDICTED = 1_000


def divide_by_degrees(base: float | Floats, devices: Devices) -> Floats:
    """Compute alpha_ij of every edge, float64[e], from that between devices with one link: a number or float64[e].

    It is divided by the root of the product of the degrees; 0 for inactive edges.
    """
    # In place: with millions of devices each temporary array takes gigabytes.
    alpha = devices.degrees.astype(np.float64).repeat(devices.indptr[1:] - devices.indptr[:-1])
    alpha *= devices.neighbor_degrees
    np.sqrt(np.maximum(alpha, 1.0, out=alpha), out=alpha)
    np.divide(base, alpha, out=alpha)
    alpha *= devices.link_weights
    alpha *= devices.active_edges
    return alpha


@dataclass(frozen=True)
class GTVObjective(Objective):
    """Sum of the local losses (6) of all devices and the penalties ``alpha_ij d(W_i, W_j)`` of all links.

    Attributes
    ----------
    method : GTVMin
        Determines the variant. Normalized losses are divided by the weight of the local points. With optimal matching d
        is the cost of the matching. With saturating links phi(d) replaces d. With shares see
        `p2pkm.methods.building_blocks.shares`.
    """

    method: Any

    def link_alpha(self, devices: Devices, state: Any = None) -> Floats:
        """Compute alpha_ij of every edge, float64[e]; 0 for inactive edges."""
        if self.method.alpha is not None:
            raw: Floats = self.method.alpha * (devices.link_weights * devices.active_edges)
            return raw
        if self.method.coupling in ESTIMATED and (estimated := optional(state, "edge_alpha")) is not None:
            strength: Floats = estimated
            return strength
        coupling = self.method.effective_coupling(devices.total, devices.hops) or 0.0
        mean = 1.0 if self.method.normalize_losses else devices.total_weight / devices.total
        return divide_by_degrees(coupling * mean / self.method.k, devices)

    def loss_weights(self, devices: Devices) -> Floats:
        """Compute the factor of each local loss: 1 / m_i for normalized losses, otherwise 1."""
        return inverse_weights(devices) if self.method.normalize_losses else np.ones(len(devices))

    def variation(self, devices: Devices, tables: Floats, slots: Integers, state: Any = None) -> Floats | None:
        """Compute the cost of the matching of every link; None if rows are matched to the nearest."""
        has_shares = self._find_shares(devices, state)
        if has_shares is not None:
            from p2pkm.methods.building_blocks.shares import link_variation

            by_number = link_variation(devices, tables, slots)
            if has_shares.all():
                return by_number
            nearest = devices.kernels.gtv(tables, devices.ids, devices.indptr, devices.indices, slots)
            return np.where(has_shares[devices.sources], by_number, nearest)
        if self.method.matching == "nearest":
            return None
        return optimal_variation(tables, devices.ids, devices.indptr, devices.indices, slots)

    def _find_shares(self, devices: Devices, state: Any) -> Mask | None:
        """Find the devices that use shares, by the parameter or by the choice of the coupling; None without any."""
        if self.method.shares:
            return np.ones(len(devices), np.bool_)
        shares = optional(state, "shares")
        if self.method.coupling != "auto" or shares is None or not shares.noise.any():
            return None
        has_shares: Mask = shares.noise > 0.0
        return has_shares

    def penalties(self, state: Any, devices: Devices, gtv: Floats) -> Floats:
        """Compute the penalty of each edge, float64[e], from its variation."""
        limit = optional(state, "edge_limit")
        return self.link_alpha(devices, state) * (gtv if limit is None else saturated_penalty(limit, gtv))

    def add_terms(self, state: Any, devices: Devices) -> Floats | None:
        """Compute the terms of the shares of each device, float64[n]; None without shares."""
        has_shares = self._find_shares(devices, state)
        if has_shares is None or optional(state, "shares") is None:
            return None
        from p2pkm.methods.building_blocks.shares import add_terms

        return np.where(has_shares, add_terms(state.shares, state.centroids, devices), 0.0)

    def predict_excess(self, topology: Topology, points: int) -> float | None:
        """Compute the expected excess of the mean cost ratio for fixed labels; None if the theorem does not apply."""
        method = self.method
        coupling = method.effective_coupling(topology.n, topology.hops)
        # An estimated coupling follows differences between devices, which the theorem excludes.
        is_personal = method.coupling in ESTIMATED or method.shares
        is_other_variant = is_personal or method.groups or method.robust != "none" or topology.varying is not None
        if coupling is None or is_other_variant or topology.n > _MAX_PREDICTED or points <= 0:
            return None
        return predict_excess(topology, coupling, points, method.k)

    def divides_new_links(self, state: Any) -> Mask | None:
        """Tell where links are divided by degrees, bool[n], if the update is the exact one; otherwise None."""
        method, n = self.method, len(state.converged)
        is_exact = method.star_term and method.update_rule == "exact" and method.matching == "nearest"
        if not is_exact or method.normalize_losses or method.robust != "none":
            return None
        chosen = optional(state, "chosen")
        if chosen is None:
            return np.full(n, method.alpha is None)
        is_strong: Mask = chosen % len(WITHOUT_SHARES) == WITHOUT_SHARES.index("strong")
        return is_strong
