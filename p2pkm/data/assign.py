"""Assignment of points to devices: default partition, number and names of the devices, and the shards."""

from dataclasses import replace
from typing import Any

import numpy as np

from p2pkm.core.errors import ContractError
from p2pkm.core.spec import Spec

# Largest number of devices that a note lists.
_LISTED = 10


def default_partition(table: Any, devices: int | None) -> str:
    """Return the name of the default partition of a table for the requested number of devices."""
    if isinstance(table.device, int):
        # Files on disk: each file is a device if the number of files fits, or a column of the files names the devices.
        return "column" if devices in (None, table.device) or table.files[0].owned else "blocks"
    if table.device is not None:
        return "column"
    return "iid" if table.labels is None else "dirichlet"


def count_in_column(partition: Spec, table: Any) -> int | None:
    """Count the devices in the column of the file; None if the partition does not use a column."""
    if partition.name != "column" or table.device is None:
        return None
    if isinstance(table.device, int):
        return table.device
    from p2pkm.data.partition.by_column import number_devices

    return number_devices(table.device, owners=table.owners)[1]


def name_devices(partition: Spec, table: Any, devices: int) -> tuple[str, ...] | None:
    """Return the names that the data give to the devices, in device order; None if the devices are only numbered."""
    if partition.name != "column" or table.device is None:
        return None
    if not isinstance(table.device, int) or table.owners is not None:
        from p2pkm.data.partition import by_column

        owners = table.device if table.owners is None else table.owners
        return table.names or by_column.name_devices(owners, devices)
    from p2pkm.data.readers.folder import name_files

    paths = [header.path for header in table.files]
    return name_files(paths) if len(paths) == table.device else None


def list_notes(partition: Spec, table: Any, shards: Any, topology: Any) -> tuple[str, ...]:
    """List notes on points for the user: guesses of the reader, what is left out, and devices without points.

    Points on disk have no rows left out, and no test points.
    """
    from p2pkm.data.table import Table

    notes: tuple[str, ...] = table.notes or ()
    in_memory = isinstance(table, Table)
    if in_memory and table.rows is not None:
        left_out = f"{table.total - len(table.rows):,} of {table.total:,} rows"
        notes = (f"{left_out} of the data have a missing value and are left out", *notes)
    if in_memory and table.tests is not None and partition.name != "column":
        notes += (
            f"test points and true centers of the data are not used: partition {partition.name} mixes the devices that "
            "they belong to",
        )
    if partition.name != "column":
        return notes
    names, n = topology.names, topology.clients
    if names:
        from p2pkm.data.identifiers import note_alike

        notes += note_alike(names, dict(zip(names, shards.sizes.tolist(), strict=False)) if in_memory else None)
    empty = np.flatnonzero(shards.sizes[:n] == 0).tolist() if in_memory else table.list_empty(n)
    if empty:
        listed = ", ".join(names[i] if names else str(i) for i in empty[:_LISTED]) + ", ..." * (len(empty) > _LISTED)
        notes += (f"{len(empty):,} of {n:,} devices are without points: {listed}",)
    return notes


def assign(table: Any, partition: Spec, devices: int, dtype: str) -> Any:
    """Partition the rows of a table in memory, or of an index of files, of which each rank reads its part.

    A partition that reads the points sees column means for missing values.
    """
    from p2pkm.data.table import Table

    if not isinstance(table, Table):
        from p2pkm.data.out_of_core.shards import DiskShards

        return DiskShards.deal(table, partition, devices, dtype)
    from p2pkm.data.partition import known as known_partitions
    from p2pkm.data.shards import Shards

    draw = known_partitions(partition.name)[partition.name]

    def divide() -> Any:
        owners = np.asarray(draw(table.completed(), devices, **partition.options))
        if owners.shape != table.points.shape[:1] or owners.dtype.kind not in "iu":
            raise ContractError(
                f"partition {partition.name} returned an array of {owners.dtype} and shape {owners.shape}; expected "
                f"int64 of shape ({len(table.points)},), the device of each point. See docs/howto/package-a-plugin.md"
            )
        return owners

    # The devices of the points are not held here, so that `deal` can free them early.
    shards = Shards.deal(
        table.points, divide(), devices=devices, labels=table.labels,
        weights=table.weights, dtype=dtype, missing=True,
    )  # fmt: skip
    if partition.name == "column":
        shards = shards.with_tests_of(table)
    order = shards.order if table.rows is None else table.rows[shards.rows]
    return replace(shards, features=table.features, order=order, schema=table.schema, copied=table.copied)
