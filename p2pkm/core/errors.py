"""Errors that a user can fix: each message has what was given, what was expected and what to do."""


class P2PKMError(Exception):
    """Stand for every error that p2pkm raises on purpose; `code` is the exit code of the command line.

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
    """Report an option, a key or a combination of them that does not exist or is out of range.

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
    """Report points, labels, weights or a partition that cannot be used.

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
    """Report a communication graph that cannot be used.

    Examples
    --------
    >>> import networkx as nx
    >>> import p2pkm
    >>> p2pkm.Topology.from_graph(nx.DiGraph([(0, 1)]))
    Traceback (most recent call last):
        ...
    p2pkm.core.errors.TopologyError: the graph is directed, ... make it undirected, e.g. graph.to_undirected()
    """

    code = 3


class TrainingError(P2PKMError):
    """Report that the training of a network diverged during a run.

    Examples
    --------
    >>> import p2pkm
    >>> issubclass(p2pkm.TrainingError, p2pkm.P2PKMError), p2pkm.TrainingError.code
    (True, 4)
    """

    code = 4


class ContractError(P2PKMError, ValueError):
    """Report that a function of a method from another package returned a wrong shape or type.

    Examples
    --------
    >>> import p2pkm
    >>> issubclass(p2pkm.core.errors.ContractError, p2pkm.P2PKMError), p2pkm.core.errors.ContractError.code
    (True, 2)
    """

    code = 2


class NetworkError(P2PKMError):
    """Report that MPI, a rank or the disk failed.

    Examples
    --------
    >>> import p2pkm
    >>> issubclass(p2pkm.NetworkError, p2pkm.P2PKMError), p2pkm.NetworkError.code
    (True, 4)
    """

    code = 4
