"""Read, generate and partition points."""
