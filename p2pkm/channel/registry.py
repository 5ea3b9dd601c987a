"""Transforms by name: those of this package, and those of plug-ins, which `--transforms` selects."""

from dataclasses import dataclass
from typing import Any

from p2pkm.channel.byzantine import ByzantineMessages
from p2pkm.channel.faults import FaultInjector
from p2pkm.channel.noise import GaussianNoise
from p2pkm.channel.quantization import Quantizer
from p2pkm.channel.rejection import Rejection
from p2pkm.channel.suppression import Disclosure, Suppression
from p2pkm.channel.transform import Transform, find_missing_mixins
from p2pkm.core.errors import ContractError, ExperimentError
from p2pkm.core.plugins import TRANSFORMS as GROUP
from p2pkm.core.plugins import extend
from p2pkm.core.spec import Spec, parse, split_specs
from p2pkm.core.validation import check_scalar

TRANSFORMS: dict[str, type[Transform]] = {
    kind.name: kind
    for kind in (Suppression, GaussianNoise, Quantizer, ByzantineMessages, Disclosure, FaultInjector, Rejection)
}


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
            kind: Any = kinds.get(name, Transform)
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
