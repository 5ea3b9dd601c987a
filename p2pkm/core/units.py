"""Text of numbers with units, for messages and tables."""


def format_bytes(size: float) -> str:
    """Format a number of bytes; 1,000 B are 1 kB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{size:.3g} {unit}"
        size /= 1_000
    return f"{size:,.3g} TB"


def count(number: int, noun: str, plural: str = "s") -> str:
    """Format a number with its noun: "1 device", "2 devices"."""
    return f"{number:,} {noun}{'' if number == 1 else plural}"


NOT_KEPT = "not kept (--out none)"


def format_seconds(seconds: float) -> str:
    """Format a duration, as in 95 s, 12 min or 3.4 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6_000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def describe_folder(folder: object | None) -> str:
    """Describe the folder of the results of several runs; None: they were not saved."""
    return f"results {NOT_KEPT}" if folder is None else f"results in {folder}"


def format_number(value: float) -> str:
    """Format a number with four significant digits, trailing zeros included: a ratio of 1.000 need not be exactly 1."""
    return "0" if value == 0 else f"{value:#.4g}".rstrip(".").replace(".e", "e")


def format_value(value: float | int | None) -> str:
    """Format a metric for the summary table: a dash if it is None."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else format_number(value)
