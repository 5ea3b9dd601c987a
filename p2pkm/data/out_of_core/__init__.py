"""Points that stay on disk: every rank reads the rows of its own devices."""
