"""The transforms by name: those of this package, and those of others, which `--transforms` asks for."""

from typing import Any

from p2pkm.channel.byzantine import ByzantineMessages
from p2pkm.channel.faults import FaultInjector
from p2pkm.channel.noise import GaussianNoise
from p2pkm.channel.rejection import Rejection
from p2pkm.channel.suppression import Disclosure, Suppression
from p2pkm.channel.transform import Settings, Transform
from p2pkm.core.plugins import TRANSFORMS as GROUP
from p2pkm.core.plugins import extend
from p2pkm.core.spec import parse, split_specs

TRANSFORMS: dict[str, type[Transform]] = {
    kind.name: kind for kind in (Suppression, GaussianNoise, ByzantineMessages, Disclosure, FaultInjector, Rejection)
}


def find_plugins(text: str | None) -> list[tuple[type[Transform], Settings]]:
    """Return the transforms of other packages in a list of specs such as ``rounding:digits=3,dither``.

    Raises
    ------
    ExperimentError
        If there is none of a name, it cannot be imported, or a key or value is not known.
    """
    found: list[tuple[Any, Settings]] = []
    for spec in split_specs([text]) if text else []:
        kinds = extend(TRANSFORMS, GROUP, spec)
        name, keys = parse(spec, {one: kind for one, kind in kinds.items() if one not in TRANSFORMS}, "transform")
        found.append((kinds[name], keys))
    return found
