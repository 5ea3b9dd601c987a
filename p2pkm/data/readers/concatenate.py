"""Points from several places, end to end."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.data.identifiers import are_numbers, concatenate
from p2pkm.data.readers.columns import FileContents, listed
from p2pkm.data.readers.intake import Categories


def join(found: Sequence[tuple[str, FileContents]]) -> FileContents:
    """Lay points end to end; each comes with the words for its place.

    Raises
    ------
    DataError
        If one is not like the first: in its features, their names, or the kinds of its labels and devices.
    """
    filled = [one for one in found if len(one[1].points)] or found[:1]
    where, first = filled[0]
    for place, one in found:
        if one.points.shape[1] or one.categories:  # users of LEAF without samples have no features
            _check_alike(place, one, where, first)
    label, device = (
        None if getattr(first, role) is None else concatenate([getattr(one, role) for _, one in filled])
        for role in ("label", "device")
    )
    categories = tuple(
        Categories(kinds[0].name, np.concatenate([one.values for one in kinds]))
        for kinds in zip(*(one.categories for _, one in filled), strict=True)
    )
    sizes = [len(one.points) if one.total is None else one.total for _, one in found]
    begins = np.cumsum([0, *sizes])
    kept = [
        begin + (np.arange(size) if one.rows is None else one.rows)
        for begin, size, (_, one) in zip(begins[:-1], sizes, found, strict=True)
    ]
    whole = all(one.rows is None for _, one in found)
    owners = [one.owners for _, one in found if one.owners is not None]
    return FileContents(
        np.concatenate([one.points for _, one in filled]), label, device, first.names, categories=categories,
        rows=None if whole else np.concatenate(kept), total=int(begins[-1]), image=first.image,
        owners=concatenate(owners) if owners else None, why_empty=first.why_empty,
        notes=tuple(dict.fromkeys(note for _, one in found for note in one.notes)),
    )  # fmt: skip


def _check_alike(place: str, one: FileContents, where: str, first: FileContents) -> None:
    """Raise an error if two files have different features, images, or kinds of label and device."""
    features = [parts.points.shape[1] + len(parts.categories) for parts in (one, first)]
    if features[0] != features[1]:
        raise DataError(f"{place} has {features[0]} features, but {where} has {features[1]}; expected the same in all")
    _check_names(place, one, where, first)
    if one.image != first.image:
        shapes = ["x".join(map(str, parts.image)) if parts.image else "none" for parts in (one, first)]
        raise DataError(
            f"{place} has images of the shape {shapes[0]}, but {where} {shapes[1]}; expected the same in all"
        )
    for role in ("label", "device"):
        kinds = [_kind(getattr(parts, role)) for parts in (one, first)]
        if kinds[0] != kinds[1] and "" not in kinds:
            raise DataError(f"{place} has {kinds[0]} as {role}, but {where} has {kinds[1]}; expected the same in all")


def _check_names(place: str, one: FileContents, where: str, first: FileContents) -> None:
    names, known = ((*parts.names, *(column.name for column in parts.categories)) for parts in (one, first))
    coded = [{column.name for column in parts.categories} for parts in (one, first)]
    rows = len(one.points)  # without any, a column of dates cannot be told from one of categories
    if rows and (mixed := sorted((coded[0] ^ coded[1]) & set(names) & set(known))):
        dates, others = (where, place) if mixed[0] in coded[0] else (place, where)
        raise DataError(
            f"column {mixed[0]!r} holds dates in {dates}, but not in {others}; expected the same in all, dates such as "
            "2026-01-31"
        )
    if names != known if rows else sorted(names) != sorted(known):
        odd = [name for name in names if name not in known] or names
        raise DataError(
            f"{place} has the features {listed(odd)}, but {where} {listed(known)}; expected the same in the same order"
        )


def _kind(raw: NDArray[Any] | None) -> str:
    """Return the kind of a column of identifiers; empty: it has no values, which go with all kinds."""
    if raw is None or not len(raw):
        return "nothing" if raw is None else ""
    return "numbers" if are_numbers(raw) else "text"
