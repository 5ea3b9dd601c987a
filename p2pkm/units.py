"""Numbers with units, for people."""


def write_size(size: float) -> str:
    """Return a number of bytes as text: 1,000 B are 1 kB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{size:.3g} {unit}"
        size /= 1_000
    return f"{size:,.3g} TB"
