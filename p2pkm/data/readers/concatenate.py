"""Points from several places, end to end."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.data.readers.columns import Parts, listed

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
    return Parts(np.concatenate([one.points for _, one in found]), label, device, first.names)


def _check_alike(place: str, one: Parts, where: str, first: Parts) -> None:
    features = one.points.shape[1], first.points.shape[1]
    if features[0] != features[1]:
        raise DataError(f"{place} has {features[0]} features, but {where} has {features[1]}; expected the same in all")
    if one.names != first.names:
        odd = [name for name in one.names if name not in first.names] or one.names
        raise DataError(
            f"{place} has the features {listed(odd)}, but {where} {listed(first.names)}; expected the same in the same "
            "order"
        )
    for role in ("label", "device"):
        kinds = [_kind(getattr(parts, role)) for parts in (one, first)]
        if kinds[0] != kinds[1]:
            raise DataError(f"{place} has {kinds[0]} as {role}, but {where} has {kinds[1]}; expected the same in all")


def _kind(values: NDArray[Any] | None) -> str:
    return "nothing" if values is None else "text" if values.dtype.kind in _TEXT else "numbers"
