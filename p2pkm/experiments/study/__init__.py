"""Studies: grids of runs over processes or ranks, cached by configuration."""
