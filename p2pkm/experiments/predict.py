"""Clusters of new rows by the centroids of a finished run."""

import csv
import io
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.data.identifiers import join_names
from p2pkm.data.new_rows import NewRows, read_new_rows
from p2pkm.data.readers.intake import split_list
from p2pkm.data.schema import Schema
from p2pkm.metrics.result import Result
from p2pkm.storage.load import load
from p2pkm.storage.save import write_bytes

# Devices that an example in a message names.
_NEIGHBORS = 2


class Prediction(NamedTuple):
    """Clusters of new rows.

    Attributes
    ----------
    cluster : int64[m]
        Number of the cluster as in labels.csv of the run; -1: a value of the row is missing.
    device : list of str
        Device whose centroids were used.
    copied : dict of str to list of str
        Columns copied from the table.
    notes : tuple of str
    """

    cluster: Any
    device: list[str]
    copied: dict[str, list[str]]
    notes: tuple[str, ...]

    def to_csv(self) -> str:
        """Format one line per row: row, copied columns, device, cluster."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["row", *self.copied, "device", "cluster"])
        clusters = ["" if c < 0 else c for c in self.cluster.tolist()]
        columns: list[Iterable[Any]] = [range(len(clusters)), *self.copied.values(), self.device, clusters]
        writer.writerows(zip(*columns, strict=True))
        return text.getvalue()


def predict_rows(
    run: Path, source: Any, *, device: str | None = None, common: bool = False, neighbors: str | None = None,
    keep: str | None = None, check_ranges: bool = True, form: Mapping[str, Any] | None = None,
) -> Prediction:  # fmt: skip
    """Assign new rows to the clusters of a run.

    Parameters
    ----------
    run : Path
        Run folder.
    source : path or table
        New rows, with the columns of the table of the run.
    device : str, optional
        Device whose centroids are used. None: the device of each row, if the table has the column of devices.
    common : bool
        Whether to use the centroids of lowest pooled cost for all rows.
    neighbors : str, optional
        Devices of the run, separated by commas, that are the neighbors of every device of the table that was not in the
        run; its centroids are computed from all its complete rows, see `Result.adapt`. If the table is without the
        column of devices, all rows are of one such device.
    keep : str, optional
        Columns to copy; None: those of the run.
    check_ranges : bool
        Whether to reject columns far outside of the range of the run.
    form : mapping, optional
        Options that describe this file, as `p2pkm.data.new_rows.FORMAT`; None: as in the run.

    Raises
    ------
    DataError
        If the run or the table cannot be used, or a row has an unknown device.
    ExperimentError
        If two of `device`, `common` and `neighbors` are combined.
    """
    given = {"--device": device is not None, "--common": common, "--neighbors": neighbors is not None}
    selecting = [name for name, is_given in given.items() if is_given]
    if len(selecting) > 1:
        raise ExperimentError(
            f"{selecting[0]} cannot be combined with {selecting[1]}: both select centroids. Remove one of them"
        )
    new_neighbors = () if neighbors is None else split_list(neighbors)
    if neighbors is not None and not new_neighbors:
        raise ExperimentError(
            f"--neighbors is {neighbors!r}; expected names or numbers of devices of the run, such as --neighbors 0,1"
        )
    result = load(run)
    if result.derived:
        raise DataError(f"{run} has clusters of learned features, which a table does not contain. Use another method")
    schema = result.schema or Schema.of_features(result.feature_names)
    rows = read_new_rows(source, schema, keep=keep, check_ranges=check_ranges, form=form)
    joining = [_read_device(result, name) for name in new_neighbors]
    numbers, notes = _choose_devices(result, rows, device, common, joining), rows.notes
    complete = np.asarray(~np.isnan(rows.points).any(axis=1))
    cluster = np.full(len(complete), -1)
    for number in np.unique(numbers[complete & (numbers >= 0)]).tolist():
        chosen = complete & (numbers == number)
        names = result.topology.names
        labels = result.predict(rows.points[chosen], number if names is None else names[number])
        cluster[chosen] = result.number_alike(np.full(len(labels), number), labels)
    used = [result.topology.label(i) if i >= 0 else "" for i in numbers.tolist()]
    if joining:
        used = used if rows.device is None else rows.device
        if (numbers >= 0).all():
            notes += ("--neighbors is not used: all devices of the table were in the run",)
        names_of_rows = np.array(used, object)
        for name in dict.fromkeys(names_of_rows[complete & (numbers < 0)].tolist()):
            chosen = complete & (numbers < 0) & (names_of_rows == name)
            cluster[chosen] = result.predict(rows.points[chosen], neighbors=joining)
    if rows.device is None and not selecting and result.topology.clients > 1:
        label = result.topology.label(result.best)
        column = "" if schema.device_column is None else f" {schema.device_column!r}"
        notes += (
            f"the table is without a column{column} of devices: all rows get the centroids of {label}, which have the "
            "lowest pooled cost",
        )
    if not complete.all():
        notes += (f"{int((~complete).sum()):,} of {len(complete):,} rows have a missing value and are without cluster",)
    return Prediction(cluster, used, rows.copied, notes)


def _read_device(result: Result, name: str) -> int | str:
    """Convert a device of the command line to the form of `Result.find_device`."""
    return int(name) if name.isdecimal() and result.topology.names is None else name


def _choose_devices(result: Result, rows: NewRows, device: str | None, common: bool, joining: list[int | str]) -> Any:
    """Return the number of the device whose centroids are used for each row, int64[m]; -1: a device that joins."""
    m = len(rows.points)
    if device is not None:
        return np.full(m, result.find_device(_read_device(result, device)))
    if joining and rows.device is None:
        return np.full(m, -1)
    if common or rows.device is None:
        return np.full(m, result.best)
    labels = {result.topology.label(i): i for i in range(result.topology.clients)}
    unknown = next((row for row, name in enumerate(rows.device) if name not in labels), None)
    if unknown is not None and not joining:
        some = shlex.quote(join_names(list(labels)[:_NEIGHBORS]))
        raise DataError(
            f"row {unknown} has the device {rows.device[unknown]!r}, which is not in the run. For centroids of its "
            f"own, name its neighbors in the run, such as --neighbors {some}. Or use --common for the centroids of "
            "lowest cost, or --device NAME"
        )
    if "" in rows.device:
        raise DataError(
            f"row {rows.device.index('')} is without a device; expected its name. Add it, or use --common without "
            "--neighbors"
        )
    return np.array([labels.get(name, -1) for name in rows.device], np.int64)


def write_prediction(prediction: Prediction, path: Path) -> None:
    """Write the clusters to a CSV file.

    Raises
    ------
    DataError
        If the file cannot be written.
    """
    try:
        write_bytes(path.parent, path.name, lambda file: file.write(prediction.to_csv().encode()))
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}. Choose another file") from None
