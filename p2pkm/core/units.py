"""Numbers with units, for people."""


def format_bytes(size: float) -> str:
    """Return a number of bytes as text: 1,000 B are 1 kB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{size:.3g} {unit}"
        size /= 1_000
    return f"{size:,.3g} TB"


def count(number: int, noun: str, plural: str = "s") -> str:
    """Return a number with its noun, in the plural unless it is one."""
    return f"{number:,} {noun}{'' if number == 1 else plural}"


NOT_KEPT = "not kept (--out none)"


def describe_folder(folder: object | None) -> str:
    """Return where the results of several runs lie."""
    return f"results {NOT_KEPT}" if folder is None else f"results in {folder}"


def format_number(value: float) -> str:
    """Return a number with four significant digits, also where they are zeros: a ratio of 1.000 is no exact 1."""
    return "0" if value == 0 else f"{value:#.4g}".rstrip(".").replace(".e", "e")


def format_value(value: float | int | None) -> str:
    """Return a figure as the closing table shows it: a dash if it is not known."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else format_number(value)
