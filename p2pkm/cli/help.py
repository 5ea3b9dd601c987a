"""Help of the command line: the short help, all options in groups, and topics."""

import inspect
import re
from collections.abc import Callable, Iterable
from functools import partial
from textwrap import wrap
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click

from p2pkm.cli.options import PLACEMENTS
from p2pkm.core.errors import ExperimentError
from p2pkm.core.plugins import summarize
from p2pkm.core.spec import parameters, show, suggest
from p2pkm.engine.run_options import OPTIONS, SECTIONS, RunOptions
from p2pkm.methods.registry import find
from p2pkm.methods.registry import names as list_methods

_EXAMPLES = (
    ("p2pkm --graph ring", "16 devices in one process"),
    ("p2pkm --data mine.csv -k 5 --devices 8", "points from a file, 5 clusters"),
    ("mpirun -n 16 python -m p2pkm --graph ring", "one device per MPI rank, bit-identical results"),
)
_COMMANDS = {
    "Run": ("run", "compare", "study", "sweep", "bench", "resume", "verify"),
    "Inspect": ("data", "algorithms", "topology", "plan", "report", "predict", "animate", "attack", "privacy",
                "faults"),
    "Setup": ("help", "doctor", "compile"),
}  # fmt: skip
_WIDTH = 100
# Heading of options that are not options of a run.
_OTHER = "Other options"
# Number of places of a key that an error lists.
_OWNERS = 3


class GroupedCommand(click.Command):
    """Command whose help lists the options of a run in groups."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all options, in groups."""
        _write_sections(self, context, formatter)


class RootCommand(click.Group):
    """Command without a name: its help is short, ``--help-all`` lists all options."""

    def format_help(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the short help: usage, examples, commands and the most common options."""
        _write_introduction(self, formatter)
        for title, names in _COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(_WIDTH)) for name in names])
        _write_sections(self, context, formatter, only_basic=True)
        formatter.write_paragraph()
        formatter.write_text("All options: p2pkm --help-all. Values and defaults of one: p2pkm help OPTION.")
        self.format_epilog(context, formatter)

    def format_all_options(self, context: click.Context) -> str:
        """Format the help with all options."""
        formatter = context.make_formatter()
        _write_introduction(self, formatter)
        _write_sections(self, context, formatter)
        self.format_epilog(context, formatter)
        return formatter.getvalue().rstrip("\n")


def _write_introduction(command: click.Command, formatter: click.HelpFormatter) -> None:
    formatter.write_usage("p2pkm", "[COMMAND] [OPTIONS]")
    formatter.write_paragraph()
    formatter.write_text(command.help or "")
    with formatter.section("Examples"):
        formatter.write_dl(_EXAMPLES, col_max=45)


def _write_sections(
    command: click.Command, context: click.Context, formatter: click.HelpFormatter, *, only_basic: bool = False
) -> None:
    """Write the options of a command under the headings of their sections."""
    records: dict[str, list[tuple[str, str]]] = {title: [] for title in (*SECTIONS, _OTHER)}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        placement = PLACEMENTS.get(parameter.name or "")
        if record is None or (only_basic and not (placement and placement.is_basic)):
            continue
        records[placement.section if placement else _OTHER].append(record)
    for title, rows in records.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


# --- topics ---


def explain_topic(topic: str) -> str:
    """Explain an option, with its values, keys and defaults; for a command, return its help.

    Raises
    ------
    ExperimentError
        If the name is unknown; the message suggests the nearest.
    """
    name = topic.lstrip("-").replace("-", "_").lower()
    name = _ALIASES.get(name, name)
    root = click.get_current_context().find_root()
    options = {option.name: option for option in root.command.params if option.name in PLACEMENTS}
    if name not in options and isinstance(root.command, click.Group) and name in root.command.commands:
        command = root.command.commands[name]
        return command.get_help(click.Context(command, info_name=name, parent=root))
    if name not in options:
        if owners := [f"help {_topic(option)}" for option in _LISTS if name in _read_keys(option)] + [
            f"algorithms {method}" for method in list_methods() if name in _read_parameters(method)
        ]:
            listed = ", ".join(f"p2pkm {owner}" for owner in owners[:_OWNERS])
            if len(owners) > _OWNERS:
                listed += ", ..."
            raise ExperimentError(f"{topic} is a key of a specification NAME:key=value, not an option. Use {listed}")
        for option in _LISTS:
            if topic in (line.split(":")[0].split()[0] for line in _LISTS[option]() if line.startswith("  ")):
                way = f"algorithms {topic}" if option == "algorithm" else f"help {_topic(option)}"
                raise ExperimentError(f"{topic} is a value of --{_topic(option)}, not an option. Use p2pkm {way}")
        topics = [_topic(known) for known in options if known]
        raise ExperimentError(f"unknown topic {topic!r}. {suggest(name.replace('_', '-'), topics)}")
    flags, text = options[name].get_help_record(root) or ("", "")
    lines = [flags, "", *_fill(text)]
    if name in OPTIONS and OPTIONS[name].details:
        lines += ["", *_fill(OPTIONS[name].details)]
    if name in _LISTS:
        lines += ["", *_LISTS[name]()]
    elif name in OPTIONS and (values := _list_values(get_type_hints(RunOptions)[name])):
        lines += ["", f"Values: {', '.join(values)}."]
    return "\n".join(lines)


def _read_keys(option: str) -> set[str]:
    """Read the keys of the specifications of an option from its list: ``key=value``, or the names before a colon."""
    keys = set[str]()
    for line in _LISTS[option]():
        if re.match(r"  \S", line):
            head, colon, _ = re.split(r"  +", line.strip())[0].partition(": ")
            keys.update(re.findall(r"(\w+)=", head))
            keys.update(head.split(", ") if colon else ())
    return keys


def _read_parameters(method: str) -> set[str]:
    """Read the keys of a method; none of a plug-in that cannot be imported."""
    kind = summarize(method, find)
    return set() if isinstance(kind, str) else set(parameters(kind))


def _topic(name: str) -> str:
    """Return the name of an option on the command line, without dashes in front."""
    return "format" if name == "form" else name.replace("_", "-")


def list_topics() -> str:
    """List the topics: all options of a run, in groups."""
    lines = [
        "Topics (p2pkm help TOPIC); those with * list the names and keys of a specification NAME:key=value,...",
        "",
    ]
    for title in SECTIONS:
        names = [name for name, placement in PLACEMENTS.items() if placement.section == title]
        topics = [_topic(name) + "*" * (name in _LISTS) for name in names]
        if topics:
            listed = ", ".join(topics)
            lines.append(f"{title}:")
            lines += wrap(listed, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines)


def _fill(text: str) -> list[str]:
    return wrap(" ".join(text.split()), _WIDTH, break_on_hyphens=False, break_long_words=False)


def _list_values(hint: Any) -> list[str]:
    """List the values of a type such as ``float | Literal["auto"] | None``; empty if any value is possible."""
    types = (hint, *get_args(hint))
    values = [str(value) for kind in types if get_origin(kind) is Literal for value in get_args(kind)]
    if values and (int in types or float in types):
        values.append("or a number")
    return values


def _list_specs(
    names: Iterable[str], find: Callable[[str], Any], document: Callable[[str, Any], Any] = lambda name, kind: kind
) -> list[str]:
    """List names with their keys and defaults, and the first line of a docstring.

    Parameters
    ----------
    names : iterable of str
    find : callable
        Function that returns the function or class of a name.
    document : callable
        Function that returns the object with the docstring, from a name and its function.
    """
    rows = []
    for name in names:
        kind = summarize(name, find)
        # A plug-in that cannot be imported is listed with its error.
        row = (name, kind) if isinstance(kind, str) else (name + _keys(kind), _summary(document(name, kind)))
        rows.append(row)
    width = min(max(len(name) for name, _ in rows), 60)
    return [f"  {name:{width}}  {summary}".rstrip() for name, summary in rows]


def _keys(kind: Any) -> str:
    """Format the keys of a function or class with their defaults, as they are typed."""
    defaults = inspect.signature(kind).parameters
    pairs = [
        f"{key}={'' if defaults[key].default is None else show(defaults[key].default)}"
        for key in parameters(kind)
        if key not in {"path", "recipe", "seed"}
    ]
    return f":{','.join(pairs)}" if pairs else ""


def _summary(kind: Any) -> str:
    """Return the first line of a docstring; nothing for functions without one."""
    function = kind.func if isinstance(kind, partial) else kind
    return inspect.cleandoc(function.__doc__ or "").split("\n")[0]


def _list_keys(kind: Any) -> list[str]:
    """List the keys of a class with defaults, and their descriptions in its docstring."""
    signature = inspect.signature(kind).parameters
    keys = list(parameters(kind))
    entries = _read_attributes(inspect.cleandoc(kind.__doc__ or ""))
    described = {name for names, _ in entries for name in names}
    lines = []
    for names, text in [*entries, *(([key], "") for key in keys if key not in described)]:
        defaults = [(key, signature[key].default) for key in names if key in keys]
        if defaults:
            shown = ", ".join(key if value is None else f"{key}={show(value)}" for key, value in defaults)
            line = f"{shown}: {text}" if text else shown
            lines += wrap(line, _WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)
    return lines


def _read_attributes(docstring: str) -> list[tuple[list[str], str]]:
    """Read the sections Parameters and Attributes of a docstring: names that are described together, and the text."""
    entries: list[tuple[list[str], list[str]]] = []
    is_inside = False
    lines = docstring.split("\n")
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if following.startswith("---"):
            is_inside = line in ("Parameters", "Attributes")
        elif is_inside and line and not line.startswith((" ", "-")):
            entries.append(([name.strip() for name in line.partition(" :")[0].split(",")], []))
        elif is_inside and line.strip() and entries:
            entries[-1][1].append(line.strip().replace("``", ""))
    return [(names, " ".join(text)) for names, text in entries]


def _list_graphs() -> list[str]:
    from p2pkm.cli.topology import format_families

    return format_families().split("\n")


def _list_algorithms() -> list[str]:
    from p2pkm.cli.algorithms import explain

    return explain(None).split("\n")


def _list_inits() -> list[str]:
    from p2pkm.methods.init.registry import known

    return _list_specs(known(""), lambda name: known(name)[name])


def _list_partitions() -> list[str]:
    from p2pkm.data import partition

    def document(name: str, kind: Any) -> Any:
        """Return the public function of a partition: those in the registry lack docstrings."""
        return vars(partition).get(name.replace("-", "_"), kind)

    return _list_specs(partition.known(""), lambda name: partition.known(name)[name], document)


def _list_sources() -> list[str]:
    from p2pkm.data.sources import SOURCES

    return _list_specs([name for name in SOURCES if name != "file"], SOURCES.__getitem__)


def _list_link_models() -> list[str]:
    from p2pkm.network.link_model import PROFILES, LinkModel

    entries = _read_attributes(inspect.cleandoc(LinkModel.__doc__ or ""))
    keys = [f"  {', '.join(names)}: {text}" for names, text in entries if set(names) <= {*parameters(PROFILES["lan"])}]
    return [*_list_specs(PROFILES, PROFILES.__getitem__), "", "Keys:", *keys]


def _list_class(module: str, name: str) -> Callable[[], list[str]]:
    """Return a function that lists the keys of a class, which is imported when it is called."""

    def lines() -> list[str]:
        from importlib import import_module

        return ["Keys and defaults:", *_list_keys(getattr(import_module(module), name))]

    return lines


_ALIASES = {
    "algorithms": "algorithm",
    "format": "form",
    "graphs": "graph",
    "k": "clusters",
    "q": "quiet",
    "v": "verbose",
}
# Topics that list names or keys, made from what the registries know.
_LISTS: dict[str, Callable[[], Iterable[str]]] = {
    "graph": _list_graphs,
    "algorithm": _list_algorithms,
    "init": _list_inits,
    "data": _list_sources,
    "partition": _list_partitions,
    "link_model": _list_link_models,
    "faults": _list_class("p2pkm.channel.sampled_faults", "Faults"),
    "stream": _list_class("p2pkm.data.stream", "DataStream"),
    "client_share": _list_class("p2pkm.network.client_share", "ClientShare"),
    "byzantine": _list_class("p2pkm.channel.byzantine", "Byzantine"),
    "quantize": _list_class("p2pkm.channel.quantization", "Quantization"),
    "compress": _list_class("p2pkm.channel.compression", "Compression"),
}
