import numpy as np


def sliced(table, n: int, *, feature: int = 0, minimum: int = 0, seed: int = 0):
    """Assign slices along one feature to devices."""
    device = np.empty(len(table.points), np.int64)
    device[np.argsort(table.points[:, feature], kind="stable")] = np.arange(len(device)) * n // len(device)
    return device
