"""Options of reading a graph, and remarks on its contents."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from topologies.errors import GraphError

Directed = Literal["refuse", "union", "mutual"]
LARGEST = 2**30  # bytes of a file
_CHOICES = ("refuse", "union", "mutual")
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}


@dataclass
class Reading:
    """Options of reading a graph, and remarks for the line about its contents.

    Attributes
    ----------
    directed : {"refuse", "union", "mutual"}
        Treatment of directed graphs.
    isolated : bool or collection of str
        Whether nodes without links are accepted, or the names of those that are.
    ignored : list of str
        Contents that were not read.
    remarks : list of str
        Contents that were merged, converted or interpreted.
    """

    directed: Directed = "refuse"
    isolated: bool | Collection[str] = False
    ignored: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Validate the options."""
        if self.directed not in _CHOICES:
            raise GraphError(f"directed is {self.directed!r}; expected one of: {', '.join(_CHOICES)}")
        if isinstance(self.isolated, str) or not isinstance(self.isolated, bool | Collection):
            raise GraphError(f"isolated is {self.isolated!r}; expected True, False or a list of nodes without links")

    @property
    def names(self) -> list[str]:
        """Names of the nodes that are expected to have no links."""
        return [] if isinstance(self.isolated, bool) else list(dict.fromkeys(map(str, self.isolated)))


def read_bytes(source: Path) -> bytes:
    """Read a file, and decompress it if its name ends in .gz, .bz2 or .xz; at most `LARGEST` bytes."""
    from importlib import import_module

    kind = _COMPRESSED.get(source.suffix.lower())
    if kind is None:
        return source.read_bytes()
    with import_module(kind).open(source, "rb") as stream:
        content: bytes = stream.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise GraphError(f"{source} unpacks to more than {LARGEST} bytes. Use a smaller graph")
    return content


def read_text(source: Path, reading: Reading) -> str:
    """Read a text file in UTF-8, UTF-16 with a byte order mark or, with a remark, cp1252."""
    content = read_bytes(source)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        reading.remarks.append("text in cp1252, not UTF-8")
        return content.decode("cp1252")


def find_suffix(source: Path) -> str:
    """Return the suffix that determines the format, in lower case, without that of a compression."""
    suffix = source.suffix.lower()
    return Path(source.stem).suffix.lower() if suffix in _COMPRESSED else suffix
