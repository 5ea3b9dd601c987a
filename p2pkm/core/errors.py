"""Errors that a user can fix: each message has what was given, what was expected and what to do."""


class P2PKMError(Exception):
    """Stand for every error that p2pkm raises on purpose; `code` is the exit code of the command line."""

    code = 1


class ExperimentError(P2PKMError, ValueError):
    """Report an option, a key or a combination of them that does not exist or is out of range."""

    code = 2


class DataError(P2PKMError, ValueError):
    """Report points, labels, weights or a partition that cannot be used."""

    code = 3


class TopologyError(P2PKMError, ValueError):
    """Report a communication graph that cannot be used."""

    code = 3


class NetworkError(P2PKMError):
    """Report that MPI, a rank or the disk failed."""

    code = 4
