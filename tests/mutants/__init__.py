"""Mutants drawn evenly from the syntax trees of the core packages, and whether the tests notice them; see README.md."""
