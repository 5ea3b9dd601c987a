"""File that marks the folder of repeated runs and says what was asked, so that an interrupted study can continue."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.storage.save import write_bytes

MARK = "study.toml"
SWEEP, COMPARISON, BENCH, SEEDS, PATH = "sweep", "comparison", "bench", "seeds", "coupling path"
# Files that marked the other kinds in earlier versions. A path of couplings had its table only.
_EARLIER = {"comparison.json": COMPARISON, "bench.json": BENCH, "seeds.toml": SEEDS, "path.jsonl": PATH}
Names = Mapping[str, Mapping[Any, str]]  # name of each value that has one, by option and value
# Options in the file of an earlier comparison that its grid has, or that a study lacks.
_VARIED = ("algorithm", "graph", "seed", "require_converged")


def kind_of(folder: Path) -> str:
    """Return the kind of the study in a folder; empty without one.

    Raises
    ------
    DataError
        If its file cannot be read.
    """
    if (folder / MARK).is_file():
        return str(_parse(folder / MARK).get("kind", SWEEP))
    return next((kind for name, kind in _EARLIER.items() if (folder / name).is_file()), "")


def read_mark(folder: Path) -> dict[str, Any]:
    """Read what was asked in the folder of a study, also of earlier versions; empty without a study.

    Raises
    ------
    DataError
        If its file cannot be read.
    """
    if (folder / MARK).is_file():
        return {"kind": SWEEP} | _parse(folder / MARK)
    for name, kind in _EARLIER.items():
        path = folder / name
        if path.is_file():
            content = {} if kind == PATH else _parse(path)
            if kind == COMPARISON and content:
                content = _update_comparison(content, path)
            return {"kind": kind} | content
    return {}


def _parse(path: Path) -> dict[str, Any]:
    """Parse a file of an interrupted study, which is TOML or JSON."""
    try:
        text = path.read_text("utf-8")
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        return dict(content)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path} cannot be read: {type(error).__name__}: {error}. Restore a copy, or start again in another folder"
    )


def _update_comparison(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Convert the configuration of a comparison of an earlier version to that of a study with a reference."""
    try:
        grid = {"algorithm": content["algorithms"], "graph": content["graphs"]}
        base = {name: value for name, value in content["base"].items() if name not in _VARIED}
        asked = {name: content[name] for name in ("seeds", "reference")}
    except (KeyError, AttributeError) as error:
        raise _damaged(path, error) from None
    further = {name: content[name] for name in ("margin", "names") if name in content}
    return base | asked | further | {"grid": grid}


def write_mark(folder: Path, kind: str, content: Mapping[str, Any]) -> None:
    """Write what was asked into the folder of a study; options without a value are left out."""
    write_bytes(folder, MARK, lambda file: file.write(format_mark(kind, content).encode()))


def format_mark(kind: str, content: Mapping[str, Any]) -> str:
    """Return the text of the file of a study."""
    import tomli_w

    # A study file of the user is its own mark, without a kind.
    named = {} if kind == SWEEP else {"kind": kind}
    return tomli_w.dumps(named | {name: value for name, value in content.items() if value is not None})


def write_names(names: Names) -> list[dict[str, Any]]:
    """Return names as tables of a study file; one without a value names None."""
    return [
        {"option": option, "name": name} | ({} if value is None else {"value": value})
        for option, known in names.items()
        for value, name in known.items()
    ]


def read_names(tables: Any, where: str) -> dict[str, dict[Any, str]]:
    """Read the names of a study file.

    Raises
    ------
    ExperimentError
        If they are not tables of option, value and name.
    """
    names: dict[str, dict[Any, str]] = {}
    listed: Sequence[Any] = tables if isinstance(tables, list) else [tables]
    for table in listed:
        if not isinstance(table, dict) or not all(isinstance(table.get(key), str) for key in ("option", "name")):
            raise ExperimentError(
                f"{where}: names contains {table!r}; expected tables, each with option, value and name"
            )
        names.setdefault(table["option"], {})[table.get("value")] = table["name"]
    return names
