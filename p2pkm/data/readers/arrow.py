"""Readers of Apache Arrow tables: .parquet, .arrow, .feather and .ipc."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from p2pkm.core.errors import DataError
from p2pkm.data.readers.columns import Column, FileContents, list_named
from p2pkm.data.readers.frame import NamedColumns, list_columns, read_frame
from p2pkm.data.readers.intake import TIDY, ColumnOptions
from p2pkm.data.readers.npy import check_unpacked_size

_Used = TypeVar("_Used")
# First bytes of a file of record batches, and of a file of Feather version 1.
_MAGIC = b"ARROW1"
_OLD = b"FEA1"


def read_parquet(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    """Read a .parquet file; all columns other than label and device are features."""
    return use_parquet(path, lambda frame: read_frame(str(path), frame, label, device, intake),
                    list_named(label, device, intake))  # fmt: skip


def read_arrow(path: Path, label: Column, device: Column, intake: ColumnOptions = TIDY) -> FileContents:
    """Read a file of record batches: Arrow IPC file or stream; Feather version 2 is the same format."""
    return use_arrow(path, lambda frame: read_frame(str(path), frame, label, device, intake),
                    list_named(label, device, intake))  # fmt: skip


def use_parquet(path: Path, use: Callable[[NamedColumns], _Used], named: Sequence[str]) -> _Used:
    """Read the columns of a .parquet file and return what `use` makes of them; `named` as in `list_columns`."""
    pyarrow = _import_pyarrow(path)
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            check_unpacked_size(path, 8 * file.metadata.num_rows * file.metadata.num_columns)
            frame = file.read()
        return use(list_columns(frame, named))
    except DataError:
        raise
    # Text that is not UTF-8 raises ValueError.
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from None


def use_arrow(path: Path, use: Callable[[NamedColumns], _Used], named: Sequence[str]) -> _Used:
    """Read the columns of a file of record batches and return what `use` makes of them.

    `named` is that of `list_columns`.
    """
    pyarrow = _import_pyarrow(path)
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
    if start.startswith(_OLD):
        raise DataError(
            f"{path} is a Feather file of version 1; expected version 2. Write it again with "
            "pandas.DataFrame.to_feather"
        )
    size = 0
    batches = []
    try:
        with pyarrow.OSFile(str(path)) as file:
            reader = pyarrow.ipc.open_file(file) if start == _MAGIC else pyarrow.ipc.open_stream(file)
            for batch in _batches(reader, start == _MAGIC):
                size += max(batch.nbytes, 8 * batch.num_rows * batch.num_columns)
                check_unpacked_size(path, size)
                # Without validation, the offsets in a damaged file could point outside its buffers.
                batch.validate(full=True)
                batches.append(batch)
            frame = pyarrow.Table.from_batches(batches, reader.schema)
        return use(list_columns(frame, named))
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


def _import_pyarrow(path: Path) -> Any:
    try:
        import pyarrow.ipc
    except ImportError:
        raise DataError(f"{path} requires pyarrow, which is not installed. Run pip install 'p2pkm[parquet]'") from None
    return pyarrow
