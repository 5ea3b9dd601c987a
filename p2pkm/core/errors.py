"""Errors that a user can fix; each message names the value, the expected values and the fix.

Messages are written with the options of the command line, such as ``--link-model wan``. An error that a Python program
receives names the arguments instead: ``link_model='wan'``.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

# Set while the command line runs, and inherited by its processes.
_VARIABLE = "P2PKM_COMMAND_LINE"
# Commands, which are not changed; an option whose argument in Python has another form, which follows it; an option and
# the word after it.
_COMMAND = r"(?:python -m p2pkm|(?<!\w)p2pkm|srun|mpirun|pip) .*?(?=[.;)](?:\s|$)|$)"
_NAMED = r"(?<![\w-])--?[a-z][\w-]*(?: [^\s()]+)? \(in Python (?P<python>(?:[^()]|\([^()]*\))*)\)"
_VALUE = r"'[^']*'|(?:[^\s,;:)]|[,;:](?=[^\s)]))+"
_OPTION = rf"(?<![\w-])(?:--(?P<name>[a-z][a-z-]*[a-z])|-k(?= ))(?P<rest>[ =](?P<value>{_VALUE}))?"
_MENTION = re.compile(f"(?P<command>{_COMMAND})|{_NAMED}|{_OPTION}")
# Options that take no value, and words after other options that are not their values.
_FLAGS = frozenset(
    ("all-rounds", "allow-disconnected", "baselines", "common", "dry-run", "force", "groups", "plot",
     "require-converged", "silhouette", "update-reference")
)  # fmt: skip
# Options whose values are texts even if they look like numbers or placeholders.
_TEXTS = frozenset(("na", "rename"))
_WORDS = frozenset(
    ("and", "are", "as", "by", "cannot", "changes", "copies", "first", "for", "from", "if", "in", "instead", "is", "it",
     "keeps", "may", "must", "names", "needs", "of", "on", "only", "or", "otherwise", "reached", "removes", "require",
     "requires", "runs", "shows", "so", "than", "that", "the", "to", "which", "with", "without")
)  # fmt: skip


@contextmanager
def command_line() -> Iterator[None]:
    """Let errors name options as on the command line, in this process and in those that it starts."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]


def name_arguments(message: str) -> str:
    """Replace options of the command line by arguments of Python.

    Examples
    --------
    >>> name_arguments("Remove --link-model, or use --schedule colored with --no-baselines")
    "Remove link_model, or use schedule='colored' with baselines=False"
    """
    return _MENTION.sub(_name_argument, message)


def _name_argument(match: re.Match[str]) -> str:
    """Return the replacement of an option, or a command unchanged."""
    if match["command"] is not None:
        return match[0]
    if match["python"] is not None:
        return match["python"]
    option, rest, value = match["name"] or "clusters", match["rest"] or "", match["value"] or ""
    if option.startswith("no-"):
        return option.removeprefix("no-").replace("-", "_") + "=False" + rest
    name = option.replace("-", "_")
    if not value or option in _FLAGS or value in _WORDS or re.match(r"\(|-(?![0-9])", value):
        return name + _MENTION.sub(_name_argument, rest)
    # The end of a sentence is not part of the value.
    end = "." if value.endswith(".") and value != "." else ""
    value = value.removesuffix(end)
    is_unquoted = option not in _TEXTS and (value.isupper() or re.fullmatch(r"-?[0-9.\\]*[0-9]", value))
    is_literal = is_unquoted or value.startswith(("'", '"'))
    return f"{name}={value if is_literal else repr(value)}{end}"


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

    def __str__(self) -> str:
        """Return the message, with options as the user sets them: on the command line, or in Python."""
        message = super().__str__()
        return message if os.environ.get(_VARIABLE) else name_arguments(message)


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
