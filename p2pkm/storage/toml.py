"""Options read from a file."""

import os
from typing import Any

from p2pkm.core.errors import ExperimentError

_LARGEST = 16_384  # bytes; some kinds of nonsense take the parser time that grows with the square


def read_toml(path: str) -> dict[str, Any]:
    """Read the keys of a TOML file on one level.

    Raises
    ------
    ExperimentError
        If the file is missing, is not TOML, or has tables.
    """
    keys = load_toml(path, "config file")
    for name, value in keys.items():
        if isinstance(value, (dict, list)):
            raise ExperimentError(f"config file {path}: {name!r} is a table or a list; expected one level of keys")
        if isinstance(value, int) and abs(value) >= 2**64:
            raise ExperimentError(f"config file {path}: {name!r} is too large; expected a number of at most 64 bits")
    return keys


def load_toml(path: str, what: str, hint: str = "") -> dict[str, Any]:
    """Read a TOML file of options; `what` it is goes into messages, and a hint to who has none.

    Raises
    ------
    ExperimentError
        If the file is missing, large, or not TOML.
    """
    import tomllib

    if not os.path.isfile(path):
        raise ExperimentError(f"{what} {path} does not exist; expected a TOML file of options{hint}")
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST} bytes")
        return tomllib.loads(content.decode())
    except (ValueError, OSError, RecursionError) as error:  # also of numbers with thousands of digits
        raise ExperimentError(f"{what} {path} cannot be read: {error}; expected a TOML file of options{hint}") from None
