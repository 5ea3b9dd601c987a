"""Options of reading a graph, and remarks on its contents."""

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Literal

from topologies.errors import GraphError

Directed = Literal["refuse", "union", "mutual"]
LARGEST = 2**30  # bytes of a file
Parallel = Literal["refuse", "sum", "first"]
Loops = Literal["refuse", "drop"]
_CHOICES = {
    "directed": ("refuse", "union", "mutual"),
    "parallel": ("refuse", "sum", "first"),
    "loops": ("refuse", "drop"),
}
_BEGINNING = 65_536  # bytes that tell the format
# Beginning of a file of each format. Before the graph, GML has comments and its creator.
_BEGINNINGS = {
    ".graphml": re.compile(rb"(?s)\s*<(?:[?!].*?<)?graphml[\s>]"),
    ".gexf": re.compile(rb"(?s)\s*<(?:[?!].*?<)?gexf[\s>]"),
    ".gml": re.compile(rb"(?i)(?:\s*(?:#[^\n]*|(?:creator|version|comment|date)\s[^\n\[]*)\n)*\s*graph\s*\["),
    ".gt": re.compile(b"\xe2\x9b\xbe gt"),
    ".net": re.compile(rb"(?i)(?:\s*%[^\n]*\n)*\s*\*(?:vertices|network)\b"),
    # Edge lists may have the beginning of this line.
    ".mtx": re.compile(rb"(?i)%%MatrixMarket\s+matrix\s+(?:coordinate|array)[ \t]+\w+[ \t]+\w+"),
    ".npy": re.compile(b"\x93NUMPY"),
}
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
    parallel : {"refuse", "sum", "first"}
        Treatment of several links between two nodes.
    loops : {"refuse", "drop"}
        Treatment of links of a node to itself.
    ignored : list of str
        Contents that were not read.
    remarks : list of str
        Contents that were merged, converted or interpreted.
    """

    directed: Directed = "refuse"
    isolated: bool | Collection[str] = False
    parallel: Parallel = "refuse"
    loops: Loops = "refuse"
    ignored: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Validate the options."""
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise GraphError(f"{name} is {value!r}; expected one of: {', '.join(choices)}")
        if isinstance(self.isolated, str) or not isinstance(self.isolated, bool | Collection):
            raise GraphError(f"isolated is {self.isolated!r}; expected True, False or a list of nodes without links")

    @property
    def names(self) -> list[str]:
        """Names of the nodes that are expected to have no links."""
        return [] if isinstance(self.isolated, bool) else list(dict.fromkeys(map(str, self.isolated)))


def read_bytes(source: Path) -> bytes:
    """Read a file, and decompress it if its name ends in .gz, .bz2 or .xz; at most `LARGEST` bytes."""
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


def find_format(source: Path) -> str:
    """Return the suffix of the format by the beginning of the content; empty if it does not tell."""
    # Whatever a damaged file raises, its reader reports.
    with suppress(Exception):
        beginning = _read_beginning(source)
        return next((suffix for suffix, pattern in _BEGINNINGS.items() if pattern.match(beginning)), "")
    return ""


def _read_beginning(source: Path) -> bytes:
    kind = _COMPRESSED.get(source.suffix.lower())
    with source.open("rb") if kind is None else import_module(kind).open(source, "rb") as stream:
        beginning: bytes = stream.read(_BEGINNING)
    if beginning.startswith((b"\xff\xfe", b"\xfe\xff")):
        return beginning.decode("utf-16", "ignore").encode()
    return beginning.removeprefix(b"\xef\xbb\xbf")
