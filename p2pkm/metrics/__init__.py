"""Metrics of a run, evaluated by the simulator: cost ratios, scores, disagreement, and the final summary."""
