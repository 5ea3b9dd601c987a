"""The one error of this package."""


class GraphError(ValueError):
    """A graph cannot be built, read or used; the message names what to change.

    Examples
    --------
    >>> import topologies
    >>> topologies.hypercube(6)
    Traceback (most recent call last):
        ...
    topologies.errors.GraphError: hypercube: 6 devices is no power of two; take 4 or 8
    """
