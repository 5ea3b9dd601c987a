"""The tidy table of a study: one row per run, from its folder, a DataFrame or a list of rows."""

import hashlib
import html
import json
import math
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.late_binding import call
from p2pkm.core.spec import suggest
from p2pkm.core.units import count
from p2pkm.core.validation import check_choice
from p2pkm.metrics.milestones import OF_CENTRAL, is_worse, never_reached
from p2pkm.metrics.registry import ShownIn, find, keys
from p2pkm.storage.paired_tests import MARGIN, check_margin
from p2pkm.storage.save import write_json

Row = dict[str, Any]
SERVED = "server"  # stands for the graph of a method with a server, whose hub is one more device
ALONE = "local"  # the method without messages, which has neither a graph nor a server
_RESAMPLES = 9_999
TABLES = ("study.jsonl", "rows.jsonl")  # of a study, of a comparison
_KEPT = "runs/*.json"  # of a study that has not ended
_CHECKSUM = "sha256"  # of the rest of such a row
OPTIONS = "options"  # that the run of a row was asked for
_SHOWN = 10  # rows in a notebook
_WHERE = ("algorithm", "graph")


@dataclass(frozen=True, repr=False)
class Study:
    """The runs of a study or of a comparison, as `p2pkm.study`, `p2pkm.compare` and `load_study` return them.

    Attributes
    ----------
    rows : list of dict
        One per run; None where a figure is not known. What comes before ``seed`` is the configuration.
    path : Path or None
        Its folder.
    margin : float
        Log ratio of two figures within which configurations are equivalent: 0.005 is 0.5 %; 0: never.

    Examples
    --------
    >>> import p2pkm
    >>> found = p2pkm.study(
    ...     grid={"algorithm": ["gtvmin", "local"]}, seeds="0-2", devices=4, data="grid16:points=10", rounds=5,
    ... )
    >>> len(found.rows), found.swept
    (6, ['algorithm'])
    >>> print(found.conclusion())  # doctest: +ELLIPSIS
    Over 3 seeds, gtvmin on ring has the lowest mean cost relative to central k-means...
    >>> print(found.to_latex(["ratio_mean"]))  # doctest: +ELLIPSIS
    % Mean ± standard deviation over 3 seeds...
    """

    rows: list[Row]
    path: Path | None = None
    margin: float = MARGIN

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Study":
        """Read the folder of a study or of a comparison; of one that was interrupted what there is.

        Raises
        ------
        DataError
            If it is no such folder.
        """
        folder = Path(path)
        try:
            for name in TABLES:
                if (folder / name).is_file():
                    lines = (folder / name).read_text("utf-8").splitlines()
                    return cls([_flatten(_parse(line)) for line in lines], folder, read_margin(folder))
            kept = [read_row(path) for path in sorted(folder.glob(_KEPT))]
        except (OSError, ValueError) as error:
            raise DataError(f"{folder} cannot be read as a study: {error}") from None
        if not kept:
            raise DataError(f"{folder} is not the folder of a study; expected one that p2pkm sweep or compare wrote")
        asked = [row.get(OPTIONS, {}) for row in kept]
        names = dict.fromkeys(name for options in asked for name in options if name != "seed")
        swept = [name for name in names if len({str(options.get(name)) for options in asked}) > 1]
        return cls([_flatten(put_options_first(row, swept)) for row in kept], folder, read_margin(folder))

    @property
    def swept(self) -> list[str]:
        """Return the options that the runs differ in, but for the seed."""
        return find_axes(self.rows)

    @property
    def failed(self) -> list[Row]:
        """Return the rows of runs that failed; ``error`` gives the reason."""
        return [row for row in self.rows if row.get("error") is not None]

    def configurations(self) -> dict[str, dict[int, Row]]:
        """Return the runs that ended, by configuration in words and by seed."""
        return group_runs(read_rows(self), self.swept)

    def to_frame(self) -> Any:
        """Return a pandas.DataFrame with a row per run."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def to_latex(
        self, figures: Sequence[str] | None = None, *, spread: str = "sd", caption: str | None = None,
        label: str | None = None, path: str | os.PathLike[str] | None = None,
    ) -> str:  # fmt: skip
        """Return a table for LaTeX with booktabs rules, a line per configuration: means over seeds and their spread.

        The best mean of a column is in bold only if every other configuration is worse, see `conclusion` for the test.
        Those that are equivalent to the best have the mark ≈, those that are not distinguished from it a question mark.

        Parameters
        ----------
        figures : sequence of str, optional
            Columns of `rows`; None: cost ratio, ARI and bytes, as far as they are known.
        spread : {"sd", "interval", "none"}
            After the mean: the standard deviation (n - 1), the 95 % interval of the mean by Student's t, or nothing.
        caption, label : str, optional
            With one of them the table comes in a ``table`` environment. LaTeX; it is not escaped.
        path : path, optional
            File to write it to.

        Raises
        ------
        ExperimentError
            If a figure is not a number, or spread is none of these.
        DataError
            If no run has ended.
        """
        from p2pkm.storage.latex_table import Layout, write_latex

        read_ended(self)
        alone = {"graph": None}  # of the method without messages
        groups = {
            name: {seed: row | alone if is_local_only(row["algorithm"]) else row for seed, row in group.items()}
            for name, group in self.configurations().items()
        }
        text = write_latex(groups, self.swept, figures, Layout(spread, caption, label, self.margin))
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def conclusion(self, figure: str = "ratio_mean") -> str:
        """Return sentences to quote: the best configuration, and the verdict on every other one beside it.

        Worse: a paired t-test (from 8 seeds, where one of them dominates, a signed-rank test) with Holm's correction
        over all pairs rejects equality. Equivalent: the 90 % interval of the log ratio is within `margin`. Otherwise
        not distinguished, with the number of seeds that a verdict would take. Below 5 common seeds nothing is tested.

        Parameters
        ----------
        figure : str
            What is compared; the cost over that of central k-means by default.
        """
        from p2pkm.storage.conclusion import conclude

        return conclude(self.configurations(), figure, self.margin)

    def verdicts(self, figure: str = "ratio_mean") -> list[Row]:
        """Return a row per configuration, the best first: its mean, and the comparison with the best.

        Parameters
        ----------
        figure : str
            What is compared.

        Returns
        -------
        list of dict
            ``configuration``, ``reference``, ``figure``, ``mean`` and the fields of
            `p2pkm.storage.paired_tests.PairedTest`; of the best the verdict is "best".
        """
        from p2pkm.storage.conclusion import list_verdicts

        return list_verdicts(self.configurations(), [figure], self.margin)

    def plot(self, kind: str = "seeds", *, figure: str = "ratio_mean") -> Any:
        """Draw a figure of all configurations and seeds.

        Parameters
        ----------
        kind : {"seeds", "differences"}
            Small multiples, a panel per graph with a dot per seed; or paired differences to the best configuration.
        figure : str
            What is drawn; the cost over that of central k-means by default.

        Returns
        -------
        matplotlib.figure.Figure
        """
        check_choice(kind, ("seeds", "differences"), "kind")
        return call(f"plot_{kind}", self, figure=figure)

    def __repr__(self) -> str:
        """Return what it is and what came out, in at most five lines."""
        groups = self.configurations()
        seeds = len({row.get("seed") for row in self.rows})
        failed = f", {len(self.failed)} failed" if self.failed else ""
        lines = [f"Study of {count(len(self.rows), 'run')}: {count(len(groups), 'configuration')} of "
                 f"{', '.join(self.swept) or 'one method'}, {count(seeds, 'seed')}{failed}"]  # fmt: skip
        lines += [f"failed first: {row['error']}" for row in self.failed[:1]]
        lines += [self.conclusion()] + [f"folder: {self.path}"] * (self.path is not None)
        return "\n".join(line.replace("\n", " ") for line in lines)

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for notebooks."""
        swept = (*self.swept, "seed", *keys(ShownIn.SWEEP))
        columns = dict.fromkeys(("algorithm", "graph", *swept, "termination", "error"))
        names = [name for name in columns if any(row.get(name) is not None for row in self.rows)]
        lines = [[_write(row.get(name)) for name in names] for row in self.rows[:_SHOWN]]
        head = "".join(f'<th title="{html.escape(one.meaning)}">{one.label}</th>' for one in map(find, names))
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
        rest = len(self.rows) - len(lines)
        more = f"<p>and {rest} more; to_frame() returns all</p>" if rest else ""
        failed = sum(row.get("error") is not None for row in self.rows)
        title = f"<p>Study of {count(len(self.rows), 'run')}" + (f", {failed} failed" if failed else "") + "</p>"
        title += f"<p>{html.escape(self.conclusion())}</p>"
        return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def load_study(path: str | os.PathLike[str]) -> Study:
    """Read the folder that ``p2pkm sweep`` or ``p2pkm compare`` wrote: what `p2pkm.study` and `p2pkm.compare` return.

    The same as `Study.load`.

    Parameters
    ----------
    path : path

    Raises
    ------
    DataError
        If it is no such folder.

    Examples
    --------
    >>> import json
    >>> import tempfile
    >>> from pathlib import Path
    >>> import p2pkm
    >>> row = {"algorithm": "gtvmin", "graph": "ring", "seed": 0, "ratio_mean": 1.01}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "study.jsonl").write_text(json.dumps(row))
    ...     found = p2pkm.load_study(folder)
    >>> found.rows[0]["ratio_mean"], len(found.to_latex(["ratio_mean"]).splitlines()) > 3
    (1.01, True)
    """
    return Study.load(path)


def read_margin(source: Any) -> float:
    """Return the margin of equivalence of a study, or of the study or comparison in a folder; else the usual one."""
    if isinstance(source, Study):
        return source.margin
    if not isinstance(source, (str, os.PathLike)):
        return MARGIN
    try:
        for name, parse in (("comparison.json", json.loads), ("study.toml", tomllib.loads)):
            if (Path(source) / name).is_file():
                return check_margin(parse((Path(source) / name).read_text("utf-8")).get("margin", MARGIN))
    except (OSError, ValueError, AttributeError, ExperimentError) as error:
        raise DataError(f"{Path(source) / name} cannot be read: {error}") from None
    return MARGIN


def read_rows(source: Any) -> list[Row]:
    """Return the rows of a study that ended without an error, given its folder, itself, its DataFrame or its rows."""
    if isinstance(source, (str, os.PathLike)):
        source = Study.load(source)
    if isinstance(source, Study):
        source = source.rows
    elif hasattr(source, "to_dict"):
        source = source.to_dict(orient="records")
    rows = list(source) if isinstance(source, Iterable) and not isinstance(source, Mapping) else [source]
    if not all(isinstance(row, Mapping) for row in rows) or isinstance(source, Mapping):
        raise ExperimentError(
            f"the study is an object of type {type(source).__name__}; expected what p2pkm.study or p2pkm.compare "
            "returns, its folder, its DataFrame, or its rows"
        )
    missing = sorted({name for row in rows for name in {"algorithm", "graph", "seed"} - row.keys()})
    if missing:
        raise ExperimentError(f"the study has rows without {', '.join(missing)}; expected a row of a study per run")
    found = [{name: None if _is_missing(value) else value for name, value in row.items()} for row in rows]
    return [row for row in found if row.get("error") is None]


def read_ended(source: Any, *columns: str) -> list[Row]:
    """Return the rows of `read_rows`, of which there must be one.

    Parameters
    ----------
    source : Study or other
    *columns : str
        Columns that one of them must have.

    Raises
    ------
    DataError
        If no run has ended.
    ExperimentError
        If a column is unknown.
    """
    rows = read_rows(source)
    known = {name for row in rows for name in row}
    for name in (name for name in columns if rows and name not in known):
        raise ExperimentError(f"the study has no column {name!r}. {suggest(str(name), known)}")
    if rows:
        return rows
    failed = source.failed if isinstance(source, Study) else []
    why = f": {count(len(failed), 'run')} failed, the first of them with {failed[0]['error']}" if failed else ""
    raise DataError(f"no run of the study has ended{why}; expected at least one. Run it again with other options")


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def save_row(path: Path, row: Row) -> None:
    """Write the row of a run that has ended, with its checksum."""
    write_json(path.parent, path.name, row | {_CHECKSUM: _digest(json.loads(json.dumps(row)))})


def read_row(path: Path) -> Row:
    """Return the row of a run that has ended.

    Raises
    ------
    ValueError
        If it is not as it was written, or was written as another one.
    """
    row = _parse(path.read_bytes())
    if row.pop(_CHECKSUM, None) != _digest(row) or row["key"] != path.stem:
        raise ValueError(f"{path} is damaged")
    return row


def _parse(text: str | bytes) -> Row:
    """Return the row that a text holds; a ValueError if it holds none."""
    try:
        row = json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if not isinstance(row, dict):
        raise ValueError("a row is not an object")
    return row


def _digest(row: Row) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()


def put_options_first(row: Row, swept: Sequence[str]) -> Row:
    """Return a row with the options that were swept before its seed, as its run was asked for them."""
    asked = row.get(OPTIONS, {})
    return {"algorithm": None, "graph": None,
            **{f"{name}_asked" if name == "rounds" else name: asked.get(name) for name in swept}, **row}  # fmt: skip


def _flatten(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("trace", OPTIONS)}


def _write(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def name_run(algorithm: str, graph: str | None) -> str:
    """Return a method and where it ran in words: gtvmin on ring, fkm with a server, alone."""
    if is_local_only(algorithm):
        return algorithm
    return f"{algorithm} with a server" if graph == SERVED else f"{algorithm} on {graph or 'its graph'}"


def is_local_only(algorithm: str) -> bool:
    """Return whether it is the method without messages, which has no graph."""
    return str(algorithm).partition(":")[0] == ALONE


def name_configuration(sides: Mapping[str, Any]) -> str:
    """Return the options of a configuration in words: gtvmin on ring, coupling 2."""
    rest = [f"{name.replace('_', ' ')} {'none' if sides[name] is None else sides[name]}"
            for name in sides if name not in _WHERE]  # fmt: skip
    return ", ".join([name_run(sides["algorithm"], sides.get("graph")), *rest])


def find_axes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the options that rows differ in: of the columns before the seed those with several values.

    The star of a method with a server is no graph that anybody chose.
    """
    names = dict.fromkeys(name for row in rows for name in takewhile(lambda name: name != "seed", row))
    values = {name: {str(row.get(name)) for row in rows} - ({SERVED} if name == "graph" else set()) for name in names}
    return [name for name, known in values.items() if len(known) > 1]


def group_runs(rows: Sequence[Row], axes: Sequence[str]) -> dict[str, dict[int, Row]]:
    """Return the runs of every configuration, in words, by their seeds."""
    groups: dict[str, dict[int, Row]] = {}
    names = [*_WHERE, *(name for name in axes if name not in _WHERE)]
    for row in rows:
        sides = {name: row.get(name) for name in names}
        groups.setdefault(name_configuration(sides), {})[row["seed"]] = row
    return groups


def average(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Row:
    """Return figures over runs that ended: means, of the worst device the worst, and how many came near central.

    A figure that not all runs have is None; but those of runs that came within 1 % of central k-means (``_of_central``)
    are over these alone, and ``reached_central`` (None if not all were compared) says how many they are.
    """
    means: Row = {}
    for name in names:
        values = [row.get(name) for row in rows if not never_reached(row, name)]
        means[name] = None if None in values or not values else float(find(name).over_runs(np.array(values, float)))
    compared = bool(rows) and all(row.get("ratio_mean") is not None for row in rows)
    came = [row for row in rows if row.get(f"rounds_to_1pct{OF_CENTRAL}") is not None]
    return means | {"reached_central": len(came) if compared else None}


def name_sides(difference: Mapping[str, Any]) -> tuple[str, str]:
    """Return the two configurations of a difference in words."""
    reference = name_run(difference["reference"], difference["reference_graph"])
    return name_run(difference["algorithm"], difference["graph"]), reference


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean; the value itself if there is only one."""
    from scipy.stats import bootstrap

    known = np.asarray(values, float)
    if len(known) < 2 or np.ptp(known) == 0.0:
        return float(known.min()), float(known.max())
    found = bootstrap((known,), np.mean, n_resamples=_RESAMPLES, method="percentile", rng=np.random.default_rng(0))
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def describe_quality_loss(group: Sequence[Mapping[str, Any]]) -> str:
    """Return in how many runs of a group quality got worse before the end, when and by how much; nothing if in none."""
    worse = [row for row in group if is_worse(row.get("ratio_mean"), row.get("ratio_best"))]
    if not worse:
        return ""
    most = max(worse, key=lambda row: float(row["ratio_mean"] / row["ratio_best"]) if row["ratio_best"] else np.inf)
    share = f"in {len(worse)} of {len(group)} runs, most " if len(group) > 1 else ""
    when = f"in round {int(most['ratio_best_round'])} of {most['ratio_best_stage']}"
    return f"{share}from ratio {most['ratio_best']:.4f} {when} to {most['ratio_mean']:.4f} at the end"
