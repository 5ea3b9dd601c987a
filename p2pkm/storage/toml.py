"""Reader of TOML files with options."""

import os
from typing import Any

from p2pkm.core.errors import ExperimentError

# Largest size of a file in bytes: the parser takes quadratic time on some malformed contents.
_LARGEST = 16_384


def read_toml(path: str) -> dict[str, Any]:
    """Read the keys of a TOML file on one level.

    Raises
    ------
    ExperimentError
        If the file does not exist, is not TOML, or contains tables.
    """
    keys = load_toml(path, "config file")
    for name, value in keys.items():
        if isinstance(value, (dict, list)):
            raise ExperimentError(
                f"config file {path}: {name!r} is a table or a list; expected one level of keys, such as k = 3"
            )
        if isinstance(value, int) and abs(value) >= 2**64:
            raise ExperimentError(f"config file {path}: {name!r} is too large; expected a number of at most 64 bits")
    return keys


def load_toml(path: str, what: str, hint: str = "") -> dict[str, Any]:
    """Read a TOML file of options.

    Parameters
    ----------
    path : str
        Path of the file.
    what : str
        Kind of the file in messages.
    hint : str
        Text that is appended to messages.

    Raises
    ------
    ExperimentError
        If the file does not exist, is too large, or is not TOML.
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
    # Numbers with thousands of digits raise ValueError, too.
    except (ValueError, OSError, RecursionError) as error:
        raise ExperimentError(f"{what} {path} cannot be read: {error}; expected a TOML file of options{hint}") from None


def parse_value(text: str) -> Any:
    """Return the number or truth value that a text is in TOML; any other text unchanged."""
    import tomllib

    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, (bool, int, float)) else text
