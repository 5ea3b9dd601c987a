"""Initializations, as stages on the message layer."""
