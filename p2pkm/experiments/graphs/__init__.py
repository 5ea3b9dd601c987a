"""Graphs without a run: reports, comparisons and fault traces."""
