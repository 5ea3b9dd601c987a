"""A run, a comparison or a study as one HTML file that needs nothing else."""
