"""The transforms by name: those of this package, and those of others, which `--transforms` asks for."""

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
    """Transforms of other packages with their options, each a class and its spec."""

    parts: tuple[tuple[type[Transform], Spec], ...]

    def __str__(self) -> str:
        """Return the text of the command line, such as ``rounding:digits=3,dither``."""
        return ",".join(str(spec) for _, spec in self.parts)

    @classmethod
    def of(cls, given: "PluginTransforms | str | None") -> "PluginTransforms | None":
        """Return the value of a list of specs; a value and None stay as they are.

        Raises
        ------
        ExperimentError
            If there is none of a name, it cannot be imported, or a key or value is not known.
        """
        if given is None or isinstance(given, PluginTransforms):
            return given
        found: list[tuple[Any, Spec]] = []
        for text in [] if check_scalar(given, "transforms") == "" else split_specs([given]):
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
                    "install the package (docs/transforms.md shows how one is written)"
                )
            spec = parse(text, {one: kind for one, kind in kinds.items() if one not in TRANSFORMS}, "transform")
            found.append((kinds[spec.name], spec))
        return cls(tuple(found))
