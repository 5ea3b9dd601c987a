"""Points that stay on disk: every rank reads only the rows of its devices."""
