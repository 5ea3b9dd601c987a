"""Shared types: device batch, messages, method protocol, specs, errors, random streams."""
