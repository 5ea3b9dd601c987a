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


def align_blocks(lines: Sequence[Sequence[str]], breaks: Collection[int] = (), width: int = 120) -> list[str]:
    """Align the cells of a wide table in blocks of columns, one below the other, which all repeat the first column.

    Parameters
    ----------
    lines : sequence of sequence of str
        Cells of each line; all lines have the same number.
    breaks : collection of int, optional
        Columns with which a block begins, in any case.
    width : int, default=120
        Largest number of characters in a line of a block with several columns.
    """
    first, *others = zip(*lines, strict=True)
    blocks: list[list[tuple[str, ...]]] = []
    used = 0
    for number, column in enumerate(others, 1):
        needed = 2 + max(map(len, column))
        if not blocks or number in breaks or used + needed > width:
            blocks.append([])
            used = max(map(len, first))
        blocks[-1].append(column)
        used += needed
    text: list[str] = []
    for block in blocks:
        text += ["", *align_columns([*zip(first, *block, strict=True)])]
    return text[1:]
