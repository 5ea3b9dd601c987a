"""Functions of higher packages, looked up by name when they are called.

Data classes such as `Result` have methods (`Result.plot`) that higher packages implement; importing these packages at
the top would reverse the order of the layers.
"""

from importlib import import_module
from typing import Any

_PROVIDERS = {
    "bench_advice": ("p2pkm.analysis.bench_advice", "advise"),
    "bench_conclusion": ("p2pkm.analysis.bench_text", "conclude"),
    "bench_csv": ("p2pkm.analysis.bench_text", "write_csv"),
    "bench_latex": ("p2pkm.analysis.bench_text", "write_latex"),
    "bench_text": ("p2pkm.analysis.bench_text", "write_text"),
    "card": ("p2pkm.viz.notebook", "card"),
    "clusters_latex": ("p2pkm.analysis.latex_table", "write_clusters"),
    "learned": ("p2pkm.deep.learned_features", "collect_learned"),
    "plot_accuracy": ("p2pkm.deep.figures", "plot_accuracy"),
    "plot_explained": ("p2pkm.viz", "plot_explained"),
    "plot_features": ("p2pkm.deep.figures", "plot_features"),
    "plot_nearest": ("p2pkm.deep.figures", "plot_nearest"),
    "report": ("p2pkm.viz.report.run_page", "show_page"),
    "overview": ("p2pkm.viz", "overview"),
    "plot_columns": ("p2pkm.viz", "plot_columns"),
    "plot_differences": ("p2pkm.viz", "plot_differences"),
    "plot_seeds": ("p2pkm.viz", "plot_seeds"),
    "read_kinds": ("p2pkm.viz.save_figure", "read_kinds"),
    "save": ("p2pkm.storage.checksums", "save_sealed"),
}


def provide(name: str) -> Any:
    """Import the function that a higher package provides under a name."""
    module, function = _PROVIDERS[name]
    return getattr(import_module(module), function)


def call(name: str, *arguments: Any, **options: Any) -> Any:
    """Call the function that a higher package provides under a name."""
    return provide(name)(*arguments, **options)
