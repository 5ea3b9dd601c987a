"""Points from several places, end to end."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.data.readers.columns import Parts, listed
from p2pkm.data.readers.intake import Categories

_TEXT = "OUS"


def join(found: Sequence[tuple[str, Parts]]) -> Parts:
    """Lay points end to end; each comes with the words for its place.

    Raises
    ------
    DataError
        If one is not like the first: in its features, their names, or the kinds of its labels and devices.
    """
    where, first = found[0]
    for place, one in found[1:]:
        _check_alike(place, one, where, first)
    label, device = (
        None if getattr(first, role) is None else np.concatenate([getattr(one, role) for _, one in found])
        for role in ("label", "device")
    )
    categories = tuple(
        Categories(kinds[0].name, np.concatenate([one.values for one in kinds]))
        for kinds in zip(*(one.categories for _, one in found), strict=True)
    )
    sizes = [one.total or len(one.points) for _, one in found]
    begins = np.cumsum([0, *sizes])
    kept = [
        begin + (np.arange(size) if one.rows is None else one.rows)
        for begin, size, (_, one) in zip(begins[:-1], sizes, found, strict=True)
    ]
    whole = all(one.rows is None for _, one in found)
    return Parts(
        np.concatenate([one.points for _, one in found]), label, device, first.names, categories=categories,
        rows=None if whole else np.concatenate(kept), total=int(begins[-1]), image=first.image,
    )  # fmt: skip


def _check_alike(place: str, one: Parts, where: str, first: Parts) -> None:
    features = [parts.points.shape[1] + len(parts.categories) for parts in (one, first)]
    if features[0] != features[1]:
        raise DataError(f"{place} has {features[0]} features, but {where} has {features[1]}; expected the same in all")
    names, known = ((*parts.names, *(column.name for column in parts.categories)) for parts in (one, first))
    coded = [{column.name for column in parts.categories} for parts in (one, first)]
    if mixed := sorted((coded[0] ^ coded[1]) & set(names) & set(known)):
        dates, others = (where, place) if mixed[0] in coded[0] else (place, where)
        raise DataError(
            f"column {mixed[0]!r} holds dates in {dates}, but not in {others}; expected the same in all, dates such as "
            "2026-01-31"
        )
    if names != known:
        odd = [name for name in names if name not in known] or names
        raise DataError(
            f"{place} has the features {listed(odd)}, but {where} {listed(known)}; expected the same in the same order"
        )
    if one.image != first.image:
        shapes = ["x".join(map(str, parts.image)) if parts.image else "none" for parts in (one, first)]
        raise DataError(
            f"{place} has images of the shape {shapes[0]}, but {where} {shapes[1]}; expected the same in all"
        )
    for role in ("label", "device"):
        kinds = [_kind(getattr(parts, role)) for parts in (one, first)]
        if kinds[0] != kinds[1]:
            raise DataError(f"{place} has {kinds[0]} as {role}, but {where} has {kinds[1]}; expected the same in all")


def _kind(values: NDArray[Any] | None) -> str:
    return "nothing" if values is None else "text" if values.dtype.kind in _TEXT else "numbers"
