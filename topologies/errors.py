"""The one error of this package."""


class GraphError(ValueError):
    """A graph cannot be built, read or used; the message names what to change."""
