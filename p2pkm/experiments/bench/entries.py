"""Entries of the benchmark: a method with its defaults and its encoding, as the tables name it."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from p2pkm.channel.quantization import find_obstacle
from p2pkm.core.card import DEFAULTS, cards_of
from p2pkm.core.errors import ExperimentError, P2PKMError
from p2pkm.core.program_object import ProgramObject, find_label
from p2pkm.core.spec import Spec, parameters, split_specs, suggest
from p2pkm.engine.build_run import check_options
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.bench.suites import Task, Variant
from p2pkm.experiments.config import MethodSpec, parse_method
from p2pkm.experiments.studies.study_file import with_known
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.methods.registry import METHODS, known

_TABLE = files(__package__) / "entries.toml"
_EVERY = "all"
_RAW = ("sample", "all")  # points in the card of a method that leave the devices
_INTEGER, _REAL = "integer", "real"


class Entry(NamedTuple):
    """Entry of the benchmark.

    Attributes
    ----------
    name : str
        Name in tables, such as "gtvmin (paper, real numbers)".
    algorithm : str or ProgramObject
        Spec of the method, or the method.
    defaults : {"ours", "paper", "suite"}
        Defaults of this package, of the publication, or those of this package with the options of a suite.
    encoding : {"integer", "real"}
        Encoding that is requested; with "integer", a run whose options exclude integers sends real numbers.
    trust : str
        Class of trust: "no server", "server", "raw points leave", "private" or "baseline".
    method : str
        Name of the method that the entry belongs to.
    options : dict of str to object
        Options of its runs beyond those of the task, such as a share of the clients.
    """

    name: str
    algorithm: Any
    defaults: str
    encoding: str
    trust: str
    method: str
    options: Mapping[str, Any] = {}

    def on(self, task: Task, graph: str | None, seed: int) -> RunOptions:
        """Return the options of a run on a task.

        The method takes the start of the task if it has the option `init`, public values of the task if it requires
        them, and a noise seed, so that the run can be repeated.
        """
        options = replace(
            replace(task.options, **self.options),
            algorithm=self.algorithm,
            quantize="possible" if self.encoding == _INTEGER else "none",
            graph=graph,
            seed=seed,
            out=None,
            plot=False,
        )
        spec, draft, keys = _look_up(self.algorithm)
        if task.start is not None and "init" in keys and "init" not in spec.options:
            options = replace(options, init=task.start)
        if draft.traits.is_secret and "noise_seed" in keys and not isinstance(self.algorithm, ProgramObject):
            repeatable = Spec(spec.name, {"noise_seed": seed} | spec.options)
            options = replace(options, algorithm=str(repeatable))
        return with_known(options, task.known)

    @property
    def has_server(self) -> bool:
        """Whether the method runs on the star of a server, so that the graph of a task does not matter."""
        return bool(needs_hub(_look_up(self.algorithm)[1]))


def list_entries(algorithms: Sequence[Any], variants: Sequence[Variant] = ()) -> list[Entry]:
    """List the entries of methods.

    Parameters
    ----------
    algorithms : sequence of str or ProgramObject
        "all", names of methods for all of their entries, names of entries such as "gtvmin (real numbers)", specs, or
        objects of a program.
    variants : sequence of Variant
        Further entries of the suite.

    Raises
    ------
    ExperimentError
        If a method is unknown, or an option is wrong.
    """
    table = read_entries()
    table += _make_variants(table, variants)
    listed: dict[str, Entry] = {}
    for text in algorithms:
        of_method = [entry for entry in table if text in (_EVERY, entry.method)]
        exact = [entry for entry in table if entry.name == text]
        for entry in of_method or exact or _make_entries(text, str(find_label(text)), {}):
            listed[entry.name] = entry
    return list(listed.values())


def add_entries(entries: Sequence[Entry], options: Mapping[str, Any], tasks: Sequence[Task]) -> list[Entry]:
    """Add an entry with options of its own for each method that can run with them on one of the tasks.

    Parameters
    ----------
    entries : sequence of Entry
    options : dict of str to object
        Options of a run, with checked values.
    tasks : sequence of Task

    Raises
    ------
    ExperimentError
        If no method can.
    """
    # Tables cut long names.
    mark = " ".join(str(value) if name == "link_model" else f"{name}={value}" for name, value in options.items())
    added, reason = [], ""
    for main in select_main(entries):
        entry = main._replace(name=f"{main.name} ({mark})", defaults="suite", options=options)
        reasons = [_explain_refusal(entry, task) for task in tasks]
        reason = reason or reasons[0]
        if "" in reasons:
            added.append(entry)
    if not added:
        raise ExperimentError(f"no entry of the benchmark can run with {mark}. The first one says: {reason}")
    return [*entries, *added]


def _explain_refusal(entry: Entry, task: Task) -> str:
    """Return the error of the options of an entry on a task; empty if it has none."""
    try:
        options = entry.on(task, None if entry.has_server else task.graphs[0], seed=0)
        method: MethodSpec = parse_method(options)
        check_options(method.build(method.k or 1), options)
    except P2PKMError as error:
        return str(error)
    return ""


def select_main(entries: Sequence[Entry]) -> list[Entry]:
    """Select an entry of each algorithm: with our defaults and, where it exists, the integer encoding."""
    # Names of variants, such as "gtvmin (real numbers)", follow that of the main entry.
    names = {entry.name for entry in entries}
    return [entry for entry in entries if entry.name.partition(" (")[0] not in names - {entry.name}]


def count_entries(number: int) -> str:
    """Write a number of entries, such as "1 entry"."""
    return "1 entry" if number == 1 else f"{number} entries"


def split_list(text: str) -> list[str]:
    """Split a list of entries, whose names may contain commas in parentheses."""
    names = sorted((entry.name for entry in read_entries() if "," in entry.name), key=len, reverse=True)
    for number, name in enumerate(names):
        text = text.replace(name, f"entry {number}")
    return [
        names[int(part.removeprefix("entry "))] if part.startswith("entry ") else part for part in split_specs([text])
    ]


def read_entries() -> list[Entry]:
    """Read the table of entries that ships with the package; methods that this version lacks are left out."""
    table = tomllib.loads(_TABLE.read_text("utf-8"))
    return [entry for name, row in table.items() if name in METHODS for entry in _make_entries(name, name, row)]


def _make_entries(algorithm: Any, name: str, row: Mapping[str, str]) -> list[Entry]:
    """Make the entries of a method: with our and published defaults, in integers and in real numbers."""
    spec, draft, _ = _look_up(algorithm)
    trust = row.get("trust") or _classify(draft)
    variants: dict[str, Any] = {"ours": algorithm}
    paper = row.get("paper", f"{DEFAULTS}=paper" if _has_published(algorithm, spec) else "")
    if paper:
        variants["paper"] = f"{algorithm}:{paper}"
    can_be_integers = not find_obstacle(draft)
    entries = []
    for defaults, variant in variants.items():
        # Published methods send real numbers.
        for encoding in (_INTEGER, _REAL) if can_be_integers and defaults == "ours" else (_REAL,):
            marks = []
            if defaults == "paper":
                marks.append("paper")
            if can_be_integers and encoding == _REAL:
                marks.append("real numbers")
            label = f"{name} ({', '.join(marks)})" if marks else name
            entries.append(Entry(label, variant, defaults, encoding, trust, spec.name))
    return entries


def _make_variants(table: Sequence[Entry], variants: Sequence[Variant]) -> list[Entry]:
    """Make the entries of a suite from the main entries of their methods."""
    main = {entry.name: entry for entry in table}
    made: dict[str, Entry] = {}
    for variant in variants:
        for method in variant.methods:
            if method not in main:
                raise ExperimentError(
                    f"entries {variant.mark} name the unknown method {method!r}. {suggest(method, main)}"
                )
            name = f"{method} ({variant.mark})"
            if name in main or name in made:
                raise ExperimentError(f"there are two entries {name}; expected different names. Rename one")
            made[name] = main[method]._replace(name=name, defaults="suite", options=variant.options)
    return list(made.values())


def _has_published(algorithm: Any, spec: Spec) -> bool:
    """Return whether a method without options has a key that selects its published defaults."""
    return algorithm == spec.name and DEFAULTS in parameters(known(algorithm)[algorithm])


def _classify(draft: Any) -> str:
    """Return the class of trust of a method by its card, or by its traits."""
    card = next((card for card in cards_of(type(draft)) if card.name == draft.name), None)
    if draft.traits.draws_secrets and (card is None or card.family == "private"):
        return "private"
    if card is not None and card.points in _RAW:
        return "raw points leave"
    return "server" if needs_hub(draft) else "no server"


def _look_up(algorithm: Any) -> tuple[Spec, Any, Mapping[str, Any]]:
    """Return the spec of a method, the method with one cluster, and its parameters."""
    return _look_up_object(algorithm) if isinstance(algorithm, ProgramObject) else _look_up_named(algorithm)


def _look_up_object(algorithm: Any) -> tuple[Spec, Any, Mapping[str, Any]]:
    method: MethodSpec = parse_method(RunOptions(algorithm=algorithm))
    draft = method.build(method.k or 1)
    kind: Any = type(draft)
    # An object has all parameters already.
    return method.spec, draft, parameters(kind) if method.k is None else {}


@cache
def _look_up_named(algorithm: str) -> tuple[Spec, Any, Mapping[str, Any]]:
    method = parse_method(RunOptions(algorithm=algorithm))
    draft = method.build(1)
    if draft.traits.derives_features:
        raise ExperimentError(
            f"algorithm {algorithm} cannot be ranked: it clusters learned features, whose costs are not those of the "
            "points. Use another method"
        )
    kind: Any = type(draft)
    return method.spec, draft, parameters(kind)
