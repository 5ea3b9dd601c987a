"""Table of a study with one row per run, read from its folder, a DataFrame or a list of rows."""

import html
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.analysis.paired_tests import MARGIN, check_margin
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.late_binding import call
from p2pkm.core.program_object import find_label, is_missing_object
from p2pkm.core.spec import suggest
from p2pkm.core.units import count
from p2pkm.core.validation import check_choice
from p2pkm.methods.registry import ALONE
from p2pkm.metrics.milestones import OF_CENTRAL, loses_quality, never_reached
from p2pkm.metrics.registry import ShownIn, find, keys
from p2pkm.storage.study_folder import read_table
from p2pkm.storage.study_mark import read_mark, read_names
from p2pkm.storage.study_rows import OPTIONS, Row, StoredRows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from p2pkm.analysis.explanation import Explanation

# Value of the column "graph" for methods with a server.
SERVED = "server"
# Number of rows in a notebook.
_SHOWN = 10
_WHERE = ("algorithm", "graph")


@dataclass(frozen=True, repr=False)
class Study:
    """Runs of a study or of a comparison, as returned by `p2pkm.study`, `p2pkm.compare` and `load_study`.

    Attributes
    ----------
    rows : list of dict
        One row per run; None for metrics that are not known. The columns before ``seed`` are the configuration.
    path : Path or None
        Folder of the study.
    margin : float
        Relative difference up to which configurations are equivalent: 0.005 is 0.5 %; 0: never.

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
        """Load the folder of a study or of a comparison; of an interrupted one, the runs that have ended.

        Raises
        ------
        DataError
            If the folder does not contain a study.
        """
        folder = Path(path)
        try:
            table = read_table(folder)
            if table is not None:
                return cls([_flatten(row) for row in table], folder, read_margin(folder))
            stored = StoredRows(folder)
            if stored.damaged_files:
                raise ValueError(f"{stored.damaged_files[0]} is damaged")
            rows = list(stored.rows.values())
        except (OSError, ValueError) as error:
            raise DataError(f"{folder} cannot be read as a study: {error}") from None
        if not rows:
            raise DataError(
                f"{folder} is not the folder of a study; expected a folder written by p2pkm study or p2pkm compare"
            )
        names_of_values = read_names(read_mark(folder).get("names", []), str(folder))
        rows = [name_values(row, names_of_values) for row in rows]
        requested = [row.get(OPTIONS, {}) for row in rows]
        names = dict.fromkeys(name for options in requested for name in options if name != "seed")
        swept = [name for name in names if len({str(options.get(name)) for options in requested}) > 1]
        return cls([_flatten(put_options_first(row, swept)) for row in rows], folder, read_margin(folder))

    @property
    def swept(self) -> list[str]:
        """Options that differ between the runs, except the seed."""
        return find_axes(self.rows)

    @property
    def failed(self) -> list[Row]:
        """Rows of runs that failed; ``error`` is the reason."""
        return [row for row in self.rows if row.get("error") is not None]

    def configurations(self) -> dict[str, dict[int, Row]]:
        """Return the runs that ended without an error, by name of the configuration and by seed."""
        return group_runs(read_rows(self), self.swept)

    def to_frame(self) -> Any:
        """Convert the rows to a pandas.DataFrame with one row per run."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def to_latex(
        self, figures: Sequence[str] | None = None, *, spread: str = "sd", caption: str | None = None,
        label: str | None = None, path: str | os.PathLike[str] | None = None,
    ) -> str:  # fmt: skip
        """Format a LaTeX table with booktabs rules, a line per configuration: means over seeds and their spread.

        The best mean of a column is bold only if every other configuration is significantly worse, see `conclusion`
        for the test. The mark ≈ means equivalent to the best, a question mark not distinguished from it.

        Parameters
        ----------
        figures : sequence of str, optional
            Columns of `rows`; None: test cost and ARI of test points, cost ratio, ARI and bytes, if they are known.
        spread : {"sd", "interval", "none"}
            Value after the mean: standard deviation (n - 1), 95 % interval of the mean by Student's t, or nothing.
        caption, label : str, optional
            Caption and label in LaTeX, not escaped. With one of them, the table is in a ``table`` environment.
        path : path, optional
            File to which the table is written.

        Raises
        ------
        ExperimentError
            If a column does not contain numbers, or `spread` is unknown.
        DataError
            If no run has ended.
        """
        from p2pkm.analysis.latex_table import Layout, write_latex

        read_ended(self)
        # The graph of the method without messages is shown as a dash.
        without_graph = {"graph": None}
        groups = {
            name: {seed: row | without_graph if is_local_only(row["algorithm"]) else row for seed, row in group.items()}
            for name, group in self.configurations().items()
        }
        text = write_latex(groups, self.swept, figures, Layout(spread, caption, label, self.margin))
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def conclusion(self, figure: str | None = None) -> str:
        """Summarize the study in sentences to quote: the best configuration, and the verdict on each of the others.

        * Worse: a paired t-test with Holm's correction over all pairs rejects equality. With at least 8 seeds of which
          one dominates the differences, a signed-rank test is used.
        * Equivalent: the 90 % interval of the ratio is within `margin`.
        * Not distinguished: otherwise, with the number of seeds for a verdict. At least 5 common seeds are required.

        Each verdict is followed by the effect and the interval on which it is based: the difference of the costs in
        percent (geometric mean of the ratios over the seeds), of scores in their unit. Runs on different points are
        not compared: with several data, each has sentences of its own. Failed runs are left out and counted.

        Where devices have test points, the first sentences rank by their test cost, with the ARI of the test points of
        all devices beside it, and the last ones by the cost ratio of one clustering for all devices.

        Parameters
        ----------
        figure : str, optional
            Column of `rows` to compare; None: the test cost relative to a common clustering where devices have test
            points, else the cost ratio.
        """
        from p2pkm.analysis.conclusion import conclude

        failed = {name: len(group) for name, group in group_runs(self.failed, self.swept).items()}
        return conclude(self.configurations(), figure, self.margin, failed)

    def verdicts(self, figure: str | None = None) -> list[Row]:
        """List a row per configuration, the best first, with its mean and the comparison with the best.

        Each block of configurations on the same points has its own best one.

        Parameters
        ----------
        figure : str, optional
            Column of `rows` to compare; None: as in `conclusion`.

        Returns
        -------
        list of dict
            ``configuration``, ``reference``, ``figure``, ``mean`` and the fields of
            `p2pkm.analysis.paired_tests.PairedTest`; the verdict of the best configuration is "best".
        """
        from p2pkm.analysis.conclusion import list_verdicts

        return list_verdicts(self.configurations(), [figure], self.margin)

    def explain(self) -> "Explanation":
        """Relate the outcomes of each method to measures of the graphs.

        * Outcomes: excess over central k-means, of the mean and of the worst device, encoded bytes, bytes of the
          busiest device, rounds, simulated time.
        * A graph is one observation, averaged over seeds. At least 8 graphs are required. Graphs are compared with
          graphs of the same number of devices if there are 8 of them, else all together.
        * Rank correlations (Spearman) have 95 % intervals by a bootstrap over graphs. P-values of a permutation test
          are Holm-corrected over all methods, measures and outcomes.
        * The best one and the best two measures are chosen by cross-validation. The explained variance is that on
          graphs that were left out when the measures were chosen.

        Returns
        -------
        p2pkm.analysis.explanation.Explanation
            With `correlations`, `predictors`, `notes`, `to_frame` and `to_csv`. It is printed as a list of sentences.
        """
        from p2pkm.analysis.explanation import explain

        return explain(read_rows(self), self.swept, len(self.failed))

    def plot(
        self, kind: str = "seeds", *, figure: str | None = None, x: str | None = None, y: str | None = None,
        color: str | None = None,
    ) -> "Figure":  # fmt: skip
        """Draw a figure of all configurations and seeds, or of one column of `rows` against another one.

        Parameters
        ----------
        kind : {"seeds", "differences", "explained"}
            Kind of figure: one panel per graph with a dot per seed, paired differences to the best configuration, or
            rank correlations between graph measures and outcomes.
        figure : str, optional
            Column of `rows` to draw; None: as in `conclusion`. Not used by "explained", which draws all outcomes.
        x, y, color : str, optional
            Columns of `rows`, in place of a kind: `y` (None: as in `conclusion`) against `x`, with a dot per run, a
            mark at each mean and its 95 % interval, colored by a third column (None: the first other option that
            varies). See `p2pkm.viz.plot_columns`.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ExperimentError
            If a column does not exist, or the options exclude each other.
        DataError
            If no run has ended, or has a value to draw.

        Examples
        --------
        >>> import p2pkm
        >>> study = p2pkm.study(
        ...     grid={"coupling": [1, 10, 100], "graph": ["ring", "complete"]}, algorithm="gtvmin", seeds=range(3),
        ...     devices=4, data="grid16:points=10", rounds=3, progress=False,
        ... )
        >>> figure = study.plot(x="coupling", y="bytes", color="graph")
        >>> figure.axes[0].get_ylabel()
        'plain bytes'
        """
        if any(kind in row for row in self.rows):
            raise ExperimentError(f"kind is {kind!r}, which is a column. Use figure={kind!r}, or x= and y={kind!r}")
        check_choice(kind, ("seeds", "differences", "explained"), "kind")
        if x is not None:
            if kind != "seeds" or figure is not None:
                raise ExperimentError(
                    f"x is {x!r}, which cannot be combined with kind or figure. Use y in place of figure, or remove x"
                )
            return call("plot_columns", self, x, y, color)
        if y is not None or color is not None:
            raise ExperimentError("y and color require x, the column of the horizontal axis, such as x='graph'")
        if kind == "explained":
            return call("plot_explained", self)
        return call(f"plot_{kind}", self, figure=figure)

    def __repr__(self) -> str:
        """Return a summary in at most five lines."""
        groups = self.configurations()
        seeds = len({row.get("seed") for row in self.rows})
        failed = f", {len(self.failed)} failed" if self.failed else ""
        lines = [f"Study of {count(len(self.rows), 'run')}: {count(len(groups), 'configuration')} of "
                 f"{', '.join(self.swept) or 'one method'}, {count(seeds, 'seed')}{failed}"]  # fmt: skip
        lines += [f"failed first: {row['error']}" for row in self.failed[:1]]
        lines.append(self.conclusion())
        if self.path is not None:
            lines.append(f"folder: {self.path}")
        return "\n".join(line.replace("\n", " ") for line in lines)

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for notebooks."""
        swept = (*self.swept, "seed", *keys(ShownIn.SWEEP))
        columns = dict.fromkeys(("algorithm", "graph", *swept, "termination", "error"))
        names = [name for name in columns if any(row.get(name) is not None for row in self.rows)]
        lines = [[_write(row.get(name)) for name in names] for row in self.rows[:_SHOWN]]
        head = "".join(f'<th title="{html.escape(metric.meaning)}">{metric.label}</th>' for metric in map(find, names))
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
        rest = len(self.rows) - len(lines)
        more = f"<p>and {rest} more rows; to_frame() returns all</p>" if rest else ""
        failed = sum(row.get("error") is not None for row in self.rows)
        title = f"<p>Study of {count(len(self.rows), 'run')}" + (f", {failed} failed" if failed else "") + "</p>"
        title += f"<p>{html.escape(self.conclusion())}</p>"
        return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def load_study(path: str | os.PathLike[str]) -> Study:
    """Load a study from the folder written by ``p2pkm study``, ``p2pkm compare``, `p2pkm.study` or `p2pkm.compare`.

    The same as `Study.load`.

    Parameters
    ----------
    path : path
        Folder of the study.

    Raises
    ------
    DataError
        If the folder does not contain a study.

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
    """Return the margin of equivalence of a study, or of the study or comparison in a folder; else the default."""
    if isinstance(source, Study):
        return source.margin
    if not isinstance(source, (str, os.PathLike)):
        return MARGIN
    folder = Path(source)
    try:
        return check_margin(read_mark(folder).get("margin", MARGIN))
    except ExperimentError as error:
        raise DataError(f"{folder} cannot be read: {error}. Restore a copy") from None


def read_rows(source: Any) -> list[Row]:
    """Return the rows of runs without an error, given a study, its folder, its DataFrame or its rows."""
    if isinstance(source, (str, os.PathLike)):
        source = Study.load(source)
    if isinstance(source, Study):
        source = source.rows
    elif hasattr(source, "to_dict"):
        source = source.to_dict(orient="records")
    rows = list(source) if isinstance(source, Iterable) and not isinstance(source, Mapping) else [source]
    if not all(isinstance(row, Mapping) for row in rows) or isinstance(source, Mapping):
        raise ExperimentError(
            f"the study has type {type(source).__name__}; expected a result of p2pkm.study or p2pkm.compare, its "
            "folder, its DataFrame, or its rows"
        )
    missing = sorted({name for row in rows for name in {"algorithm", "graph", "seed"} - row.keys()})
    if missing:
        raise ExperimentError(
            f"the study has rows without the columns {', '.join(missing)}; expected rows as in p2pkm.Study.rows"
        )
    # Only missing values, such as those of a DataFrame, differ from themselves.
    cleaned = ({name: value if value == value else None for name, value in row.items()} for row in rows)
    return [row for row in cleaned if row.get("error") is None]


def read_ended(source: Any, *columns: str) -> list[Row]:
    """Return the rows of `read_rows`, at least one.

    Parameters
    ----------
    source : Study or other
        As for `read_rows`.
    *columns : str
        Columns that must exist.

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
        raise ExperimentError(f"column {name!r} does not exist in the study. {suggest(str(name), known)}")
    if rows:
        return rows
    failed = source.failed if isinstance(source, Study) else []
    why = f": {count(len(failed), 'run')} failed, the first with {failed[0]['error']}" if failed else ""
    raise DataError(f"no run of the study has ended{why}; expected at least one. Repeat the study with other options")


def put_options_first(row: Row, swept: Sequence[str]) -> Row:
    """Return a row in which the swept options, with their requested values, are the first columns."""
    requested = row.get(OPTIONS, {})
    # The rounds that a run took are in the column "rounds" already.
    options = {f"{name}_asked" if name == "rounds" else name: requested.get(name) for name in swept}
    return {"algorithm": None, "graph": None, **options, **row}


def name_values(row: Row, names: Mapping[str, Mapping[Any, str]]) -> Row:
    """Replace the values in a row that have a name, by option and value."""
    if OPTIONS in row:
        row = row | {OPTIONS: {name: find_label(value) for name, value in row[OPTIONS].items()}}
    if not names:
        return row
    changed = {name: names[name].get(row.get(name), row.get(name)) for name in _WHERE if name in row and name in names}
    if OPTIONS in row:
        requested = row[OPTIONS]
        changed[OPTIONS] = requested | {
            name: known[requested.get(name)] for name, known in names.items() if requested.get(name) in known
        }
    if error := row.get("error"):
        for value, name in (pair for known in names.values() for pair in known.items()):
            error = error.replace(value, name) if is_missing_object(value) else error
        changed["error"] = error
    return row | changed


def _flatten(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("trace", OPTIONS)}


def _write(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def name_run(algorithm: str, graph: str | None) -> str:
    """Return a name of a method and its graph, such as "gtvmin on ring", "fkm with a server" or "local"."""
    if is_local_only(algorithm):
        return algorithm
    return f"{algorithm} with a server" if graph == SERVED else f"{algorithm} on {graph or 'its graph'}"


def is_local_only(algorithm: str) -> bool:
    """Return whether an algorithm is the method without messages."""
    return str(algorithm).partition(":")[0] == ALONE


def name_configuration(sides: Mapping[str, Any]) -> str:
    """Return a name of a configuration, such as "gtvmin on ring, coupling 2"."""
    rest = [f"{name.replace('_', ' ')} {'none' if sides[name] is None else sides[name]}"
            for name in sides if name not in _WHERE]  # fmt: skip
    return ", ".join([name_run(sides["algorithm"], sides.get("graph")), *rest])


def list_options(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the options of the rows that a study may vary: the columns before the seed."""
    return list(dict.fromkeys(name for row in rows for name in takewhile(lambda name: name != "seed", row)))


def find_axes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the options that differ between rows: columns before the seed with several values.

    The value "server" of the column "graph" is not counted, because it follows from the method.
    """
    names = list_options(rows)
    values = {name: {str(row.get(name)) for row in rows} - ({SERVED} if name == "graph" else set()) for name in names}
    return [name for name, known in values.items() if len(known) > 1]


def group_runs(rows: Sequence[Row], axes: Sequence[str]) -> dict[str, dict[int, Row]]:
    """Group runs by name of the configuration and by seed."""
    groups: dict[str, dict[int, Row]] = {}
    names = [*_WHERE, *(name for name in axes if name not in _WHERE)]
    for row in rows:
        sides = {name: row.get(name) for name in names}
        groups.setdefault(name_configuration(sides), {})[row["seed"]] = row
    return groups


def average(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Row:
    """Aggregate metrics over runs that ended: the mean, or the maximum for metrics of the worst device.

    A metric that some runs lack is None. Metrics on reaching 1 % of central k-means (``_of_central``) are aggregated
    over the runs that reached it; ``reached_central`` is the number of these runs, None if not all runs were compared.
    """
    means: Row = {}
    for name in names:
        values = [row.get(name) for row in rows if not never_reached(row, name)]
        means[name] = None if None in values or not values else float(find(name).over_runs(np.array(values, float)))
    compared = bool(rows) and all(row.get("ratio_mean") is not None for row in rows)
    reached = [row for row in rows if row.get(f"rounds_to_1pct{OF_CENTRAL}") is not None]
    return means | {"reached_central": len(reached) if compared else None}


def name_sides(difference: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names of the two configurations of a difference."""
    reference = name_run(difference["reference"], difference["reference_graph"])
    return name_run(difference["algorithm"], difference["graph"]), reference


def describe_quality_loss(group: Sequence[Mapping[str, Any]]) -> str:
    """Describe how quality decreased before the end: in how many runs, when, and by how much; empty if in none."""
    worse = [row for row in group if loses_quality(row)]
    if not worse:
        return ""
    most = max(worse, key=lambda row: float(row["ratio_mean"] / row["ratio_best"]) if row["ratio_best"] else np.inf)
    share = f"in {len(worse)} of {len(group)} runs, most " if len(group) > 1 else ""
    when = f"in round {int(most['ratio_best_round'])} of {most['ratio_best_stage']}"
    return f"{share}from ratio {most['ratio_best']:.4f} {when} to {most['ratio_mean']:.4f} at the end"
