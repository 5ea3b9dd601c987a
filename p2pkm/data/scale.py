"""Scaling of the features: by statistics that the devices compute, or by ranges that are public."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Union

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.spec import suggest

SCALES = ("none", "standard", "minmax")
_PREFIX = "ranges:"
_FORM = 'expected ranges:NAME=LOW..HIGH,..., such as ranges:age=0..100,bmi=10..50; in Python {"age": (0, 100)}'
_LISTED = 8


@dataclass(frozen=True)
class FeatureRanges:
    """Ranges of the features that are known without looking at the points, such as those of a guideline.

    A range is mapped to -1 to 1. Nothing is computed from points, so no message is sent; values outside are mapped to
    values outside.

    Attributes
    ----------
    ranges : tuple of (str, float, float)
        Name, lower and upper end for each feature; an empty name for all that have no other.
    """

    ranges: tuple[tuple[str, float, float], ...]

    def __str__(self) -> str:
        """Return the text of the command line, such as ``ranges:age=0..100,bmi=10..50``."""
        ends = [f"{low!r}".removesuffix(".0") + ".." + f"{high!r}".removesuffix(".0") for _, low, high in self.ranges]
        names = [f"{name}=" if name else "" for name, _, _ in self.ranges]
        return _PREFIX + ",".join(map("".join, zip(names, ends, strict=True)))

    @classmethod
    def of(cls, value: Any) -> Union["FeatureRanges", str]:
        """Read ranges: the text of the command line, or a mapping from names of features to pairs of numbers.

        The names of the other scalings are returned unchanged.

        Raises
        ------
        ExperimentError
            If the value is something else, or a range has an end that is not a number, or is empty.
        """
        if isinstance(value, FeatureRanges):
            return value
        if isinstance(value, str):
            if value in SCALES:
                return value
            if not value.startswith(_PREFIX):
                raise ExperimentError(f"scale is {value!r}. {suggest(value, (*SCALES, 'ranges'))}")
            return cls(_check(_parse(value)))
        if not isinstance(value, Mapping):
            raise ExperimentError(f"scale is {value!r}; expected {', '.join(SCALES)} or ranges; {_FORM}")
        pairs: list[tuple[Any, Any, Any]] = []
        for name, ends in value.items():
            if not (isinstance(name, str) and isinstance(ends, Sequence | np.ndarray) and len(ends) == 2):
                raise ExperimentError(f"scale has the range {ends!r} for {name!r}; {_FORM}")
            if "," in name:
                # The text in config.toml separates features by commas.
                raise ExperimentError(
                    f"scale has a range for {name!r}; expected a name without comma. Rename the column"
                )
            pairs.append((name, ends[0], ends[1]))
        return cls(_check(pairs))

    def find_units(self, names: Sequence[str], d: int) -> tuple[Floats, Floats]:
        """Return shift and span of each feature, float64[d]: middle and half of the width of its range.

        Parameters
        ----------
        names : sequence of str
            Names of the features; empty if they are unnamed.
        d : int
            Number of features.

        Raises
        ------
        DataError
            If a feature has no range, or a range no feature.
        """
        known = {name: (low, high) for name, low, high in self.ranges}
        others = known.pop("", None)
        listed = ", ".join(names[:_LISTED]) + ", ..." * (len(names) > _LISTED) if names else "unnamed"
        for name in known:
            if name not in names:
                instead = "Use ranges:LOW..HIGH for all features" if not names else suggest(name, names)
                raise DataError(f"scale has a range for {name!r}, but the features are {listed}. {instead}")
        lacking = [name for name in names if name not in known] if names else ["all features"]
        if others is None and lacking:
            raise DataError(
                f"scale has no range for {lacking[0]}; the features are {listed}. Add {lacking[0]}=LOW..HIGH, or "
                "LOW..HIGH for all features without a range of their own"
            )
        ends = np.array([known.get(name, others) for name in names] or [others] * d, np.float64)
        return (ends[:, 0] + ends[:, 1]) / 2.0, (ends[:, 1] - ends[:, 0]) / 2.0


def _parse(text: str) -> list[tuple[str, Any, Any]]:
    """Split the text of ranges into names and ends."""
    pairs: list[tuple[str, Any, Any]] = []
    for part in text.removeprefix(_PREFIX).split(","):
        # A name may contain "=": that of an encoded category does.
        name, _, ends = part.strip().rpartition("=")
        low, dots, high = ends.partition("..")
        if not dots:
            raise ExperimentError(f"scale has the range {part!r}; {_FORM}")
        try:
            pairs.append((name.strip(), float(low), float(high)))
        except ValueError:
            raise ExperimentError(f"scale has the range {part!r}; {_FORM}") from None
    return pairs


def _check(pairs: Sequence[tuple[str, Any, Any]]) -> tuple[tuple[str, float, float], ...]:
    """Validate the ends of ranges, and that each feature has one range."""
    checked: dict[str, tuple[str, float, float]] = {}
    for name, *ends in pairs:
        what = f"the range of {name}" if name else "the range of all features"
        for end in ends:
            if not isinstance(end, Real) or isinstance(end, bool) or not math.isfinite(end):
                raise ExperimentError(f"{what} has the end {end!r}; expected a finite number")
        low, high = map(float, ends)
        if not low < high:
            raise ExperimentError(f"{what} is {low:g}..{high:g}; expected a lower end below the upper end")
        if name in checked:
            raise ExperimentError(f"scale has {what} twice. Remove one")
        checked[name] = name, low, high
    return tuple(checked.values())
