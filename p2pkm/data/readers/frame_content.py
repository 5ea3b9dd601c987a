"""Content of data frames of pandas and polars and of Arrow tables: names, columns, and what identifies them."""

from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_KINDS = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table"}


def is_frame(value: Any) -> bool:
    """Check whether a value is a data frame of pandas or polars or a table of Arrow."""
    return any(
        kind.__module__.partition(".")[0] in _KINDS and kind.__name__ == _KINDS[kind.__module__.partition(".")[0]]
        for kind in type(value).__mro__
    )


def list_columns(frame: Any) -> list[Any]:
    """List the columns of a frame in their order, by number, because names may occur twice."""
    return [_take_column(frame, j) for j in range(len(name_columns(frame)))]


def name_columns(frame: Any) -> list[str]:
    """List the names of the columns of a frame."""
    return [str(name) for name in (frame.column_names if _library(frame) == "pyarrow" else frame.columns)]


def list_content(frame: Any) -> list[Any]:
    """List names and values of the columns, equal for frames with equal content; texts are joined for fast hashing."""
    content = list[Any]()
    for name, column in zip(name_columns(frame), list_columns(frame), strict=True):
        numbers = _to_numbers(column)
        content.append((name, join_texts(map(_to_text, _to_list(column))) if numbers is None else numbers))
    return content


def join_texts(texts: Iterable[str]) -> tuple[str, NDArray[np.int64]]:
    """Join texts; the lengths tell them apart."""
    listed = list(texts)
    return "".join(listed), np.fromiter(map(len, listed), np.int64, len(listed))


def _library(value: Any) -> str:
    return str(type(value).__module__.partition(".")[0])


def _take_column(frame: Any, column: int) -> Any:
    library = _library(frame)
    if library == "pyarrow":
        return frame.column(column)
    return frame.to_series(column) if library == "polars" else frame.iloc[:, column]


def _to_list(column: Any) -> list[Any]:
    library = _library(column)
    return list(column.to_pylist() if library == "pyarrow" else column.tolist() if library == "pandas"
                else column.to_list())  # fmt: skip


def _to_numbers(column: Any) -> NDArray[np.float64] | None:
    """Convert numbers and truth values of any width, nullable or not, to float64; None for other columns."""
    library = _library(column)
    if library == "polars":
        import polars

        known = column.dtype.is_numeric() and not column.dtype.is_decimal()
        if not (known or column.dtype == polars.Boolean):
            return None
        return np.array(column.cast(polars.Float64).fill_null(np.nan).to_numpy(), np.float64)
    if library == "pyarrow":
        values = np.asarray(column.to_numpy())
        return values.astype(np.float64) if values.dtype.kind in "biuf" else None
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if not (is_numeric_dtype(column.dtype) or is_bool_dtype(column.dtype)) or column.dtype.kind not in "biuf":
        return None
    return np.array(column.to_numpy(dtype=np.float64, na_value=np.nan))


def _to_text(value: Any) -> str:
    """Write a value as text; a missing one is empty."""
    if value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        return ""
    return str(value).strip()


def note_index(frame: Any, named: Container[str] = ()) -> tuple[str, ...]:
    """Write a note if a pandas frame has a named index that is not among the `named` columns."""
    names: Sequence[Any] = frame.index.names if _library(frame) == "pandas" else ()
    ignored = [str(name) for name in names if name is not None and str(name) not in named]
    if not ignored:
        return ()
    return (f"the index of the frame ({', '.join(ignored)}) is not read; frame.reset_index() makes it columns",)
