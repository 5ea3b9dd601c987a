"""Transforms by name: those of this package, and those of plug-ins, which `--transforms` selects.

The module of a transform is imported in runs whose options can select it.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from p2pkm.channel.transform import Settings, Transform, check_declaration
from p2pkm.core.errors import ContractError, ExperimentError
from p2pkm.core.plugins import TRANSFORMS as GROUP
from p2pkm.core.plugins import extend
from p2pkm.core.spec import Spec, parse, split_specs


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
    "faults": TransformEntry("faults", "FaultInjector", ("faults", "stale_policy", "deadline")),
    "rejection": TransformEntry("rejection", "Rejection"),
    "compression": TransformEntry("compression", "Compressor", ("compress",)),
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
    def of(cls, value: Any) -> "PluginTransforms | None":
        """Convert a text of specs, separated by commas, transforms of a program, or a list of both.

        Raises
        ------
        ExperimentError
            If a name, a key or a value is unknown, or a plug-in cannot be imported.
        ContractError
            If a class is not a transform, lacks a mixin for the methods that it defines, or an object does not keep a
            parameter.
        """
        if value is None or isinstance(value, PluginTransforms):
            return value
        parts: list[tuple[Any, Spec]] = []
        for part in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(part, Transform) or (isinstance(part, type) and issubclass(part, Transform)):
                parts.append(_read_object(part))
            elif isinstance(part, str):
                parts += _parse(part)
            else:
                raise ExperimentError(
                    f"transforms is {part!r}; expected text such as 'rounding:digits=3', a Transform, or a list of them"
                )
        return cls(tuple(parts))


def _parse(value: str) -> list[tuple[Any, Spec]]:
    """Read a text of specs, separated by commas."""
    parts: list[tuple[Any, Spec]] = []
    if value:
        for text in split_specs([value]):
            kinds = extend(TRANSFORMS, GROUP, text)
            name = text.partition(":")[0]
            kind: Any = Transform if name in TRANSFORMS else kinds.get(name, Transform)
            if kind is not Transform:
                check_declaration(kind, name)
            if not kinds.keys() - TRANSFORMS.keys():
                raise ExperimentError(
                    f"transforms is {text!r}, but no installed package adds a transform. Remove --transforms, or "
                    "install the package (docs/howto/add-a-transform.md shows how one is written)"
                )
            spec = parse(text, {name: kind for name, kind in kinds.items() if name not in TRANSFORMS}, "transform")
            parts.append((kinds[spec.name], spec))
    return parts


def _read_object(value: Any) -> tuple[type[Transform], Spec]:
    """Read a transform of a program, or its class: each rank builds its own from the parameters."""
    given = value if isinstance(value, type) else type(value)
    kind = check_declaration(given, given.__name__)
    if kind.option != Transform.option:
        raise ExperimentError(f"transforms is {kind.__name__}, which has an option of its own. Use {kind.option}=")
    parameters = inspect.signature(kind).parameters
    if value is given:
        required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
        if required:
            raise ContractError(
                f"transform {kind.__name__} requires {', '.join(required)}; expected an object, such as "
                f"{kind.__name__}({required[0]}=...)"
            )
        return kind, Spec(kind.name, {})
    lost = [name for name in parameters if name not in vars(value)]
    if lost:
        raise ContractError(
            f"transform {kind.__name__} has the parameter {lost[0]}=, but its __init__ does not keep it, so that ranks "
            f"cannot build it. Add self.{lost[0]} = {lost[0]}"
        )
    return kind, Spec(kind.name, {name: vars(value)[name] for name in parameters})
