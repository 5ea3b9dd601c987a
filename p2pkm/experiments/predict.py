"""Clusters of new rows by the centroids of a finished run."""

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.data.new_rows import NewRows, read_new_rows
from p2pkm.data.schema import Schema
from p2pkm.metrics.result import Result
from p2pkm.storage.load import load
from p2pkm.storage.save import write_bytes


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


def predict_rows(  # noqa: PLR0913 - the options of the command
    run: Path, source: Any, *, device: str | None = None, common: bool = False, keep: str | None = None,
    check_ranges: bool = True, form: Mapping[str, Any] | None = None,
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
        If `device` and `common` are combined.
    """
    if device is not None and common:
        raise ExperimentError("--device cannot be combined with --common: both select centroids. Remove one of them")
    result = load(run)
    if result.derived:
        raise DataError(f"{run} has clusters of learned features, which a table does not contain. Use another method")
    schema = result.schema or Schema.of_features(result.feature_names)
    rows = read_new_rows(source, schema, keep=keep, check_ranges=check_ranges, form=form)
    numbers = _choose_devices(result, rows, device, common)
    complete = np.asarray(~np.isnan(rows.points).any(axis=1))
    cluster = np.full(len(complete), -1)
    for number in np.unique(numbers[complete]).tolist():
        chosen = complete & (numbers == number)
        names = result.topology.names
        labels = result.predict(rows.points[chosen], number if names is None else names[number])
        cluster[chosen] = result.number_alike(np.full(len(labels), number), labels)
    notes = rows.notes
    if rows.device is None and device is None and not common and result.topology.clients > 1:
        label = result.topology.label(result.best)
        column = "" if schema.device_column is None else f" {schema.device_column!r}"
        notes += (
            f"the table is without a column{column} of devices: all rows get the centroids of {label}, which have the "
            "lowest pooled cost",
        )
    if not complete.all():
        notes += (f"{int((~complete).sum()):,} of {len(complete):,} rows have a missing value and are without cluster",)
    return Prediction(cluster, [result.topology.label(i) for i in numbers.tolist()], rows.copied, notes)


def _choose_devices(result: Result, rows: NewRows, device: str | None, common: bool) -> Any:
    """Return the number of the device whose centroids are used for each row, int64[m]."""
    m = len(rows.points)
    if device is not None:
        number = int(device) if device.isdecimal() and result.topology.names is None else device
        return np.full(m, result.find_device(number))
    if common or rows.device is None:
        return np.full(m, result.best)
    labels = {result.topology.label(i): i for i in range(result.topology.clients)}
    unknown = next((row for row, name in enumerate(rows.device) if name not in labels), None)
    if unknown is not None:
        raise DataError(
            f"row {unknown} has the device {rows.device[unknown]!r}, which is not in the run. Use --common for the "
            "centroids of lowest cost, or --device NAME"
        )
    return np.array([labels[name] for name in rows.device], np.int64)


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
