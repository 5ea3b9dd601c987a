"""Differential privacy: the accounting, and what methods need for it."""
