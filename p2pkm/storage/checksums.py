"""Checksums of a run folder: written at the end of a run, to detect files that were changed later."""

import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from p2pkm.core.errors import DataError
from p2pkm.storage.lock import NAME as LOCK
from p2pkm.storage.run_status import describe_missing_results, require_single_run
from p2pkm.storage.save import save, write_bytes

NAME = "checksums.sha256"
# Files that other commands may rewrite at any time; they are not in the list of checksums.
_REWRITTEN = ("report.html", "checkpoint", LOCK)
# Files that may be added after the run.
_ADDED = (*_REWRITTEN, "figures")
# Bytes that are read at a time.
_CHUNK = 1 << 20


class FileMismatch(NamedTuple):
    """File that differs from its state at the end of the run.

    Attributes
    ----------
    file : str
        Path in the run folder.
    what : str
        Difference, with its location if known.
    """

    file: str
    what: str


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of every file of a finished run in the format of ``sha256sum --check``.

    The last line is a comment with the SHA-256 of the lines before, so that changes of the list are detected, too.
    """
    lines = "".join(
        f"{_digest(folder / name)}  {name}\n" for name in sorted(_find(folder)) if not _is_in(name, _REWRITTEN)
    )
    write_bytes(folder, NAME, lambda file: file.write((lines + _seal(lines.encode())).encode()))


def save_sealed(result: Any, path: str | Path) -> Path:
    """Write a result to a new or empty folder, with checksums of all files; return the folder."""
    folder = save(result, path)
    write_checksums(folder)
    return folder


def check_files(folder: Path) -> list[FileMismatch]:
    """Find the files that were changed, removed or added since the end of the run; figures may be added.

    Raises
    ------
    DataError
        If the folder does not contain a single run that has ended.
    """
    require_single_run(folder)
    if not (folder / NAME).is_file():
        if not _ended(folder):
            raise DataError(f"{folder} {describe_missing_results(folder)}")
        return [FileMismatch(NAME, "is missing, so the other files cannot be checked")]
    known = _read(folder)
    if isinstance(known, FileMismatch):
        return [known]
    mismatches = [mismatch for name, digest in known.items() if (mismatch := _check(folder, name, digest))]
    extra = sorted(name for name in _find(folder) if name not in known and not _is_in(name, _ADDED))
    return mismatches + [FileMismatch(name, "was added after the run ended") for name in extra]


def _find(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if not path.is_dir() and path != folder / NAME:
            yield path.relative_to(folder).as_posix()


def _is_in(name: str, places: tuple[str, ...]) -> bool:
    return PurePosixPath(name).parts[0] in places


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _seal(lines: bytes) -> str:
    return f"# {hashlib.sha256(lines).hexdigest()}: the lines above\n"


def _ended(folder: Path) -> bool:
    if (folder / "summary.json").is_file():
        return True
    try:
        return json.loads((folder / "manifest.json").read_bytes())["state"] in {"done", "interrupted"}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _read(folder: Path) -> dict[str, str] | FileMismatch:
    """Read the checksum of each file; return a mismatch if the list itself is damaged."""
    try:
        content = (folder / NAME).read_bytes()
    except OSError as error:
        return FileMismatch(NAME, f"cannot be read: {error.strerror or error}")
    *lines, seal = content.splitlines(keepends=True) or [b""]
    if seal != _seal(b"".join(lines)).encode():
        return FileMismatch(NAME, "is changed or truncated, so the other files cannot be checked")
    try:
        known = {name: digest for digest, name in (line.decode().rstrip("\n").split("  ", 1) for line in lines)}
    except ValueError:
        return FileMismatch(NAME, "is not a list of checksums")
    outside = [name for name in known if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts]
    return FileMismatch(NAME, f"names {outside[0]!r}, which is outside of the folder") if outside else known


def _check(folder: Path, name: str, digest: str) -> FileMismatch | None:
    path = folder / name
    if not path.exists() and not path.is_symlink():
        return FileMismatch(name, "is missing")
    if not path.is_file():
        return FileMismatch(name, "is not a file any more")
    try:
        if _digest(path) == digest:
            return None
    except OSError as error:
        return FileMismatch(name, f"cannot be read: {error.strerror or error}")
    place = {".npz": _describe_archive, ".jsonl": _describe_lines}.get(path.suffix, lambda _: "")(path)
    return FileMismatch(name, "is changed" + (f": {place}" if place else ""))


def _describe_archive(path: Path) -> str:
    """Describe the array of an archive that cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = [entry.filename for entry in archive.infolist() if not _intact(archive, entry)]
    # A broken archive raises almost any exception.
    except Exception:
        return "the archive is incomplete"
    if damaged:
        return f"array {damaged[0].removesuffix('.npy')!r} is damaged"
    return "its arrays can be read, but differ from those of the run"


def _intact(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    try:
        with archive.open(entry) as member:
            while member.read(_CHUNK):
                pass
    # A broken archive raises almost any exception.
    except Exception:
        return False
    return True


def _describe_lines(path: Path) -> str:
    """Describe the line that is not a record."""
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        try:
            is_record = not line or isinstance(json.loads(line), dict)
        except (ValueError, RecursionError):
            is_record = False
        if not is_record:
            return f"line {number} is not a record"
    return "its lines can be read, but differ from those of the run"
