"""Methods of data classes that packages above them provide, such as `Result.plot`, found by name when called."""

from importlib import import_module
from typing import Any

_PROVIDERS = {
    "card": ("p2pkm.viz.notebook", "card"),
    "overview": ("p2pkm.viz", "overview"),
    "save": ("p2pkm.storage.checksums", "save_sealed"),
}


def call(name: str, *arguments: Any) -> Any:
    """Call what a higher package provides under a name: card and overview of `viz`, save of `storage`."""
    module, function = _PROVIDERS[name]
    return getattr(import_module(module), function)(*arguments)
