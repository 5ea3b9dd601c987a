"""Reader of .arff files, the format of Weka."""

from pathlib import Path
from typing import Any

import numpy as np

from p2pkm.core.errors import DataError
from p2pkm.data.readers.frame import NamedColumns


def load_arff(path: Path) -> NamedColumns:
    """Read the columns of a file by SciPy; nominal attributes are text.

    Raises
    ------
    DataError
        If the file is damaged, or contains attributes of text, which SciPy does not read.
    """
    from scipy.io import arff

    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            data, meta = arff.loadarff(file)
    except (OSError, MemoryError):
        raise
    except NotImplementedError:
        raise DataError(
            f"{path} has attributes of type string; expected numeric, nominal and date attributes. Declare them as "
            "nominal, or export CSV"
        ) from None
    # A damaged file raises almost any exception.
    except Exception as error:
        raise DataError(f"{path} cannot be read as ARFF: {error}. Write it again, or export CSV") from None
    columns = [_to_column(data[name]) for name in meta.names()]
    return NamedColumns([str(name) for name in meta.names()], columns, len(data))


def _to_column(values: Any) -> Any:
    if values.dtype.kind != "S":
        return values
    texts = np.array([value.decode() for value in values.tolist()], object)
    texts[texts == "?"] = None
    return texts
