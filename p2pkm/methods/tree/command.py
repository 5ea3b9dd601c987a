"""Commands that the root of a spanning tree broadcasts: their codes, their bytes, and rows that they add or remove."""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Stream
from p2pkm.core.wire_format import to_bytes
from p2pkm.kernels.reference import uniforms

# Parts of a code, added up. ADD and REMOVE mark rows. MANY is multiplied: with ADD by the distance of new rows in
# steps, with KEEP alone by the number of times that the step is halved. One byte holds all halvings and the 144 useful
# sums of the others.
KEEP, BACK, MOVE, STOP, ADD, REMOVE, ERRORS, UTILITIES, MANY = 1, 2, 4, 8, 16, 32, 64, 128, 256
_CODE, _MARK, _DISTANCE = 1, 2, 2  # bytes


class Command(NamedTuple):
    """Command of a root.

    Attributes
    ----------
    code : int
        Sum of the parts above. With MOVE the moves of all rows follow.
    marks : float64[r] or None
        With ADD, at each new row the number, from 1, of the row that it is placed next to; with REMOVE 1 at each
        removed row.
    """

    code: int
    marks: Floats | None = None

    def write(self, table: Floats, moves: Floats) -> None:
        """Write the command into an empty message table, float64[1 + r, d]."""
        table[0, 0] = self.code
        if self.marks is not None:
            table[1:, 0] = self.marks
        if self.code & MOVE:
            table[1:] = moves


def read_codes(tables: Floats) -> Integers:
    """Read the codes of message tables float64[b, 1 + r, d], int64[b]."""
    return tables[:, 0, 0].astype(np.int64)


def count_bytes(tables: Floats, devices: Devices) -> Integers:
    """Count the encoded bytes of commands, with moves or marks of rows, int64[b]."""
    codes, marks = read_codes(tables), np.count_nonzero(tables[:, 1:, 0], axis=1)
    bits = devices.kernels.integer_bits(tables[:, 1:].astype(np.int64))
    moves = np.where(codes & MOVE, to_bytes(bits), 0)
    marked = np.where(codes & (ADD | REMOVE), _MARK * marks, 0) + np.where(codes & ADD, _DISTANCE, 0)
    return _CODE + moves + marked


def change_rows(table: Floats, reference: Floats, down: Floats, devices: Devices) -> tuple[Floats, Floats]:
    """Add or remove rows of tables and references, float64[b, r, d], as commands float64[b, 1 + r, d] demand."""
    codes, marks = read_codes(down), down[:, 1:, 0].astype(np.int64)
    table, reference = table.copy(), reference.copy()
    who, row = np.nonzero((marks > 0) & ((codes & ADD) > 0)[:, None])
    if len(who):
        _, places, d = table.shape
        draws = uniforms(devices.shared_key, Stream.CHOICE, [devices.round], places * d)[0].reshape(places, d)
        offsets = np.rint((2.0 * draws[row] - 1.0) * (codes[who] // MANY)[:, None])
        offsets[:, 0] += ~offsets.any(axis=1)
        origin = marks[who, row] - 1
        table[who, row], reference[who, row] = table[who, origin] + offsets, reference[who, origin]
    who, row = np.nonzero((marks > 0) & ((codes & REMOVE) > 0)[:, None])
    table[who, row], reference[who, row] = 0.0, np.inf
    return table, reference
