"""Errors that a user can fix; each message names the value, the expected values and the fix."""


class P2PKMError(Exception):
    """Base class of all errors that p2pkm raises; `code` is the exit code of the command line.

    Examples
    --------
    >>> import p2pkm
    >>> try:
    ...     p2pkm.GTVMin(0)
    ... except p2pkm.P2PKMError as error:
    ...     print(error.code, error)
    2 clusters is 0; expected a whole number of at least 1
    """

    code = 1


class ExperimentError(P2PKMError, ValueError):
    """Invalid option or parameter: unknown, out of range, or in conflict with another one.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.GTVMin(0)
    Traceback (most recent call last):
        ...
    p2pkm.core.errors.ExperimentError: clusters is 0; expected a whole number of at least 1
    """

    code = 2


class DataError(P2PKMError, ValueError):
    """Invalid points, labels, weights or partition.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.Shards.deal([[0.0], [float('nan')]], [0, 1])
    Traceback (most recent call last):
        ...
    p2pkm.core.errors.DataError: X is nan at row 1, column 0 (counted from 0); expected finite numbers: ...
    """

    code = 3


class TopologyError(P2PKMError, ValueError):
    """Invalid communication graph.

    Examples
    --------
    >>> import networkx as nx
    >>> import p2pkm
    >>> p2pkm.Topology.from_graph(nx.DiGraph([(0, 1)]))
    Traceback (most recent call last):
        ...
    p2pkm.core.errors.TopologyError: the graph is directed; ... Make it undirected, for example graph.to_undirected()
    """

    code = 3


class TrainingError(P2PKMError):
    """Divergence of the training of a neural network during a run.

    Examples
    --------
    >>> import p2pkm
    >>> issubclass(p2pkm.TrainingError, p2pkm.P2PKMError), p2pkm.TrainingError.code
    (True, 4)
    """

    code = 4


class ContractError(P2PKMError, ValueError):
    """Wrong shape or type returned by a function of a method from another package.

    Examples
    --------
    >>> import p2pkm
    >>> issubclass(p2pkm.core.errors.ContractError, p2pkm.P2PKMError), p2pkm.core.errors.ContractError.code
    (True, 2)
    """

    code = 2


class NetworkError(P2PKMError):
    """Failure of MPI, of a rank or of the disk.

    Examples
    --------
    >>> import p2pkm
    >>> issubclass(p2pkm.NetworkError, p2pkm.P2PKMError), p2pkm.NetworkError.code
    (True, 4)
    """

    code = 4
