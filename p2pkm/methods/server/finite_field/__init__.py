"""Exact arithmetic in the integers modulo a prime of any size."""
