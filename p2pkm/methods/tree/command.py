"""Commands that the root of a spanning tree broadcasts: codes, encoded bytes, and changes of rows."""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Stream
from p2pkm.core.wire_format import to_bytes
from p2pkm.kernels.reference import uniforms

# A code is a sum of parts:
# KEEP       the tried table becomes the kept table; in `TreeLloyd` its pooled cost has decreased
# REVERT     all devices return to the kept table
# MOVE       the moves of all rows follow; all devices add them to the table
# STOP       the device has converged
# ADD        new rows at the marked positions, each next to the row whose number, from 1, is the mark
# REMOVE     removal of the marked rows
# ERRORS     the next convergecast includes the errors of all rows
# UTILITIES  the next convergecast includes the utilities of all rows
# FACTOR     multiplied by an integer: with ADD the distance of new rows in steps, with KEEP alone the number of times
#            that the step is halved
# One byte encodes a command: it has room for all numbers of halvings and the 144 useful sums of the other parts.
KEEP = 1
REVERT = 2
MOVE = 4
STOP = 8
ADD = 16
REMOVE = 32
ERRORS = 64
UTILITIES = 128
FACTOR = 256
# Encoded bytes of a code, of a mark, and of the distance of new rows.
_CODE_BYTES = 1
_MARK_BYTES = 2
_DISTANCE_BYTES = 2


class Command(NamedTuple):
    """Command of a root.

    Attributes
    ----------
    code : int
        Sum of the parts above.
    marks : float64[r] or None
        With ADD, for each new row the number, from 1, of the row next to which it is placed. With REMOVE, 1 for each
        removed row. 0 for all other rows.
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
    codes = read_codes(tables)
    marks = np.count_nonzero(tables[:, 1:, 0], axis=1)
    bits = devices.kernels.integer_bits(tables[:, 1:].astype(np.int64))
    moves = np.where(codes & MOVE, to_bytes(bits), 0)
    marked = np.where(codes & (ADD | REMOVE), _MARK_BYTES * marks, 0) + np.where(codes & ADD, _DISTANCE_BYTES, 0)
    return _CODE_BYTES + moves + marked


def change_rows(table: Floats, reference: Floats, down: Floats, devices: Devices) -> tuple[Floats, Floats]:
    """Add or remove rows of tables and references, float64[b, r, d], by commands float64[b, 1 + r, d]."""
    codes, marks = read_codes(down), down[:, 1:, 0].astype(np.int64)
    table, reference = table.copy(), reference.copy()
    members, row = np.nonzero((marks > 0) & ((codes & ADD) > 0)[:, None])
    if len(members):
        # All devices draw the same offsets from the shared key and the round, so these need not be sent.
        _, rows, d = table.shape
        draws = uniforms(devices.shared_key, Stream.CHOICE, [devices.round], rows * d)[0].reshape(rows, d)
        offsets = np.rint((2.0 * draws[row] - 1.0) * (codes[members] // FACTOR)[:, None])
        # An offset of 0 would duplicate the row; it becomes one step of the first coordinate.
        offsets[:, 0] += ~offsets.any(axis=1)
        origin = marks[members, row] - 1
        table[members, row], reference[members, row] = table[members, origin] + offsets, reference[members, origin]
    members, row = np.nonzero((marks > 0) & ((codes & REMOVE) > 0)[:, None])
    table[members, row], reference[members, row] = 0.0, np.inf
    return table, reference
