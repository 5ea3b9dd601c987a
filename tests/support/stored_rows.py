"""Rows in the folder of a study, for tests that look at them, lose them or damage them."""

import hashlib
import json
from pathlib import Path


def list_lines(folder):
    """Return the lines of rows by the key of their run; of several, the last one."""
    lines = {}
    for path in sorted(Path(folder).glob("runs/*.jsonl")):
        for line in path.read_bytes().splitlines():
            if line.startswith(b'{"run": "'):
                lines[line.split(b'"', 4)[3].decode()] = line
    return lines


def list_rows(folder):
    """Return the stored rows, in the order of their keys."""
    return [json.loads(line) for _, line in sorted(list_lines(folder).items())]


def replace_line(folder, key, new):
    """Replace the line of a run; by None: remove it."""
    old = list_lines(folder)[key]
    for path in Path(folder).glob("runs/*.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        kept = [line if line.rstrip(b"\n") != old else new for line in lines]
        path.write_bytes(b"".join(line for line in kept if line is not None))


def lose_rows(folder, count):
    """Remove the lines of the first `count` runs without an error; return their keys, which differ by version."""
    ended = [key for key, line in sorted(list_lines(folder).items()) if json.loads(line)["error"] is None]
    for key in ended[:count]:
        replace_line(folder, key, None)
    return ended[:count]


def save_as_earlier_version(path, row):
    """Write the row of a run as version 0.1.0 did, in a file of its own."""
    text = json.dumps(json.loads(json.dumps(row)), sort_keys=True)
    path.write_text(json.dumps(row | {"sha256": hashlib.sha256(text.encode()).hexdigest()}, indent=1) + "\n")
