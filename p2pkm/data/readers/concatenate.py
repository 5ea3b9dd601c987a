"""Concatenation of the contents of several files."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.data.identifiers import are_numbers, concatenate_identifiers
from p2pkm.data.readers.columns import FileContents, list_names
from p2pkm.data.readers.intake import Categories


def join_contents(contents: Sequence[tuple[str, FileContents]]) -> FileContents:
    """Concatenate contents; each comes with its location for messages.

    Raises
    ------
    DataError
        If contents differ from the first in features, their names, or the kinds of labels and devices.
    """
    filled = [part for part in contents if len(part[1].points)] or contents[:1]
    where, first = filled[0]
    for location, part in contents:
        # Users of LEAF without samples are without features.
        if part.points.shape[1] or part.categories:
            _check_equal(location, part, where, first)
    label, device = (
        None if getattr(first, role) is None else concatenate_identifiers([getattr(part, role) for _, part in filled])
        for role in ("label", "device")
    )
    categories = tuple(
        Categories(kinds[0].name, np.concatenate([part.values for part in kinds]))
        for kinds in zip(*(part.categories for _, part in filled), strict=True)
    )
    copied = tuple(
        Categories(parts[0].name, concatenate_identifiers([part.values for part in parts]))
        for parts in zip(*(part.copied for _, part in filled), strict=True)
    )
    # Rows of files without weights count as 1.
    weights = [np.ones(len(part.points)) if part.weight is None else part.weight for _, part in filled]
    weighted = any(part.weight is not None for _, part in filled)
    sizes = [len(part.points) if part.total is None else part.total for _, part in contents]
    begins = np.cumsum([0, *sizes])
    rows = [
        begin + (np.arange(size) if part.rows is None else part.rows)
        for begin, size, (_, part) in zip(begins[:-1], sizes, contents, strict=True)
    ]
    is_complete = all(part.rows is None for _, part in contents)
    owners = [part.owners for _, part in contents if part.owners is not None]
    return FileContents(
        np.concatenate([part.points for _, part in filled]), label, device, first.names, categories=categories,
        rows=None if is_complete else np.concatenate(rows), total=int(begins[-1]), image=first.image,
        weight=np.concatenate(weights) if weighted else None, copied=copied, device_name=first.device_name,
        positions=first.positions,
        owners=concatenate_identifiers(owners) if owners else None, why_empty=first.why_empty,
        notes=tuple(dict.fromkeys(note for _, part in contents for note in part.notes)),
    )  # fmt: skip


def _check_equal(location: str, part: FileContents, where: str, first: FileContents) -> None:
    """Validate that two files have equal features, images, and kinds of label and device."""
    features = [parts.points.shape[1] + len(parts.categories) for parts in (part, first)]
    if features[0] != features[1]:
        raise DataError(
            f"{location} has {features[0]} features, but {where} has {features[1]}; expected the same features "
            "in all files"
        )
    _check_names(location, part, where, first)
    if part.image != first.image:
        shapes = ["x".join(map(str, parts.image)) if parts.image else "none" for parts in (part, first)]
        raise DataError(
            f"{location} has images of shape {shapes[0]}, but {where} has shape {shapes[1]}; expected the same "
            "shape in all files"
        )
    for role in ("label", "device"):
        kinds = [_kind(getattr(parts, role)) for parts in (part, first)]
        if kinds[0] != kinds[1] and "" not in kinds:
            raise DataError(
                f"{location} has {kinds[0]} as {role}, but {where} has {kinds[1]}; expected the same kind in all files"
            )


def _check_names(location: str, part: FileContents, where: str, first: FileContents) -> None:
    names, known = ((*parts.names, *(column.name for column in parts.categories)) for parts in (part, first))
    coded = [{column.name for column in parts.categories} for parts in (part, first)]
    # In a file without rows, a column of dates cannot be distinguished from one of categories.
    rows = len(part.points)
    if rows and (mixed := sorted((coded[0] ^ coded[1]) & set(names) & set(known))):
        with_dates, without = (where, location) if mixed[0] in coded[0] else (location, where)
        raise DataError(
            f"column {mixed[0]!r} contains dates in {with_dates}, but not in {without}; expected dates such as "
            "2026-01-31 in all files, or in none"
        )
    if names != known if rows else sorted(names) != sorted(known):
        odd = [name for name in names if name not in known] or names
        raise DataError(
            f"{location} has the features {list_names(odd)}, but {where} has {list_names(known)}; expected the same "
            "features in the same order"
        )


def _kind(raw: NDArray[Any] | None) -> str:
    """Return the kind of a column of identifiers; empty for a column without values, which matches all kinds."""
    if raw is None or not len(raw):
        return "nothing" if raw is None else ""
    return "numbers" if are_numbers(raw) else "text"
