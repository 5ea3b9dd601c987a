"""Transforms by name: those of this package, and those of plug-ins, which `--transforms` selects.

The module of a transform is imported in runs whose options can select it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from p2pkm.channel.transform import Settings, Transform, find_missing_mixins
from p2pkm.core.errors import ContractError, ExperimentError
from p2pkm.core.plugins import TRANSFORMS as GROUP
from p2pkm.core.plugins import extend
from p2pkm.core.spec import Spec, parse, split_specs
from p2pkm.core.validation import check_scalar


class TransformEntry(NamedTuple):
    """Location of a transform.

    Attributes
    ----------
    module : str
        Module within the package `p2pkm.channel`.
    kind : str
        Name of the class.
    options : tuple of str
        If all of these options are None, the transform does not act; empty: it may act in every run.
    """

    module: str
    kind: str
    options: tuple[str, ...] = ()


TRANSFORMS: dict[str, TransformEntry | type[Transform]] = {
    "suppression": TransformEntry("suppression", "Suppression"),
    "noise": TransformEntry("noise", "GaussianNoise", ("noise",)),
    "quantization": TransformEntry("quantization", "Quantizer", ("quantize",)),
    "byzantine": TransformEntry("byzantine", "ByzantineMessages", ("byzantine",)),
    "disclosure": TransformEntry("suppression", "Disclosure"),
    "faults": TransformEntry("faults", "FaultInjector", ("faults", "stale_policy")),
    "rejection": TransformEntry("rejection", "Rejection"),
}


def find(name: str) -> type[Transform]:
    """Return the class of a transform of this package."""
    entry = TRANSFORMS[name]
    if not isinstance(entry, TransformEntry):
        return entry
    kind: type[Transform] = getattr(import_module(f"p2pkm.channel.{entry.module}"), entry.kind)
    return kind


def iter_selectable(options: Settings) -> Iterator[type[Transform]]:
    """Yield the transforms of this package that the options of a run can select."""
    for name, entry in TRANSFORMS.items():
        needed = entry.options if isinstance(entry, TransformEntry) else ()
        if not needed or any(options.get(option) is not None for option in needed):
            yield find(name)


@dataclass(frozen=True)
class PluginTransforms:
    """Transforms of plug-ins with their options, each a class and its spec."""

    parts: tuple[tuple[type[Transform], Spec], ...]

    def __str__(self) -> str:
        """Return the text of the command line, such as ``rounding:digits=3,dither``."""
        return ",".join(str(spec) for _, spec in self.parts)

    @classmethod
    def of(cls, value: "PluginTransforms | str | None") -> "PluginTransforms | None":
        """Convert a text of specs, separated by commas; other values are returned unchanged.

        Raises
        ------
        ExperimentError
            If a name, a key or a value is unknown, or a plug-in cannot be imported.
        ContractError
            If a class is not a transform, or lacks a mixin for the methods that it defines.
        """
        if value is None or isinstance(value, PluginTransforms):
            return value
        parts: list[tuple[Any, Spec]] = []
        for text in [] if check_scalar(value, "transforms") == "" else split_specs([value]):
            kinds = extend(TRANSFORMS, GROUP, text)
            name = text.partition(":")[0]
            kind: Any = Transform if name in TRANSFORMS else kinds.get(name, Transform)
            if not (isinstance(kind, type) and issubclass(kind, Transform)):
                raise ContractError(
                    f"transform {name} is {kind!r}; expected a subclass of p2pkm.channel.transform.Transform"
                )
            for mixin, methods in find_missing_mixins(kind).items():
                raise ContractError(
                    f"transform {name} defines {', '.join(methods)}, which are not called without "
                    f"p2pkm.channel.transform.{mixin}; inherit from {mixin} and Transform"
                )
            if not kinds.keys() - TRANSFORMS.keys():
                raise ExperimentError(
                    f"transforms is {text!r}, but no installed package adds a transform. Remove --transforms, or "
                    "install the package (docs/howto/add-a-transform.md shows how one is written)"
                )
            spec = parse(text, {name: kind for name, kind in kinds.items() if name not in TRANSFORMS}, "transform")
            parts.append((kinds[spec.name], spec))
        return cls(tuple(parts))
