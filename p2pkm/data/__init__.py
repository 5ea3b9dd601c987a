"""Reading, generation and partition of points."""
