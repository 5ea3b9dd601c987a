"""Conversion of X to rows: arrays, sparse matrices and tables, with missing values."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Floats
from p2pkm.core.errors import DataError
from p2pkm.core.validation import check_distinct, check_values
from p2pkm.data.readers.frame import NUMBER, is_frame, take_table
from p2pkm.experiments.estimators.table import Column, read_table
from p2pkm.experiments.plan.free_memory import available_memory

Points = NDArray[np.floating[Any]]
KINDS = (np.float64, np.float32)  # types of rows that are not converted
_DENSE_VALUES = 1 << 24  # largest number of values of a block of a sparse matrix: 128 MB as an array
_COPIES = 2  # of all rows during a run: in the order of X, and in the order of devices
_GIGABYTE = 1e9


def read_rows(
    estimator: Any,
    X: Any,  # noqa: N803
    columns: tuple[Column, ...] | None,
    *,
    reset: bool,
    missing: bool,
) -> tuple[Points, tuple[Column, ...] | None]:
    """Convert X to float64[m, d] or float32[m, d], and set or compare number and names of the columns.

    Parameters
    ----------
    estimator : estimator
    X : array_like, sparse matrix or table of shape (m, columns)
    columns : tuple of Column or None
        Columns of `fit`, if X was a table.
    reset : bool
        Whether this is `fit`.
    missing : bool
        Whether NaN is accepted.

    Returns
    -------
    points : float64[m, d] or float32[m, d]
        Each category of a column of categories is one feature.
    columns : tuple of Column or None
        Columns of the table. None: X is an array or a sparse matrix.

    Raises
    ------
    ValueError
        If X cannot be used.
    """
    from sklearn.utils.validation import check_array, validate_data

    options: dict[str, Any] = {"dtype": KINDS, "order": "C", "ensure_all_finite": "allow-nan"}
    if take_table(X) is not X:
        raise DataError(
            f"X is of type {type(X).__name__}; expected an array, or a table of which all rows are in memory. Use "
            "X.collect(), or pyarrow.Table.from_batches([X])"
        )
    if is_frame(X):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        if not reset and columns is None:
            columns = tuple(Column(str(j), NUMBER) for j in range(X.shape[1]))
        encoded, columns = read_table(X, None if reset else columns)
        points = check_array(encoded, estimator=estimator, input_name="X", **options)
    else:
        if columns is not None and any(column.kind != NUMBER for column in columns):
            names = ", ".join(repr(column.name) for column in columns if column.kind != NUMBER)
            raise DataError(
                f"X is of type {type(X).__name__}; expected a table with the columns of fit, because {names} are not "
                "numbers. Use the data frame"
            )
        check_values(X, "X")
        try:
            points = validate_data(estimator, X, reset=reset, accept_sparse="csr", **options)
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            text = str(error).rpartition(": ")[2].removeprefix("np.str_(").removesuffix(")")
            raise DataError(
                f"X has text, {text}; expected numbers. Convert the columns of a data frame to categories "
                "(astype('category') in pandas), or read the file with p2pkm.read_table"
            ) from None
        points = points if isinstance(points, np.ndarray) else _to_dense(points)
        if isinstance(X, np.ndarray | list | tuple):
            check_distinct(np.asarray(X), points, "X")
    if not missing:
        _refuse_missing(points)
    return points, columns


def split_rows(X: Any) -> Iterator[tuple[slice, Any, int | None]]:  # noqa: N803
    """Split a large sparse matrix into blocks of rows, of which each fits into memory as an array; yield other X whole.

    Yields
    ------
    rows : slice
    block : sparse matrix or X
    total : int or None
        Number of rows of X; None if X is whole.

    Notes
    -----
    The blocks depend on the shape alone, so that sums over them do not differ between computers.
    """
    from scipy.sparse import issparse

    is_matrix = issparse(X) and X.ndim == 2
    if not is_matrix or X.shape[0] * X.shape[1] <= _DENSE_VALUES:
        yield slice(None), X, None
        return
    matrix, step = X.tocsr(), max(1, _DENSE_VALUES // X.shape[1])
    for first in range(0, X.shape[0], step):
        rows = slice(first, first + step)
        yield rows, matrix[rows], X.shape[0]


def _to_dense(matrix: Any) -> Points:
    """Convert a sparse matrix to an array, if it fits into memory.

    Raises
    ------
    DataError
        With the memory that it would take.
    """
    needed, free = _COPIES * matrix.shape[0] * matrix.shape[1] * matrix.dtype.itemsize, available_memory()
    if free is not None and needed > free:
        raise DataError(
            f"X is sparse with shape {matrix.shape}, and centroids are dense: a run would take "
            f"{needed / _GIGABYTE:.3g} GB, but {free / _GIGABYTE:.3g} GB are free. Reduce the features first, for "
            "example with sklearn.decomposition.TruncatedSVD"
        )
    return np.ascontiguousarray(matrix.toarray())


def _refuse_missing(points: Points) -> None:
    """Reject NaN.

    Raises
    ------
    DataError
        Names the first row and column.
    """
    if np.isnan(points.max(initial=0.0)):
        lost = np.isnan(points)
        row, column = map(int, np.argwhere(lost)[0])
        raise DataError(
            f"X contains NaN in {int(lost.any(axis=1).sum()):,} of {len(points):,} rows, first at row {row}, column "
            f"{column} (counted from 0); expected finite numbers. Set missing='mean' or missing='median', or drop such "
            "rows"
        )


def fill_in(points: Points, values: Floats | None) -> Points:
    """Replace NaN by the value of the feature; None: nothing is missing."""
    if values is None or not np.isnan(points.max(initial=0.0)):
        return points
    return np.where(np.isnan(points), values, points).astype(points.dtype)
