"""Values of options that a Python program gives to a study: text, numbers and objects, with or without names."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from p2pkm.analysis.study_table import SERVED
from p2pkm.core.errors import ExperimentError, P2PKMError
from p2pkm.core.program_object import ProgramObject, is_missing_object
from p2pkm.core.spec import split_specs
from p2pkm.core.validation import as_list
from p2pkm.data.identifiers import join_names
from p2pkm.engine.run_options import OPTIONS, RunOptions
from p2pkm.experiments.object_content import FUNCTIONS, KINDS, find_digest, kind_of, wrap, wrap_function
from p2pkm.methods.peer.local_only import LocalOnly
from p2pkm.methods.registry import ALONE
from p2pkm.storage.study_mark import Names, write_names

_LISTS = ("columns", "drop", "encode")  # options that are text with commas, or a list
_FILE = {"graph": "file:", "data": "file:"}  # options whose text of a path begins so
_EXAMPLES = {"algorithm": "gtvmin:coupling=30 or p2pkm.GTVMin(16)", "graph": "small-world:degree=4 or a networkx.Graph"}


class ProgramValues:
    """Collection of the objects and names that a program gives as values of options.

    Parameters
    ----------
    where : str
        Source of the values, for error messages.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._objects: dict[ProgramObject, ProgramObject] = {}
        self._seen: dict[str, dict[Any, tuple[str, bool]]] = {}  # name of each value, and whether the user gave it

    def take(self, option: str, value: Any, name: Any = None) -> Any:
        """Return a value as text, a number or a `ProgramObject`.

        Raises
        ------
        P2PKMError
            If the name is not text, or the object cannot be the value of this option.
        """
        value = self._read(option, value)
        if name is not None:
            is_kept = option in KINDS or isinstance(value, ProgramObject)
            value = value if is_kept else _spell(option, value)
            self._record(option, value, self._check_name(option, value, name), is_chosen=True)
        elif isinstance(value, ProgramObject) or (isinstance(value, str) and option in (*KINDS, *FUNCTIONS)):
            self._record(option, value, str(value), is_chosen=False)
        return value

    def take_one(self, option: str, value: Any) -> Any:
        """Return the value of an option that has one, perhaps with its name: ``{"city": graph}``."""
        if not isinstance(value, Mapping) or option not in OPTIONS:
            return self.take(option, value)
        if len(value) != 1:
            raise ExperimentError(
                f"{self._where}: {option} has {len(value)} named values; expected one. Put several values in grid"
            )
        name, named = next(iter(value.items()))
        return self.take(option, named, name)

    def take_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options, each with one value; devices that are an array, the device of each row, are a partition."""
        devices = options.get("devices")
        if devices is not None and np.ndim(devices) == 1:
            if "partition" in options:
                raise ExperimentError(
                    f"{self._where}: devices cannot be combined with partition: both say the device of each row. "
                    "Remove one, or set devices to the number of devices"
                )
            others = {name: value for name, value in options.items() if name != "devices"}
            options = {**others, "partition": np.asarray(devices)}
        return {key: self.take_one(key.replace("-", "_"), value) for key, value in options.items()}

    def take_list(self, option: str, values: Any, name: str) -> list[Any]:
        """Return the values of an option: of a list, or with names, of a dict.

        Raises
        ------
        P2PKMError
            If the values are one value.
        """
        if isinstance(values, Mapping):
            _refuse_none(option, values.values(), name)
            return [self.take(option, value, key) for key, value in values.items()]
        if _is_object(option, values):
            raise ExperimentError(f"{name} is of type {type(values).__name__}; expected a list of values. Use [...]")
        listed = as_list(values, name)
        _refuse_none(option, listed, name)
        return [self.take(option, value) for value in listed]

    def take_specs(self, option: str, values: Any, name: str) -> list[Any]:
        """Return specs and objects from text with commas, one object, a list, or a dict of names.

        Raises
        ------
        P2PKMError
            If a value is neither text nor an object of the right kind, or a value occurs twice.
        """
        if isinstance(values, Mapping):
            for key, value in values.items():
                if isinstance(value, str) and len(split_specs([value])) > 1:
                    raise ExperimentError(f"{self._where}: {name} {key!r} is {value!r}; expected one value")
            return self._split(option, [self.take(option, value, key) for key, value in values.items()], name)
        if isinstance(values, str) or not isinstance(values, Iterable) or _is_object(option, values):
            listed = [values]
        else:
            listed = as_list(values, f"{self._where}: {name}")
        if not listed or any(value is None or isinstance(value, (bool, int, float)) for value in listed):
            raise ExperimentError(f"{self._where}: {name} is {values!r}; expected a list, such as {_EXAMPLES[option]}")
        taken = [value if isinstance(value, str) else self.take(option, value) for value in listed]
        specs = self._split(option, taken, name)
        return [spec if isinstance(spec, ProgramObject) else self.take(option, spec) for spec in specs]

    def _split(self, option: str, values: Sequence[Any], name: str) -> list[Any]:
        """Return the specs in texts with commas, and the objects between them."""
        objects = [value for value in values if isinstance(value, ProgramObject)]
        twice = next((value for value in objects if objects.count(value) > 1), None)
        if twice is not None:
            raise ExperimentError(f"{self._where}: {name} has {self._seen[option][twice][0]} twice. Remove one")
        # A text that stands for an object while lists of specs are split.
        places = {f"object-{number}": value for number, value in enumerate(objects)}
        marks = iter(places)
        texts = split_specs([next(marks) if isinstance(value, ProgramObject) else value for value in values])
        return [places.get(text, text) for text in texts]

    def find(self, option: str, value: Any) -> Any:
        """Return the value that a name stands for, an object as a `ProgramObject`, or the value itself."""
        if value is not None and not isinstance(value, str):
            return wrap(option, value)
        known = {name: named for named, name in self.collect().get(option, {}).items()}
        known |= {str(named): named for named in self._objects if named in self._seen.get(option, {})}
        return value if value is None else known.get(value, value)

    def collect(self) -> Names:
        """Label all objects, and return the names of other values by option and value.

        Raises
        ------
        ExperimentError
            If two values of an option have one name.
        """
        names: dict[str, dict[Any, str]] = {}
        for option, seen in self._seen.items():
            used: dict[str, Any] = {}
            # Names of the user come first, then text, then objects, whose names are made and can change.
            order = sorted(seen, key=lambda value: (not seen[value][1], value in self._objects))
            for value, (name, is_chosen) in ((value, seen[value]) for value in order):
                label, number = name, 1
                while label in used and value in self._objects and not is_chosen:
                    number += 1
                    label = f"{name} #{number}"
                if label in used:
                    raise ExperimentError(
                        f"{self._where}: two values of {option} are called {label!r}; expected different names. "
                        f"Use a dict {{name: value}} with other names"
                    )
                used[label] = value
            for label, value in used.items():
                if isinstance(value, ProgramObject):
                    value.label = label
            names[option] = {
                value: label for label, value in used.items() if label != value and not isinstance(value, ProgramObject)
            }
        return {option: labels for option, labels in names.items() if labels}

    def to_tables(self) -> list[dict[str, Any]]:
        """Return the names as tables of a study file."""
        return write_names(self.collect())

    def _read(self, option: str, value: Any) -> Any:
        """Return a value as text, a number or a `ProgramObject`."""
        if isinstance(value, np.generic):
            value = value.item()
        if option not in OPTIONS or value is None or isinstance(value, (str, bool, int, float)):
            return value
        if isinstance(value, os.PathLike):
            return _FILE.get(option, "") + os.fspath(value)
        if option in _LISTS and isinstance(value, (list, tuple)):
            return join_names([str(column) for column in value])
        if option in KINDS:
            wrapped = wrap(option, value)
            if option == "algorithm" and _is_alone(value):
                wrapped.label = ALONE
            return self._objects.setdefault(wrapped, wrapped)
        function = wrap_function(option, value)
        if isinstance(function, ProgramObject):
            return self._objects.setdefault(function, function)
        if OPTIONS[option].reads:
            return str(OPTIONS[option].reader(value))
        if isinstance(value, (list, tuple, Mapping)):  # a later check tells where lists belong
            return value
        raise ExperimentError(f"{self._where}: {option} is of type {type(value).__name__}; expected text or a number")

    def _check_name(self, option: str, value: Any, name: Any) -> str:
        """Check the name that a user gives to a value."""
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise ExperimentError(f"{self._where}: a value of {option} is called {name!r}; expected text in one line")
        if option == "graph" and name == SERVED:
            raise ExperimentError(
                f"{self._where}: a graph is called {name!r}, which stands for the star of a server. Use another name"
            )
        is_alone = option == "algorithm" and isinstance(value, ProgramObject) and _is_alone(value.value)
        return f"{ALONE}: {name}" if is_alone and name != ALONE else name

    def _record(self, option: str, value: Any, name: str, *, is_chosen: bool) -> None:
        seen = self._seen.setdefault(option, {})
        before, was_chosen = seen.get(value, (name, False))
        if was_chosen and is_chosen and before != name:
            raise ExperimentError(
                f"{self._where}: {option} has one value under the names {before!r} and {name!r}. Remove one of them"
            )
        if not was_chosen:
            seen[value] = name, is_chosen


def _is_alone(method: Any) -> bool:
    return issubclass(kind_of(method), LocalOnly)


def _is_object(option: str, value: Any) -> bool:
    """Check whether a value is one object, as opposed to text and to lists."""
    if option not in KINDS or isinstance(value, (str, list, tuple, Mapping, Iterator)):
        return False
    try:
        find_digest(option, value)
    except P2PKMError:
        return False
    return True


def _refuse_none(option: str, values: Iterable[Any], name: str) -> None:
    """Reject None in a list: a study file cannot hold it."""
    if any(value is None for value in values):
        raise ExperimentError(
            f"{name} contains None; expected values. For runs without {option} use runs=[{{}}, {{{option!r}: ...}}]"
        )


def _spell(option: str, value: Any) -> Any:
    """Return a value as the rows of a study have it; a wrong one unchanged, for a later check."""
    try:
        return RunOptions.from_mapping({option: value}, "").to_mapping().get(option)
    except P2PKMError:
        return value


def label_objects(content: Any, names: Names) -> Any:
    """Return the content of the file of a study in which objects have their names; version 0.1.0 wrote digests only."""
    if isinstance(content, Mapping):
        return {name: label_objects(part, names) for name, part in content.items()}
    if isinstance(content, list):
        return [label_objects(part, names) for part in content]
    if not is_missing_object(content):
        return content
    found = next((known[content] for known in names.values() if content in known), None)
    return content if found is None else f"{found} (object {content.removeprefix('object:')})"
