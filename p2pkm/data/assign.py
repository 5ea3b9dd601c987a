"""How the points of a source come to devices: the usual partition, how many devices a column names, and the deal."""

from dataclasses import replace
from typing import Any

from p2pkm.core.spec import Spec

_TOLD = 10  # devices in a note


def default_partition(table: Any, devices: int | None) -> str:
    """Return the partition to take if none is given; so many devices are asked for."""
    if isinstance(table.device, int):  # files on disk: one per device, if so many are wanted and no column says more
        return "column" if devices in (None, table.device) or table.files[0].owned else "blocks"
    return "column" if table.device is not None else "dirichlet" if table.labels is not None else "iid"


def count_in_column(partition: Spec, table: Any) -> int | None:
    """Return how many devices the file's own column names, None if the devices do not come from a column."""
    if partition.name != "column" or table.device is None:
        return None
    if isinstance(table.device, int):
        return table.device
    from p2pkm.data.partition.by_column import number

    return number(table.device, owners=table.owners)[1]


def name_devices(partition: Spec, table: Any, devices: int) -> tuple[str, ...] | None:
    """Return what the data call the devices, in their order; None if these are numbered, or not the data's own.

    devices: how many there are.
    """
    if partition.name != "column" or table.device is None:
        return None
    if not isinstance(table.device, int) or table.owners is not None:
        from p2pkm.data.partition import by_column

        owners = table.device if table.owners is None else table.owners
        return table.names or by_column.name_devices(owners, devices)
    from p2pkm.data.readers.folder import name_files

    paths = [one.path for one in table.files]
    return name_files(paths) if len(paths) == table.device else None


def list_notes(partition: Spec, table: Any, shards: Any, topology: Any) -> tuple[str, ...]:
    """Return what a user should know of a table that was read and dealt to the devices of a topology."""
    notes: tuple[str, ...] = table.notes or ()
    if table.rows is not None:
        left_out = f"{table.total - len(table.rows):,} of {table.total:,} rows"
        notes = (f"{left_out} of the data have a missing value and are left out", *notes)
    sizes, names = shards.sizes[: topology.clients].tolist(), topology.names
    empty = [i for i, size in enumerate(sizes) if not size] if partition.name == "column" else []
    if empty:
        told = ", ".join(names[i] if names else str(i) for i in empty[:_TOLD]) + ", ..." * (len(empty) > _TOLD)
        notes += (f"{len(empty):,} of {len(sizes):,} devices have no points: {told}",)
    return notes


def assign(table: Any, partition: Spec, devices: int, dtype: str) -> Any:
    """Return the shards of a table that is in memory; a partition by points takes missing values as their means."""
    from p2pkm.data.partition import known as known_partitions
    from p2pkm.data.shards import Shards

    device = known_partitions(partition.name)[partition.name](table.completed(), devices, **partition.options)
    shards = Shards.deal(table.points, device, devices=devices, labels=table.labels, dtype=dtype, missing=True)
    order = shards.order if table.rows is None else table.rows[shards.rows]
    return replace(shards, features=table.features, order=order)
