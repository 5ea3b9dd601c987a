"""Tables in memory whose points are dealt to devices: the arrays that `p2pkm.Shards.deal` takes."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.data.readers.columns import DEVICE_NAMES, LABEL_NAMES, list_names
from p2pkm.data.readers.frame import is_frame, list_columns, take_table
from p2pkm.data.table import Table

_CALLER = 4  # calls from a warning to the call of `Shards.deal`


class Dealt(NamedTuple):
    """Points of a table, and what is known of each.

    Attributes
    ----------
    points : float64[m, d] or float32[m, d]
    device, labels, weights : array[m] or None
        `device` is never None.
    devices : array or None
        All devices in order, if some have no points.
    features, names : tuple of str or None
        Names of the features and of the devices.
    rows : int64[m] or None
        Rows of the table that the points are; None: all.
    schema : Schema or None
    copied : dict of str to array, or None
        As in `Table`.
    """

    points: NDArray[Any]
    device: Any
    labels: Any
    weights: Any
    devices: Any = None
    features: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None
    rows: NDArray[np.int64] | None = None
    schema: Any = None
    copied: dict[str, NDArray[Any]] | None = None


def read_for_deal(data: Any, device: Any, labels: Any, weights: Any, *, missing: bool) -> Dealt | None:
    """Read a frame, or take a table that was read; None of anything else.

    Parameters
    ----------
    data : DataFrame, pyarrow.Table, Table or other
    device, labels, weights : array_like of shape (m,), str or None
        Of a frame also the name of a column.
    missing : bool
        Whether missing values become NaN.

    Raises
    ------
    DataError
        If a column does not exist, an array is data in addition to a column, or no device is known.
    """
    data = take_table(data)
    named = {"device": device, "labels": labels, "weights": weights}
    if not (is_frame(data) or isinstance(data, Table)):
        column = next((name for name, value in named.items() if isinstance(value, str)), None)
        if column is not None:
            raise DataError(f"{column} is {named[column]!r}, a name, but X has no columns; expected an array")
        return None
    if isinstance(data, Table):
        table = data
        column = next((name for name, value in named.items() if isinstance(value, str)), None)
        if column is not None:
            raise DataError(
                f"{column} is {named[column]!r}, but X is a table that has been read. Name the column in read_table"
            )
    else:
        weights, table = _read(data, device, labels, weights, missing)
    device = table.device if device is None or isinstance(device, str) else _select(device, table)
    labels = table.labels if labels is None or isinstance(labels, str) else _select(labels, table)
    weights = table.weights if weights is None else _select(weights, table)
    if device is None:
        known = f"; its columns are {list_names(list_columns(data).names)}" if is_frame(data) else ""
        raise DataError(f"X has no column device or client, and device is None{known}. Name a column with device=")
    # Columns that pandas only numbers have no names, as in scikit-learn.
    names = list_columns(data).names if is_frame(data) else []
    features = None if names and names == [str(number) for number in range(len(names))] else table.features
    return Dealt(table.points, device, labels, weights, table.owners, features, table.names, table.rows, table.schema,
                 table.copied)  # fmt: skip


def _select(values: Any, table: Table) -> Any:
    """Select the values of the remaining rows of a table from those of all its rows."""
    if table.rows is None or np.shape(values)[:1] != (table.total,):
        return values
    # Masked arrays keep their masks.
    return np.asanyarray(values)[table.rows]


def _read(frame: Any, device: Any, labels: Any, weights: Any, missing: bool) -> tuple[Any, Table]:
    """Read a frame; return the weights and the table of the rest."""
    names, drop = list_columns(frame).names, list[str]()
    for value, role, usual in ((device, "device", DEVICE_NAMES), (labels, "labels", LABEL_NAMES)):
        columns = [name for name in names if name.lower() in usual]
        if columns and not (value is None or isinstance(value, str)):
            raise DataError(
                f"X has a column {columns[0]!r}, but {role} is an array; expected one of both. Use "
                f"{role}={columns[0]!r}, or drop the column from X"
            )
    if isinstance(weights, str):
        if weights not in names:
            raise DataError(f"X has no column {weights!r} for weights; its columns are {list_names(names)}")
        weights, drop = np.asarray(list_columns(frame).columns[names.index(weights)]), [weights]
    from p2pkm.data.readers.any_format import read_table

    table = read_table(
        frame,
        labels if isinstance(labels, str) else None,
        device if isinstance(device, str) else None,
        drop=drop,
        missing="mean" if missing else "refuse",
    )
    for note in table.notes or ():
        warnings.warn(note, stacklevel=_CALLER)
    return weights, table
