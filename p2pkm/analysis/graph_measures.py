"""Measures of the graph in the rows of a study, with their names on axes."""

# Column with the number of devices.
DEVICES = "devices"
MEASURES = {
    "spectral_gap": "spectral gap of the Metropolis matrix",
    "effective_neighbors": "effective neighbors (decay 0.95)",
    "effective_resistance": "effective resistance",
    "residual_noise": "residual noise at coupling 1",
    "algebraic_connectivity": "algebraic connectivity",
    "mean_path": "mean hops between two devices",
    "diameter": "diameter",
    "degree_mean": "mean degree",
    "degree_max": "largest degree",
    "degree_min": "smallest degree",
    "links": "links",
    "clustering": "clustering",
    "hub_load": "hub load",
    "path_load": "path load",
}
