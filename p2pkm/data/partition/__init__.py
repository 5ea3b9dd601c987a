"""Partitions: assignment of points to devices, drawn once for all devices from the seed.

The functions are for scripts. `PARTITIONS` contains their counterparts for the command line, which take a `Table`.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.plugins import PARTITIONS as GROUP
from p2pkm.core.plugins import extend
from p2pkm.data.partition import distance_skew as observed
from p2pkm.data.partition.by_column import column, fill, number_devices
from p2pkm.data.partition.distance_skew import beta
from p2pkm.data.partition.label_skew import blocks, by_label, dirichlet, dominant, iid, mufc, quantity
from p2pkm.data.table import Labels, Table

__all__ = [
    "PARTITIONS",
    "beta",
    "blocks",
    "by_label",
    "column",
    "dirichlet",
    "dominant",
    "fill",
    "iid",
    "mufc",
    "quantity",
]

Ints = NDArray[np.int64]


def _iid(table: Table, n: int, *, minimum: int = 0, seed: int = 0) -> Ints:
    return iid(len(table.points), n, minimum=minimum, seed=seed)


def _blocks(table: Table, n: int, *, minimum: int = 0, seed: int = 0) -> Ints:
    return blocks(len(table.points), n, minimum=minimum, seed=seed)


def _dirichlet(
    table: Table,
    n: int,
    *,
    alpha: float = 0.3,
    by: Literal["class", "device"] = "class",
    minimum: int = 0,
    seed: int = 0,
) -> Ints:
    return dirichlet(_need_labels(table, "dirichlet"), n, alpha=alpha, by=by, minimum=minimum, seed=seed)


def _beta(
    table: Table,
    n: int,
    *,
    beta: float = 1.0,
    miss: Literal["closest", "redraw"] = "closest",
    minimum: int = 0,
    seed: int = 0,
) -> Ints:
    return observed.beta(table.points, n, table.box, beta=beta, miss=miss, minimum=minimum, seed=seed)


def _by_label(table: Table, n: int, *, labels: int = 2, minimum: int = 0, seed: int = 0) -> Ints:
    return by_label(_need_labels(table, "by-label"), n, labels=labels, minimum=minimum, seed=seed)


def _quantity(table: Table, n: int, *, alpha: float = 0.5, minimum: int = 0, seed: int = 0) -> Ints:
    return quantity(len(table.points), n, alpha=alpha, minimum=minimum, seed=seed)


def _dominant(
    table: Table, n: int, *, share: float = 0.9, alpha: float | None = None, minimum: int = 0, seed: int = 0
) -> Ints:
    labels = _need_labels(table, "dominant")
    return dominant(labels, n, share=share, alpha=alpha, minimum=minimum, seed=seed)


def _mufc(table: Table, n: int, *, local: int | None = None, minimum: int = 0, seed: int = 0) -> Ints:
    if table.clusters is None:
        raise DataError(
            "--partition mufc requires Table.clusters, the labels of a k-means on the pooled points, which are missing"
        )
    return mufc(table.clusters, n, local=local, minimum=minimum, seed=seed)


def _column(table: Table, n: int, *, minimum: int = 0, seed: int = 0) -> Ints:
    if table.device is None:
        raise DataError(
            "--partition column requires a column with the device of each point, but none was found. Name it with "
            "--device-column, or use --partition iid"
        )
    return fill(*number_devices(table.device, n, table.owners), minimum, seed)


def _need_labels(table: Table, name: str) -> Labels:
    if table.labels is None:
        raise DataError(
            f"--partition {name} requires the label of each point, but no labels were found. Name their column with "
            "--label-column, or use --partition iid"
        )
    return table.labels


PARTITIONS: dict[str, Callable[..., Ints]] = {
    "iid": _iid,
    "blocks": _blocks,
    "dirichlet": _dirichlet,
    "beta": _beta,
    "by-label": _by_label,
    "quantity": _quantity,
    "dominant": _dominant,
    "mufc": _mufc,
    "column": _column,
}


def known(spec: str | None) -> dict[str, Callable[..., Ints]]:
    """Return the partitions by name, with those of plug-ins if the spec names none of this package."""
    return PARTITIONS if spec is None else extend(PARTITIONS, GROUP, spec)
