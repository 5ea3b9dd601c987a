"""Exception of this package."""


class GraphError(ValueError):
    """Error in building, reading or using a graph; the message names a remedy.

    Examples
    --------
    >>> import topologies
    >>> topologies.hypercube(6)
    Traceback (most recent call last):
        ...
    topologies.errors.GraphError: hypercube: the number of devices is 6; expected a power of two. Use 4 or 8
    """
