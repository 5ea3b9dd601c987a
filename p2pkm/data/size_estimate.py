"""Size of data before they are read: from the options of a generator, or from the header of a file."""

import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.errors import DataError, P2PKMError
from p2pkm.core.spec import Spec, complete
from p2pkm.core.validation import check_integer
from p2pkm.data.partition.by_column import number_devices
from p2pkm.data.readers.columns import Column, as_index, assign_roles
from p2pkm.data.readers.intake import TIDY, ColumnOptions
from p2pkm.data.sources import SOURCES, load
from p2pkm.data.synthetic_shapes import KINDS, LEAST
from p2pkm.data.table import Table


class Size(NamedTuple):
    """Size of a data set.

    Attributes
    ----------
    points, features : int
    distinct : int
        Lower bound on the number of distinct points.
    classes, devices : int or None
        Number of classes, and of devices in a column; None if there are none or they were not counted.
    labeled : bool
        Whether every point has a label.
    stored : bool
        Whether the points stay on disk and every rank reads those of its devices.
    image : tuple of int or None
        As in `Table`.
    weighted : bool
        Whether any point has a weight other than 1.
    """

    points: int
    features: int
    distinct: int = 1
    classes: int | None = None
    devices: int | None = None
    labeled: bool = True
    stored: bool = False
    image: tuple[int, ...] | None = None
    weighted: bool = False


def measure(
    spec: Spec, *, label_column: Column = None, device_column: Column = None, intake: ColumnOptions = TIDY,
    whole_file: bool = False, partition: Spec | None = None,
) -> Size:  # fmt: skip
    """Determine the size of the table that `p2pkm.data.sources.load` would return.

    Generators draw nothing. Only the headers of .npy, .npz and .parquet files are read. Text files and the small data
    sets of scikit-learn are read completely.

    Parameters
    ----------
    spec : Spec
        From `parse_source`.
    whole_file : bool
        Whether to read a file completely, to count classes and devices.
    partition : Spec, optional
        Requested partition; it decides whether a single file stays on disk.

    Raises
    ------
    DataError
        If a file cannot be used.
    ExperimentError
        If an option is out of range.
    """
    if spec.name in _GENERATED:
        return _GENERATED[spec.name](complete(spec, SOURCES, 0).options)
    if spec.name == "file":
        from p2pkm.data.out_of_core.index import index_files

        name = spec.options["path"]
        stored = index_files(name, partition, label_column, device_column, intake=intake, classes=whole_file)
        if stored is not None:
            first = stored.files[0]
            m = sum(header.rows for header in stored.files)
            return Size(m, first.features, 1, stored.classes, stored.device, first.labeled, stored=True)
    path = Path(spec.options.get("path", "")).expanduser()
    read = _HEADERS.get(path.suffix.lower())
    # A missing file goes to `load`, which raises the error that describes it.
    if read is None or whole_file or intake != TIDY or not path.is_file():
        return _measure_table(load(spec, seed=0, label_column=label_column, device_column=device_column, intake=intake))
    try:
        return read(path, label_column, device_column)
    except P2PKMError:
        raise
    # A broken header raises almost any exception; `load` reads the complete file and describes the problem.
    except Exception:
        return _measure_table(load(spec, seed=0, label_column=label_column, device_column=device_column, intake=intake))


def has_header(spec: Spec) -> bool:
    """Return whether `measure` can determine the size without reading the data."""
    if spec.name in _GENERATED:
        return True
    from p2pkm.data.out_of_core.formats import FORMATS
    from p2pkm.data.readers.any_format import SUFFIXES
    from p2pkm.data.readers.folder import expand_path

    path = spec.options.get("path", "")
    files = expand_path(path, SUFFIXES)
    return Path(files[0] if files else path).suffix.lower() in (FORMATS if files else _HEADERS)


def _gaussians(count: int, options: Mapping[str, Any], features: int = 2) -> Size:
    """Return the size of `count` clusters of ``points`` points each."""
    # With a standard deviation of 0 all points of a cluster equal its mean.
    m = count * check_integer(options["points"], 1, "points")
    return Size(m, features, count if options.get("sd") == 0.0 else m, count)


def _blobs(options: Mapping[str, Any]) -> Size:
    return _gaussians(
        check_integer(options["clusters"], 1, "clusters"), options, check_integer(options["features"], 1, "features")
    )


def _communities(options: Mapping[str, Any]) -> Size:
    n = check_integer(options["devices"], 2, "devices")
    points = check_integer(options["points"], 1, "points")
    return Size(n * points, 2, n * points, check_integer(options["clusters"], 1, "clusters"), n)


def _device_clusters(options: Mapping[str, Any]) -> Size:
    n = check_integer(options.get("devices", 1), 1, "devices")
    d = check_integer(options["features"], 1, "features")
    m = n * check_integer(options["points"], 1, "points")
    return Size(m, d, m, check_integer(options["clusters"], 1, "clusters"), n)


def _shapes(options: Mapping[str, Any]) -> Size:
    return _gaussians(len(KINDS), options, check_integer(options["side"], LEAST, "side") ** 2)


def _measure_table(table: Table) -> Size:
    """Return the size of a table in memory."""
    # Incomplete rows do not count as distinct: missing values may be filled in with the same values.
    complete = table.points[~np.isnan(table.points).any(axis=1)]
    distinct = max(1, len(np.unique(complete, axis=0)))
    devices = None if table.device is None else number_devices(table.device, owners=table.owners)[1]
    m, d = table.points.shape
    weighted = table.weights is not None and bool((table.weights != 1.0).any())
    return Size(m, d, distinct, table.classes, devices, table.labels is not None, False, table.image, weighted)


def _read_npy(path: Path, label: Column, device: Column) -> Size:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    m, columns = array.shape
    roles = assign_roles(str(path), [str(j) for j in range(columns)], label, device)
    return Size(m, len(roles.points), labeled=roles.label is not None)


def _read_npz(path: Path, label: Column, device: Column) -> Size:
    """Read the headers of the arrays in an archive; label and device may be columns of the points, by number."""
    from p2pkm.data.readers.npy import find_image, find_partner, find_points

    shapes = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shapes[name.removesuffix(".npy")] = read(file)[0]
    points = find_points(shapes) or ""
    m, *pixels = shape = shapes[points]
    inside = [name for name in (label, device) if name is not None and name not in shapes and _is_number(name)]
    labeled = label is not None or find_partner(points, shapes, "labels") is not None
    d = math.prod(pixels) - len(inside)
    return Size(m, d, labeled=labeled, image=find_image(shape, d))


def _is_number(column: str | int) -> bool:
    return as_index(column) is not None


def _read_parquet(path: Path, label: Column, device: Column) -> Size:
    try:
        from pyarrow import parquet
    except ImportError:
        raise DataError(f"{path} requires pyarrow, which is not installed. Run pip install 'p2pkm[parquet]'") from None
    from p2pkm.data.readers.frame import assign_stored_roles

    header = parquet.read_metadata(path)
    roles, _ = assign_stored_roles(str(path), header.schema.to_arrow_schema(), label, device)
    return Size(header.num_rows, len(roles.points), labeled=roles.label is not None)


_GENERATED: dict[str, Callable[[Mapping[str, Any]], Size]] = {
    "grid16": lambda options: _gaussians(16, options),
    "blobs": _blobs,
    "slike": lambda options: _gaussians(15, options),
    "balls": _blobs,
    "communities": _communities,
    "device-clusters": _device_clusters,
    "shapes": _shapes,
}
_HEADERS: dict[str, Callable[[Path, Column, Column], Size]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
}
