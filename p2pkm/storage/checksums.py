"""Checksums of a run folder: what its files were when the run ended, and which have changed since."""

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
_REWRITTEN = ("report.html", "checkpoint", LOCK)  # by other commands, at any time: not in the list
_ADDED = (*_REWRITTEN, "figures")  # these may be there without being in the list
_CHUNK = 1 << 20


class FileMismatch(NamedTuple):
    """A file that is not as the run left it, and what is known of the place."""

    file: str
    what: str


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of every file of a finished run, as ``sha256sum --check`` reads it; the last line seals it."""
    lines = "".join(
        f"{_digest(folder / name)}  {name}\n" for name in sorted(_find(folder)) if not _in(name, _REWRITTEN)
    )
    write_bytes(folder, NAME, lambda file: file.write((lines + _seal(lines.encode())).encode()))


def save_sealed(result: Any, path: str | Path) -> Path:
    """Write a result into a new or empty folder, with the checksums of all files; return the folder."""
    folder = save(result, path)
    write_checksums(folder)
    return folder


def check_files(folder: Path) -> list[FileMismatch]:
    """Return the files that differ from what the run left, are missing, or were not there; figures may be added.

    Raises
    ------
    DataError
        If this is not the folder of a run that has ended.
    """
    require_single_run(folder)
    if not (folder / NAME).is_file():
        if not _ended(folder):
            raise DataError(f"{folder} {describe_missing_results(folder)}")
        return [FileMismatch(NAME, "is missing, so the other files cannot be checked")]
    known = _read(folder)
    if isinstance(known, FileMismatch):
        return [known]
    faults = [fault for name, digest in known.items() if (fault := _check(folder, name, digest))]
    extra = sorted(name for name in _find(folder) if name not in known and not _in(name, _ADDED))
    return faults + [FileMismatch(name, "was not there when the run ended") for name in extra]


def _find(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if not path.is_dir() and path != folder / NAME:
            yield path.relative_to(folder).as_posix()


def _in(name: str, places: tuple[str, ...]) -> bool:
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
    """Return the checksum of each file, or what is wrong with the list."""
    try:
        content = (folder / NAME).read_bytes()
    except OSError as error:
        return FileMismatch(NAME, f"cannot be read: {error.strerror or error}")
    *lines, seal = content.splitlines(keepends=True) or [b""]
    if seal != _seal(b"".join(lines)).encode():
        return FileMismatch(NAME, "is changed or cut off, so the other files cannot be checked")
    try:
        known = {name: digest for digest, name in (line.decode().rstrip("\n").split("  ", 1) for line in lines)}
    except ValueError:
        return FileMismatch(NAME, "is no list of checksums")
    outside = [name for name in known if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts]
    return FileMismatch(NAME, f"names {outside[0]!r}, which is outside of the folder") if outside else known


def _check(folder: Path, name: str, digest: str) -> FileMismatch | None:
    path = folder / name
    if not path.exists() and not path.is_symlink():
        return FileMismatch(name, "is missing")
    if not path.is_file():
        return FileMismatch(name, "is no file any more")
    try:
        if _digest(path) == digest:
            return None
    except OSError as error:
        return FileMismatch(name, f"cannot be read: {error.strerror or error}")
    place = {".npz": _place_in_archive, ".jsonl": _place_in_lines}.get(path.suffix, lambda _: "")(path)
    return FileMismatch(name, "is changed" + (f": {place}" if place else ""))


def _place_in_archive(path: Path) -> str:
    """State which array of an archive cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = [entry.filename for entry in archive.infolist() if not _intact(archive, entry)]
    except Exception:  # a broken archive raises nearly anything
        return "it is no whole archive any more"
    if damaged:
        return f"its array {damaged[0].removesuffix('.npy')!r} is damaged"
    return "its arrays can be read, but are not those of the run"


def _intact(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    try:
        with archive.open(entry) as member:
            while member.read(_CHUNK):
                pass
    except Exception:  # a broken archive raises nearly anything
        return False
    return True


def _place_in_lines(path: Path) -> str:
    """State which line is no record."""
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        try:
            whole = not line or isinstance(json.loads(line), dict)
        except (ValueError, RecursionError):
            whole = False
        if not whole:
            return f"line {number} is no record"
    return "its lines can be read, but are not those of the run"
