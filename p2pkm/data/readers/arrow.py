"""Tables of Apache Arrow: .parquet, .arrow, .feather and .ipc."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from p2pkm.core.errors import DataError
from p2pkm.core.validation import check_finite
from p2pkm.data.readers.columns import Column, FileContents, Marks, assign, take_columns
from p2pkm.data.readers.intake import TIDY, ColumnOptions, Places, read_column
from p2pkm.data.readers.npy import refuse_bomb

_MAGIC, _OLD = b"ARROW1", b"FEA1"  # how a file of record batches begins, and one of the first Feather


def read_parquet(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    """Read a .parquet file; every column that is neither label nor device is a feature."""
    pyarrow = _pyarrow(path)
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            refuse_bomb(path, 8 * file.metadata.num_rows * file.metadata.num_columns)
            frame = file.read()
        return _part(path, frame, label, device, intake)
    except DataError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:  # ValueError: text that is no UTF-8, too
        raise DataError(f"{path} cannot be read as Parquet: {error}") from None


def read_arrow(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    """Read a file of record batches: Arrow IPC, as a file or as a stream, which Feather (version 2) is as well."""
    pyarrow = _pyarrow(path)
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
    if start.startswith(_OLD):
        raise DataError(f"{path} is Feather of version 1; write it anew, as pandas.DataFrame.to_feather does")
    size, batches = 0, []
    try:
        with pyarrow.OSFile(str(path)) as file:
            reader = pyarrow.ipc.open_file(file) if start == _MAGIC else pyarrow.ipc.open_stream(file)
            for batch in _batches(reader, start == _MAGIC):
                size += max(batch.nbytes, 8 * batch.num_rows * batch.num_columns)
                refuse_bomb(path, size)
                batch.validate(full=True)  # else a damaged file could point anywhere
                batches.append(batch)
            frame = pyarrow.Table.from_batches(batches, reader.schema)
        return _part(path, frame, label, device, intake)
    except DataError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as Arrow: {error}") from None


def _batches(reader: Any, indexed: bool) -> Iterator[Any]:
    if indexed:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
    else:
        yield from reader


def _part(path: Path, frame: Any, label: Column, device: Column, intake: ColumnOptions) -> FileContents:
    """Part the columns of a frame into points, labels and devices."""
    names = [str(name) for name in frame.column_names]
    if not names:
        raise DataError(f"{path} has no rows; expected one point per row")
    roles = assign(str(path), names, label, device, intake)
    places = Places("row", range(len(frame)))
    columns = [_read(frame, names[j], j, places, encode=j in roles.encode) for j in roles.points]
    marks = Marks.of(names, roles, frame.columns, f"{path}, ")
    parts = take_columns(str(path), [names[j] for j in roles.points], columns, marks, places, intake)
    return parts._replace(points=check_finite(parts.points, str(path), missing=intake.fills))


def _read(frame: Any, name: str, column: int, places: Places, encode: bool) -> Any:
    """Return a column as `read_column` does; numbers as they are."""
    values = np.asarray(frame.column(column).to_numpy())
    if values.dtype.kind in "biuf" and not encode:
        return values.astype(np.float64)
    texts = ["" if value is None else str(value).strip() for value in frame.column(column).to_pylist()]
    return read_column(name, texts, places, encode)


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow.ipc
    except ImportError:
        raise DataError(f"{path} needs pyarrow, which is not installed; pip install 'p2pkm[parquet]'") from None
    return pyarrow
