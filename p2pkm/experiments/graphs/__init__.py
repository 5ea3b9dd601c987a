"""Graph commands, without a run: reports, comparisons and fault traces."""
