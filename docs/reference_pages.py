"""Tables and pages of methods that are made from the program; docs/write_pages.py writes them."""

import importlib
import inspect
import operator
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

import p2pkm
import topologies
from p2pkm.channel.byzantine import Byzantine
from p2pkm.channel.sampled_faults import Faults
from p2pkm.cli.algorithms import describe
from p2pkm.cli.run import command
from p2pkm.core.card import OPEN
from p2pkm.core.option import options_of
from p2pkm.core.spec import parameters, show
from p2pkm.data.partition import PARTITIONS
from p2pkm.data.sources import SOURCES
from p2pkm.data.stream import DataStream
from p2pkm.engine.conflicts import explain_method, list_pairs
from p2pkm.engine.run_options import RunOptions
from p2pkm.methods.init.registry import INITS
from p2pkm.methods.registry import METHODS, find
from p2pkm.metrics.registry import METRICS, Metric
from p2pkm.network.link_model import PROFILES

# Entries of parameters that many methods share: their pages link to this text in ref/methods.md.
COMMON = {
    "init": "Should give all devices the same centroids; `local` does not.",
    "tol": "A device has converged if no coordinate of its centroids moved by more than tol * sqrt(total variance) in "
    "a round.",
}
# Pages that describe the options of a heading, from ref/.
DESCRIBED_IN = {
    "Experiment": ("[methods](methods.md)", "[graphs](graphs.md)"),
    "Data": ("[data and partitions](partitions-and-data.md)",),
    "Data files": ("[load data](../howto/load-data.md)",),
    "Method": ("[methods](methods.md)", "[GTVMin](../explain/gtvmin.md)"),
    "Network and faults": ("[time and faults](../howto/time-and-faults.md)",),
    "Messages and privacy": ("[bytes](../howto/reduce-bytes.md)", "[disclosure](../howto/measure-disclosure.md)"),
    "Recording": ("[run folder](run-folder.md)", "[figures](../howto/reports-and-figures.md)"),
    "MPI": ("[clusters](../howto/cluster.md)",),
}
# The same for commands; those without a page of their own are explained by --help.
COMMANDS_IN = {
    "run": ("[first run](../tutorial/first-run.md)", "[run folder](run-folder.md)"),
    "compare": ("[choose a method](../howto/choose-a-method.md#compare-methods)",),
    "verify": ("[resume and verify](../howto/resume-and-verify.md#verify-a-run)",),
    "algorithms": ("[methods](methods.md)",),
    "topology": ("[graphs](graphs.md)", "[choose a graph](../howto/choose-a-graph.md)"),
    "topology leaks": ("[disclosure](../howto/measure-disclosure.md#what-one-device-learns-about-another)",),
    "study": ("[studies](../howto/studies.md)",),
    "study submit": ("[thousands of runs](../howto/studies.md#thousands-of-runs)",),
    "bench": ("[rank methods](../howto/bench.md)",),
    "attack": ("[attacks](../howto/measure-disclosure.md#attacks)",),
    "privacy budget": ("[several runs](../howto/private-clustering.md#several-runs)",),
    "animate": ("[reports and figures](../howto/reports-and-figures.md)",),
    "report": ("[reports and figures](../howto/reports-and-figures.md)",),
    "data": ("[load data](../howto/load-data.md)",),
    "predict": ("[new rows](../howto/load-data.md#new-rows)",),
    "resume": ("[resume and verify](../howto/resume-and-verify.md)",),
    "faults": ("[fault traces](../howto/time-and-faults.md#fault-traces)",),
    "doctor": ("[clusters](../howto/cluster.md)",),
}
SECTIONS = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
METHOD_PAGE = """# {name}

{summary}

{example}; class `{cls}`.

{published}{documentation}
"""


def make_tables() -> dict[str, str]:
    """Make the tables of what the program offers, in Markdown."""
    tables: dict[str, Callable[[], str]] = {
        "metrics": list_metrics,
        "methods": list_methods,
        "common-parameters": lambda: "".join(f"* `{name}`: {text}\n" for name, text in COMMON.items()),
        "initializations": lambda: list_functions(INITS),
        "data": lambda: list_functions({name: source for name, source in SOURCES.items() if name != "file"}),
        "partitions": lambda: list_functions(PARTITIONS, _find_public_partitions()),
        "link-models": lambda: list_functions(PROFILES),
        "graphs": lambda: list_functions(topologies.FAMILIES),
        "time-varying-graphs": lambda: list_functions(topologies.TIME_VARYING),
        "graph-files": lambda: list_fields(topologies.read),
        "gallery": list_gallery,
        "combinations": list_combinations,
        "refused-pairs": list_refused_pairs,
        "faults": lambda: list_fields(Faults),
        "byzantine": lambda: list_fields(Byzantine),
        "streams": lambda: list_fields(DataStream),
        "device-clusters": lambda: list_fields(SOURCES["device-clusters"]),
        "commands": list_commands,
        "config": list_options,
        "api": list_api,
    }
    return {name: make() for name, make in tables.items()}


def list_pages() -> dict[str, list[str]]:
    """List the pages of methods, each with the names of the methods that share a class: the first one names it."""
    pages: dict[str, list[str]] = {}
    for name in METHODS:
        pages.setdefault(_find_page(name), []).append(name)
    return pages


def describe_method(page: str) -> str:
    """Make the page of a class of methods: options that select it, published values, and its docstring."""
    names = list_pages()[page]
    facts = [describe(name) for name in names]
    shared = len(names) > 1
    summaries = [(f"`{one['name']}`: " if shared else "") + one["summary"].removesuffix(".") + "." for one in facts]
    published = [_describe_published(one["published"]) for one in facts if one["published"]]
    return METHOD_PAGE.format(
        name=" and ".join(names),
        summary="\n".join(f"* {one}" for one in summaries) if shared else summaries[0],
        example=" and ".join(f"`{one['example'].removeprefix('python -m p2pkm ')}`" for one in facts),
        cls=_find_class(page).__name__,
        published="".join(f"{text}\n\n" for text in published),
        documentation=to_markdown(inspect.cleandoc(_find_class(page).__doc__)),
    )


def _describe_published(text: str) -> str:
    """Say which published values `defaults=paper` selects, from what the command line says about them."""
    selected, _, source = text.removesuffix(".").partition(". Source: ")
    command, _, values = selected.partition(" selects: ")
    is_same = values == "the same as the defaults"
    if source == OPEN:
        return "The references specify no defaults."
    if is_same:
        return f"The defaults are the published ones ({source})."
    return f"`{command}` selects {values}, as published ({source})."


def to_markdown(docstring: str) -> str:
    """Convert a docstring of numpydoc to Markdown: without its summary, errors, examples, related methods and `k`."""
    introduction, *sections = SECTIONS.split(docstring)
    text = [_convert_text(introduction.partition("\n\n")[2])]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        if title == "Parameters":
            text.append(f"## {title}\n\n{_convert_entries(body)}")
        elif title in ("Notes", "References"):
            text.append(f"## {title}\n\n{_convert_text(body)}")
    return "\n\n".join(part.strip("\n") for part in text if part.strip())


def _convert_entries(body: str) -> str:
    """Convert entries such as parameters: a name and its type, then indented text."""
    entries, common = [], []
    for head, text in re.findall(r"^(\S.*)\n((?:[ ].*\n?|\n)*)", body + "\n", re.MULTILINE):
        name, _, kind = head.partition(" : ")
        shown = _convert_text(inspect.cleandoc("\n" + text)).strip("\n")
        if (name, shown) == ("k", "Number of clusters."):
            continue
        if COMMON.get(name) == " ".join(shown.split()):
            default = kind.rpartition("default=")[2].strip('"')
            common.append(f"`{name}` ({default})")
            continue
        head = f"`{name}` ({kind})" if kind else f"`{name}`"
        entries.append(f"* {head}: {textwrap.indent(shown, '  ').lstrip()}")
    if common:
        entries.append(f"* {', '.join(common)}: [as in other methods](../methods.md#common-parameters).")
    return "\n".join(entries)


def _convert_text(text: str) -> str:
    """Convert references, and indented blocks after a double colon."""
    text = re.sub(r"(\[\d+\])_", r"\1", text)
    text = re.sub(r"\bdocs/([\w/-]+/([\w-]+)\.md)", _convert_page, text)
    text = re.sub(r"^\.\. (\[\d+\]) ((?:.*\n?)(?:[ ]{2,}.*\n?)*)", _convert_reference, text, flags=re.MULTILINE)
    return re.sub(r"::\n\n((?:[ ]{2,}.*\n?|\n)+)", _convert_block, text)


def _convert_reference(match: re.Match[str]) -> str:
    return f"{match[1]} {' '.join(match[2].split())}\n\n"


def _convert_page(match: re.Match[str]) -> str:
    """Link to a page, by its title."""
    title = (Path(__file__).parent / match[1]).read_text("utf-8").partition("\n")[0].removeprefix("# ")
    return f"[{title}](../../{match[1]})"


def _convert_block(match: re.Match[str]) -> str:
    return f":\n\n```text\n{textwrap.dedent(match[1]).strip()}\n```\n\n"


def _find_class(name: str) -> Any:
    """Find the class of a method, without the parameters that its name sets."""
    kind = find(name)
    return getattr(kind, "func", kind)


def _find_page(name: str) -> str:
    """Find the page of a method: that of the first method of its class."""
    return next(other for other in METHODS if _find_class(other) is _find_class(name))


def _link(name: str) -> str:
    """Write a link to the page of a method, from a page in ref/."""
    return f"[{name}](methods/{_find_page(name)}.md)"


def list_api() -> str:
    """List the public names by the sections of ref/docstrings.rst, with the first sentences of their docstrings.

    Methods, and functions of graphs, data sources and partitions, are in the tables of their pages. Interfaces of
    plug-ins have no summaries.
    """
    named = (*topologies.FAMILIES, *topologies.TIME_VARYING, *SOURCES, *PARTITIONS)
    elsewhere = {name.replace("-", "_") for name in named} | {_find_class(name).__name__ for name in METHODS}
    page = (Path(__file__).parent / "ref" / "docstrings.rst").read_text("utf-8")
    module, parts = "", []
    titled = re.split(r"^(.+)\n-{3,}\n", page, flags=re.MULTILINE)[1:]
    for title, text in zip(titled[::2], titled[1::2], strict=True):
        module = (re.findall(r"currentmodule:: (\S+)", text) or [module])[-1]
        names = [name for name in re.findall(r"^   ([\w.]+)$", text, re.MULTILINE) if name not in elsewhere]
        if title == "Interfaces of plug-ins":
            parts.append(f"## {title}\n\n{_list_by_module(module, names)}")
        elif names:
            rows = [(f"`{module}.{name}`", _summarize(module, name)) for name in names]
            parts.append(f"## {title}\n\n{make_table(('name', 'summary'), rows)}")
    return "\n".join(parts)


def _list_by_module(package: str, names: Iterable[str]) -> str:
    """List names of the modules of a package: a line for each module, without summaries."""
    modules: dict[str, list[str]] = {}
    for module, _, name in (name.rpartition(".") for name in names):
        modules.setdefault(f"{package}.{module}", []).append(f"`{name}`")
    return "\n".join(f"* `{module}`: {', '.join(listed)}" for module, listed in modules.items()) + "\n"


def _summarize(module: str, name: str) -> str:
    """Return the first sentence of the docstring of an object of a module, up to a semicolon or colon."""
    try:
        found = operator.attrgetter(name)(importlib.import_module(module))
    except AttributeError:
        # Not for all names: importing the module topologies.gallery would replace the function of this name.
        found = pkgutil.resolve_name(f"{module}.{name}")
    summary = inspect.cleandoc(found.__doc__ or "").partition("\n\n")[0]
    return re.split(r"[;:] ", " ".join(summary.split()).removesuffix("."))[0]


def list_methods() -> str:
    """List all methods, with links to their pages."""
    described = [describe(name) for name in METHODS]
    rows = [
        (
            _link(m["name"]),
            "yes" if m["server"] else "no",
            m["sends"],
            m["points"],
            f"`{_find_class(m['name']).__name__}`",
            m["summary"].rstrip("."),
        )
        for m in described
    ]
    return make_table(("method", "server", "sends", "raw points", "class", "summary"), rows)


def list_combinations() -> str:
    """List which methods refuse a feature."""
    refusing: dict[str, list[str]] = {}
    for name in METHODS:
        for feature, reason in explain_method(find(name)(1)).items():
            refusing.setdefault(feature, []).extend([name] if reason else [])
    return make_table(("feature", "refused by"), [(one, _name_methods(names)) for one, names in refusing.items()])


def _name_methods(names: list[str]) -> str:
    """Name methods; of most methods, those that are left out."""
    others = [name for name in METHODS if name not in names]
    return f"all except {', '.join(others)}" if len(others) < len(names) else ", ".join(names)


def list_refused_pairs() -> str:
    """List the features that exclude each other."""
    excluded: dict[str, list[str]] = {}
    for feature, other, _, _ in list_pairs():
        excluded.setdefault(feature, []).append(other)
    return make_table(
        ("feature", "cannot be combined with"), [(one, "; ".join(others)) for one, others in excluded.items()]
    )


def list_functions(functions: Mapping[str, Any], documented: Mapping[str, Any] | None = None) -> str:
    """List what can be named in a spec: name, summary, keys and defaults; summaries may be those of other functions."""
    rows = []
    for name, function in functions.items():
        docstring = (documented or functions)[name].__doc__
        summary = inspect.cleandoc(docstring or "").split("\n\n")[0].replace("\n", " ").removesuffix(".")
        summary = summary.removeprefix("Return ").removeprefix("the model of ")  # here the rows are things, not actions
        summary = summary[:1].upper() + summary[1:]
        defaults = inspect.signature(function).parameters
        keys = ", ".join(f"`{key}={show_default(defaults[key].default)}`" for key in parameters(function))
        rows.append((f"`{name}`", summary, keys))
    return make_table(("name", "summary", "keys and defaults"), rows)


def _find_public_partitions() -> dict[str, Any]:
    """Find the functions for scripts: those of the registry, which read a table, have no docstrings."""
    return {name: getattr(p2pkm.partition, name.replace("-", "_")) for name in PARTITIONS}


def list_gallery() -> str:
    """List the graphs of the gallery, with their numbers of devices."""
    recipes = {name: topologies.read_recipe(name) for name in topologies.recipes()}
    return ", ".join(f"`{name}` ({entry.n})" for name, entry in recipes.items()) + ".\n"


def list_fields(kind: Any) -> str:
    """List the options of a class or function that have a default: key, default, and the text of its docstring."""
    _, *sections = SECTIONS.split(inspect.cleandoc(kind.__doc__ or ""))
    texts = dict(zip(sections[::2], sections[1::2], strict=True))
    defaults = {p.name: p.default for p in inspect.signature(kind).parameters.values() if p.default is not p.empty}
    rows = []
    for names, body in re.findall(
        r"^(\S.*?) : .*\n((?:[ ].*\n?|\n)*)", texts.get("Attributes") or texts["Parameters"], re.MULTILINE
    ):
        spec = ", ".join(f"`{key}={show_default(defaults[key])}`" for key in names.split(", ") if key in defaults)
        if spec:
            lines = [" ".join(line.split()) for line in re.split(r"\n\n|^ *\* ", body, flags=re.MULTILINE)]
            rows.append((spec, "<br>".join(line for line in lines if line).removesuffix(".")))
    return make_table(("key and default", "meaning"), rows)


def list_commands() -> str:
    """List the commands and their subcommands, with their arguments and what the help says of them."""
    rows = []

    def add(name: str, found: click.Command) -> None:
        words = [name, *(p.human_readable_name for p in found.params if isinstance(p, click.Argument))]
        purpose = found.get_short_help_str(200).removesuffix(".")
        rows.append((f"`p2pkm {' '.join(words)}`", purpose, ", ".join(COMMANDS_IN.get(name, ()))))
        for word, part in getattr(found, "commands", {}).items():
            add(f"{name} {word}", part)

    for name, found in command.commands.items():
        add(name, found)
    return make_table(("command", "purpose", "described in"), rows)


def list_options() -> str:
    """List the options of a run by their headings in the help, with their defaults."""
    sections: dict[str, list[str]] = {}
    for name, option in options_of(RunOptions).items():
        default = " ".join(option.help.split()).partition(" [default: ")[2].removesuffix("]")
        # Markdown would drop <time> as an unknown tag.
        default = (default or show_default(getattr(RunOptions, name, None))).replace("<", "&lt;")
        sections.setdefault(option.section, []).append(f"`{name}`" + (f" ({default})" if default else ""))
    return make_table(
        ("group", "key and default", "described in"),
        [(title, "; ".join(keys), ", ".join(DESCRIBED_IN.get(title, ()))) for title, keys in sections.items()],
    )


def list_metrics() -> str:
    """List the metrics of a run by what they need; those with a value for each device have an asterisk.

    Keys that repeat an option of the run, or a parameter of a private method, are explained with these.
    """
    given = {*options_of(RunOptions), *parameters(find("private")), *parameters(find("feddp"))}
    repeated = [m for m in METRICS if m.key in given and not m.better]
    sections: dict[str, list[Metric]] = {}
    for m in METRICS:
        if m not in repeated:
            # Test points and true labels: in the section of test points.
            sections.setdefault(re.split(r" and | \(", m.needs)[0], []).append(m)
    keys = ", ".join(f"`{m.key}`" for m in repeated)
    parts = [f"## Repeated options\n\nThese keys have the value of the option or parameter that was used: {keys}.\n"]
    others = []
    for metrics in sections.values():
        need = metrics[0].needs
        if len(metrics) < 3:
            others += [_describe_metric(m, "") for m in metrics]
        else:
            rows = make_table(("key", "meaning"), [_describe_metric(m, need) for m in metrics])
            parts.append(f"## {f'With {need}' if need else 'Every run'}\n\n{rows}")
    parts.append(f"## With other options or data\n\n{make_table(('key', 'meaning'), others)}")
    return "\n".join(parts)


def _describe_metric(m: Metric, known_need: str) -> tuple[str, str]:
    """Return key and meaning of a metric; the meaning with label, unit and need, unless other words say them."""
    mark = "*" if m.per_device else ""
    better = {"lower": " ↓", "higher": " ↑"}.get(m.better, "")
    if m.meaning.startswith(m.label):
        meaning = f"**{m.label}**{m.meaning.removeprefix(m.label)}"
    elif m.label == m.key.replace("_", " "):
        meaning = m.meaning
    else:
        meaning = f"**{m.label}**: {m.meaning}"
    unit = f" ({m.unit})" if m.unit and m.unit not in meaning else ""
    need = f"; needs {m.needs}" if m.needs != known_need else ""
    return f"`{m.key}`{mark}{better}", f"{meaning}{unit}{need}"


def show_default(value: Any) -> str:
    """Format a default value as in a spec; a required or open value is empty."""
    return "" if value is None or value is inspect.Parameter.empty else show(value).lower()


def make_table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Format a table in Markdown."""
    titles = list(titles)
    lines = [titles, ["---"] * len(titles), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
