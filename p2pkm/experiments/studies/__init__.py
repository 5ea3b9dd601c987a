"""Studies of many runs: seeds, parameter studies, comparisons and coupling paths."""
