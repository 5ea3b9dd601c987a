"""Text tables with aligned columns."""

from collections.abc import Collection, Sequence


def align_columns(lines: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Align the cells of a table, with two spaces between columns.

    Parameters
    ----------
    lines : sequence of sequence of str
        Cells of each line; all lines have the same number.
    left : collection of int, default=(0,)
        Columns that are aligned to the left; all others are aligned to the right.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = []
    for line in lines:
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        aligned.append("  ".join(cells).rstrip())
    return aligned
