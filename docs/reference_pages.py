"""Reference pages and tables that are made from the program when the documentation is built."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import topologies
from p2pkm.channel.sampled_faults import Faults
from p2pkm.cli.algorithms import describe
from p2pkm.core.option import options_of
from p2pkm.core.spec import parameters, show
from p2pkm.data.partition import PARTITIONS
from p2pkm.data.sources import SOURCES
from p2pkm.engine.run_options import RunOptions
from p2pkm.methods.init.registry import INITS
from p2pkm.methods.registry import METHODS, find
from p2pkm.metrics.registry import METRICS
from p2pkm.network.link_model import PROFILES

SECTIONS = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
METHOD_PAGE = """# {name}

{summary}.

```bash
python -m p2pkm --algorithm {name}
```

![Points and centroids of six devices, and the cost ratio against the bytes sent]({picture})

{published}{documentation}
"""
DOCSTRING = """```{{eval-rst}}
.. autoclass:: {path}
   :no-index:
```"""


def write_pages(folder: Path) -> None:
    """Write the pages of methods to ref/methods, and tables that pages include to _made."""
    made, methods = folder / "_made", folder / "ref" / "methods"
    for path in (made, methods):
        path.mkdir(parents=True, exist_ok=True)
    for name in METHODS:
        _write(methods / f"{name}.md", describe_method(name))
    tables: dict[str, Callable[[], str]] = {
        "metrics": list_metrics,
        "methods": list_methods,
        "initializations": lambda: list_functions(INITS),
        "data": lambda: list_functions({name: source for name, source in SOURCES.items() if name != "file"}),
        "partitions": lambda: list_functions(PARTITIONS),
        "link-models": lambda: list_functions(PROFILES),
        "graphs": lambda: list_functions(topologies.FAMILIES),
        "time-varying-graphs": lambda: list_functions(topologies.TIME_VARYING),
        "gallery": list_gallery,
        "faults": lambda: list_fields(Faults),
        "config": list_options,
    }
    for name, make in tables.items():
        _write(made / f"{name}.md", make())


def _write(path: Path, text: str) -> None:
    """Write a file if its text has changed, so that Sphinx reads only pages that did."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, encoding="utf-8")


def describe_method(name: str) -> str:
    """Make the page of a method: command, picture, and docstring, or a link to a method of the same class."""
    cls = _find_class(name)
    first = next(other for other in METHODS if _find_class(other) is cls)
    docstring = DOCSTRING.format(path=f"{cls.__module__}.{cls.__qualname__}")
    documentation = docstring if first == name else f"Equations and options: [{first}]({first}.md), the same class."
    picture = f"../../_made/{name}.png"
    facts = describe(name)
    published = f"Published defaults: `{facts['published']}\n\n".replace(" selects: ", "` selects: ", 1)
    return METHOD_PAGE.format(
        name=name,
        summary=facts["summary"].removesuffix("."),
        picture=picture,
        published=published if facts["published"] else "",
        documentation=documentation,
    )


def _find_class(name: str) -> Any:
    """Find the class of a method, without the parameters that its name sets."""
    kind = find(name)
    return getattr(kind, "func", kind)


def list_methods() -> str:
    """List all methods, with links to their pages."""
    described = [describe(name) for name in METHODS]
    rows = [
        (
            f"[{m['name']}](methods/{m['name']}.md)",
            "yes" if m["server"] else "no",
            m["sends"],
            m["points"],
            m["summary"].rstrip("."),
        )
        for m in described
    ]
    pages = "\n".join(f"methods/{name}" for name in METHODS)
    table = make_table(("method", "server", "sends", "raw points", "summary"), rows)
    return f"{table}\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def list_functions(functions: Mapping[str, Any]) -> str:
    """List what can be named in a spec: name, summary, keys and defaults."""
    rows = []
    for name, function in functions.items():
        summary = inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ").removesuffix(".")
        defaults = inspect.signature(function).parameters
        keys = ", ".join(f"`{key}={show_default(defaults[key].default)}`" for key in parameters(function))
        rows.append((f"`{name}`", summary, keys))
    return make_table(("name", "summary", "keys and defaults"), rows)


def list_gallery() -> str:
    """List the graphs of the gallery."""
    recipes = {name: topologies.read_recipe(name) for name in topologies.recipes()}
    rows = [(f"`{name}`", str(entry.n), entry.description) for name, entry in recipes.items()]
    return make_table(("name", "devices", "summary"), rows)


def list_fields(cls: Any) -> str:
    """List the fields of a class of options: key, default, and the text of its docstring."""
    _, *sections = SECTIONS.split(inspect.cleandoc(cls.__doc__ or ""))
    attributes = dict(zip(sections[::2], sections[1::2], strict=True))["Attributes"]
    rows = []
    for names, body in re.findall(r"^(\S.*?) : .*\n((?:[ ].*\n?|\n)*)", attributes, re.MULTILINE):
        keys = names.split(", ")
        spec = ", ".join(f"`{key}={show_default(getattr(cls, key, None))}`" for key in keys)
        rows.append((spec, " ".join(body.split()).removesuffix(".")))
    return make_table(("key and default", "meaning"), rows)


def list_options() -> str:
    """List the options of a run: key in a configuration file, default, help text."""
    rows = [
        (f"`{name}`", show_default(getattr(RunOptions, name, None)), " ".join(option.help.split()))
        for name, option in options_of(RunOptions).items()
    ]
    return make_table(("key", "default", "meaning"), rows)


def list_metrics() -> str:
    """List the metrics of a run."""
    rows = [(f"`{m.key}`", m.label, m.meaning, m.unit, m.better, m.needs, "yes" * m.per_device) for m in METRICS]
    return make_table(("key", "label", "meaning", "unit", "better", "needs", "per device"), rows)


def show_default(value: Any) -> str:
    """Format a default value as in a spec; a required or open value is empty."""
    return "" if value is None or value is inspect.Parameter.empty else show(value).lower()


def make_table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Format a table in Markdown."""
    titles = list(titles)
    lines = [titles, ["---"] * len(titles), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
