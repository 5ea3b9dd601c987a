"""Methods of data classes that packages above them provide, such as `Result.plot`, found by name when called."""

from importlib import import_module
from typing import Any

_PROVIDERS = {
    "card": ("p2pkm.viz.notebook", "card"),
    "report": ("p2pkm.viz.report.run_page", "show_page"),
    "overview": ("p2pkm.viz", "overview"),
    "plot_differences": ("p2pkm.viz", "plot_differences"),
    "plot_seeds": ("p2pkm.viz", "plot_seeds"),
    "save": ("p2pkm.storage.checksums", "save_sealed"),
}


def call(name: str, *arguments: Any, **options: Any) -> Any:
    """Call what a higher package provides under a name: what `viz` draws and shows, save of `storage`."""
    module, function = _PROVIDERS[name]
    return getattr(import_module(module), function)(*arguments, **options)
