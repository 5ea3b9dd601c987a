"""Checker of the code blocks in README and docs: runs them and compares what they print with what the page shows.

    python -m tests.docs.check_blocks [PAGE ...] [--slow] [--update]

The first line of a block says what it is, for example ``bash run slow`` or ``text output part``:

=====================  ===========================================================================================
``bash run``           Commands. They run in a temporary folder that all blocks of a page share.
``python run``         Python code. It runs in that folder; names are shared by the blocks of a page.
``bash norun``         Commands that are not run. Those of p2pkm must still be parsed; ``reason="..."`` is required.
``python norun``       Code that is not run; it must compile. ``reason="..."`` is required.
``LANGUAGE file=NAME`` A file, written into that folder.
``text output``        What the block before it printed on standard output; ``text output stderr``: on standard error.
                       With ``of="COMMAND"``: what this command prints, which must stand on the page.
``text sample``        Text that no command prints, such as the lines of a file format.
=====================  ===========================================================================================

More words: ``slow`` (only run with --slow), ``needs=MODULE`` or ``needs=PROGRAM`` (skipped where it is missing),
``code=N`` (expected exit code), ``part`` (the block shows some of the printed lines, in order), ``tol=X`` (relative
tolerance of numbers; without it they must agree in all printed digits). Seconds and names of run folders are not
compared. A line ``...`` stands for any lines, and at the end of a line for its rest. --update writes what was printed
into the pages and shows the difference.
"""

import argparse
import ast
import contextlib
import difflib
import importlib.util
import io
import multiprocessing
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_WRITTEN = (
    "index.md",
    "tutorial/*.md",
    "howto/*.md",
    "ref/*.md",
    "explain/*.md",
    "results/*.md",
)
PAGES = [ROOT / "README.md", *sorted(page for glob in _WRITTEN for page in DOCS.glob(glob))]
KINDS = {
    "bash": {"run", "norun"},
    "python": {"run", "norun", "file"},
    "text": {"output", "sample", "file"},
    "toml": {"file"},
}
VARYING = (
    (re.compile(r"\b\d+(\.\d+)?(e-?\d+)? s\b"), "<seconds>"),
    (re.compile(r"\bruns/[\w.-]+"), "<folder>"),
    (re.compile(re.escape(tempfile.gettempdir()) + r"/[\w./-]+"), "<path>"),
)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")


@dataclass
class Block:
    """One fenced block of a page. `line` is that of the fence, from 1."""

    page: Path
    line: int
    language: str
    words: list[str]
    text: str
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return "file" if "file" in self.keys else self.words[0] if self.words else ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def read_blocks(page: Path) -> list[Block]:
    """Read the fenced blocks of a page; directives of the documentation, such as ``{toctree}``, are left out."""
    blocks = []
    for found in re.finditer(r"^```([^\n`]+)?\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        info, text = found[1] or "", found[2]
        if info.startswith("{"):
            continue
        language, *rest = shlex.split(info) or [""]
        keys = dict(word.split("=", 1) for word in rest if "=" in word)
        line = page.read_text("utf-8").count("\n", 0, found.start()) + 1
        blocks.append(Block(page, line, language, [word for word in rest if "=" not in word], text, keys))
    return blocks


def find_unmarked(page: Path) -> list[str]:
    """List the blocks of a page whose first line does not say what they are, or whose output nothing prints."""
    wrong, before = [], ""
    for block in read_blocks(page):
        if block.kind == "output" and before != "run" and "of" not in block.keys:
            wrong.append(f'{block.place}: nothing that is run prints this; say of="COMMAND"')
        before = before if block.kind == "file" else block.kind
        if block.kind not in KINDS.get(block.language, set()):
            wrong.append(f"{block.place}: ```{block.language} needs one of {sorted(KINDS.get(block.language, KINDS))}")
        elif block.kind == "norun" and not block.keys.get("reason"):
            wrong.append(f'{block.place}: a block that is not run needs reason="..."')
    return wrong


# --- running ---


class Printed(NamedTuple):
    """What a block printed."""

    out: str
    err: str


class Session:
    """The temporary folder and the Python names that the blocks of a page share."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "page"}

    def run(self, block: Block) -> Printed:
        """Run a block and return what it prints. Raises AssertionError with the output if it fails."""
        if block.language == "python":
            return self._run_python(block)
        expected = int(block.keys.get("code", 0))
        commands = list(plain_commands(block.text))
        # ranks are processes of their own: in this process their output would not be caught
        if commands and all(words is not None and "--ranks" not in words for words in commands):
            printed, code = self._run_in_process([words for words in commands if words is not None])
        else:
            printed, code = self._run_in_shell(block.text)
        ending = "".join(printed)[-2000:]
        assert code == expected, f"{block.place}: exit code {code}; expected {expected}\n{ending}"
        return printed

    def _run_python(self, block: Block) -> Printed:
        out, err = io.StringIO(), io.StringIO()
        sys.path[:0] = [] if str(self.folder) in sys.path else [str(self.folder)]  # the files of the page are modules
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                exec(compile(block.text, f"<{block.place}>", "exec"), self.names)
            except Exception:
                raise AssertionError(f"{block.place}: {traceback.format_exc()[-2000:]}") from None
        return Printed(out.getvalue(), err.getvalue())

    def _run_in_process(self, commands: list[list[str]]) -> tuple[Printed, int]:
        from p2pkm.cli.main import main

        out, err, code = io.StringIO(), io.StringIO(), 0
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            for words in commands:
                code = main(words)
                if code:
                    break
        return Printed(out.getvalue(), err.getvalue()), code

    def _run_in_shell(self, script: str) -> tuple[Printed, int]:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], cwd=self.folder, capture_output=True, text=True, check=False,
            env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"},
        )  # fmt: skip
        return Printed(done.stdout, done.stderr), done.returncode


def plain_commands(script: str) -> Iterator[list[str] | None]:
    """Split a script into the words after ``python -m p2pkm`` of each line, None for a line that needs a shell."""
    for line in re.sub(r" *\\\n *", " ", script).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        words = shlex.split(line, comments=True)
        ours = words[:3] == ["python", "-m", "p2pkm"] and not re.search(r"[$`|&;<>]", line.split(" #")[0])
        yield words[3:] if ours else None


def parse_only(block: Block) -> None:
    """Parse a block that is not run: Python must compile, every option of a command of p2pkm must exist."""
    if block.language == "python":
        ast.parse(block.text)
        return
    for words in plain_commands(block.text):
        if words is not None and (problem := parse_words(words)):
            raise ValueError(problem)


def parse_words(words: list[str]) -> str:
    """Parse the words after ``p2pkm``, those of a command such as ``compare`` too; return the error, or nothing."""
    import click

    from p2pkm.cli.run import command

    try:
        group: click.Command = command
        context: click.Context | None = None
        while isinstance(group, click.Group) and words and words[0] in group.commands:
            context = click.Context(group, parent=context, info_name=words[0])
            group, words = group.commands[words[0]], words[1:]
        group.make_context(group.name or "p2pkm", list(words), parent=context)
    except click.ClickException as error:
        return error.format_message()
    except click.exceptions.Exit:
        return ""  # --help
    return ""


def missing_need(block: Block) -> str | None:
    """Return what a block needs and this machine lacks."""
    needs = filter(None, block.keys.get("needs", "").split(","))
    return next((name for name in needs if not shutil.which(name) and not importlib.util.find_spec(name)), None)


# --- comparing ---


def compare(shown: str, printed: str, *, part: bool, tolerance: float) -> str:
    """Return how the shown text differs from the printed one, an empty text if it does not.

    Parameters
    ----------
    shown, printed : str
        Text of the page; output of the command.
    part : bool
        Whether lines may be missing in what is shown.
    tolerance : float
        Largest relative difference of two numbers.
    """
    want, got = ([line.rstrip() for line in mask(text).strip("\n").splitlines()] for text in (shown, printed))
    position, loose = 0, part
    for line in want:
        if line.strip() == "...":
            loose = True
            continue
        rest = range(position, len(got)) if loose else range(position, min(position + 1, len(got)))
        match = next((index for index in rest if is_alike(line, got[index], tolerance)), None)
        if match is None:
            return "".join(
                difflib.unified_diff([f"{one}\n" for one in want], [f"{one}\n" for one in got], "shown", "printed")
            )
        position, loose = match + 1, part
    if position < len(got) and not loose:
        return f"not shown: {got[position]!r}"
    return ""


def mask(text: str) -> str:
    """Replace seconds, paths and names of run folders."""
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return text


def is_alike(shown: str, printed: str, tolerance: float) -> bool:
    """Whether two lines agree in their words, and in their numbers up to the tolerance. Runs of spaces are one."""
    shown, printed = " ".join(shown.split()), " ".join(printed.split())
    if shown.endswith(" ..."):
        shown = shown.removesuffix(" ...")
        printed = printed[: len(shown)]
    if NUMBER.sub("#", shown) != NUMBER.sub("#", printed):
        return False
    numbers = [[float(one.replace(",", "")) for one in NUMBER.findall(line)] for line in (shown, printed)]
    return all(abs(a - b) <= tolerance * abs(b) for a, b in zip(*numbers, strict=True))


# --- a page ---


@dataclass
class Outcome:
    """What became of a page: differences, skipped blocks, and the output of each block that shows one."""

    faults: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    printed: dict[int, str] = field(default_factory=dict)
    run: int = 0


def check_pages(pages: list[Path], *, slow: bool) -> Iterator[tuple[Path, Outcome]]:
    """Check pages one after the other, each in a process of its own: code of one page must not change another.

    Parameters
    ----------
    pages : list of Path
        Markdown files.
    slow : bool
        Whether the blocks marked slow are run, too.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["p2pkm.cli.main", "p2pkm", "sklearn.cluster", "matplotlib.figure"])
    for page in pages:
        if any(block.kind in {"run", "output"} and (slow or "slow" not in block.words) for block in read_blocks(page)):
            with ProcessPoolExecutor(1, context) as pool:
                yield page, pool.submit(check_page, page, slow=slow).result()
        else:
            yield page, check_page(page, slow=slow)


def check_page(page: Path, *, slow: bool) -> Outcome:
    """Run the blocks of a page in order and compare their output with the blocks ``text output`` that follow.

    Parameters
    ----------
    page : Path
        A Markdown file.
    slow : bool
        Whether the blocks marked slow are run, too.
    """
    outcome = Outcome(find_unmarked(page))
    if outcome.faults:
        return outcome
    with tempfile.TemporaryDirectory() as place:
        provide_files(Path(place))
        check = _PageCheck(Session(Path(place)), outcome, slow=slow)
        for block in read_blocks(page):
            try:
                check.take(block)
            except Exception as error:
                outcome.faults.append(f"{block.place}: {error}" if block.place not in str(error) else str(error))
                check.printed = None
    return outcome


class _PageCheck:
    """The blocks of one page, taken in order. `printed`: what the last block printed, None if it was not run."""

    def __init__(self, session: Session, outcome: Outcome, *, slow: bool):
        self._session, self._outcome, self._slow = session, outcome, slow
        self.printed: Printed | None = None

    def take(self, block: Block) -> None:
        """Do with a block what its first line says."""
        if block.kind == "file":
            (self._session.folder / block.keys["file"]).write_text(block.text, "utf-8")
        elif block.kind == "norun":
            parse_only(block)
        elif block.kind == "run":
            self.printed = self._run(block)
        elif block.kind == "output":
            self._compare(block)

    def _run(self, block: Block) -> Printed | None:
        if "slow" in block.words and not self._slow:
            return None
        if missing := missing_need(block):
            self._outcome.skipped.append(f"{block.place}: {missing} is missing")
            return None
        self._outcome.run += 1
        return self._session.run(block)

    def _compare(self, block: Block) -> None:
        if command := block.keys.get("of"):
            if command not in block.page.read_text("utf-8").replace(command, "", 1):
                raise AssertionError(f"the page does not show the command {command!r}")
            self.printed = self._run(Block(block.page, block.line, "bash", ["run", *block.words], command, block.keys))
        if self.printed is None:
            return
        printed = self.printed.err if "stderr" in block.words else self.printed.out
        self._outcome.printed[block.line] = printed
        options = {"part": "part" in block.words, "tolerance": float(block.keys.get("tol", 0))}
        if difference := compare(block.text, printed, **options):
            message = f"{block.place}: what is shown differs from what is printed"
            self._outcome.faults.append(f"{message}\n{difference}")


def provide_files(folder: Path) -> None:
    """Write the files of users that pages name: ``mine.csv``, ``hospitals.csv`` and others, with simple contents."""
    import numpy as np

    import p2pkm

    points, labels = p2pkm.blobs(clusters=4, points=60, seed=1)
    sites = np.array(["Aachen", "Bonn", "Celle", "Dresden", "Essen", "Fulda", "Gera", "Halle"])[
        np.arange(len(points)) % 8
    ]
    rows = [f"{x:.4f},{y:.4f},{label}" for (x, y), label in zip(points, labels, strict=True)]
    Path(folder, "mine.csv").write_text("\n".join(["x,y,label", *rows]) + "\n", "utf-8")
    patients = [
        f"{site},{index},{'fm'[index % 2]},{row}" for index, (site, row) in enumerate(zip(sites, rows, strict=True))
    ]
    Path(folder, "hospitals.csv").write_text("\n".join(["hospital,patient,sex,x,y,label", *patients]) + "\n", "utf-8")
    Path(folder, "sites").mkdir()
    for site in np.unique(sites):
        here = [row for row, place in zip(rows, sites, strict=True) if place == site]
        Path(folder, "sites", f"{site}.csv").write_text("\n".join(["x,y,label", *here]) + "\n", "utf-8")
    np.savez(Path(folder, "mine.npz"), x=points, y=labels)
    _provide_other_formats(Path(folder), points, labels, sites)
    Path(folder, "examples").symlink_to(ROOT / "examples")
    Path(folder, "tests").symlink_to(ROOT / "tests")


def _provide_other_formats(folder: Path, points: Any, labels: Any, sites: Any) -> None:
    import json

    names = sorted(set(sites.tolist()))
    users = {name: {"x": points[sites == name].tolist(), "y": labels[sites == name].tolist()} for name in names}
    counts = [len(users[name]["x"]) for name in names]
    leaf = {"users": names, "num_samples": counts, "user_data": users}
    Path(folder, "femnist.json").write_text(json.dumps(leaf), "utf-8")
    if importlib.util.find_spec("pyarrow"):
        import pyarrow
        import pyarrow.parquet

        columns = {"x": points[:, 0], "y": points[:, 1], "hospital": sites, "label": labels}
        pyarrow.parquet.write_table(pyarrow.table(columns), Path(folder, "mine.parquet"))
    if importlib.util.find_spec("anndata"):
        import anndata
        import pandas

        about = pandas.DataFrame(
            {"cell_type": labels.astype(str), "donor": sites}, index=[f"c{i}" for i in range(len(sites))]
        )
        cells = anndata.AnnData(points, obs=about, obsm={"X_pca": points})
        cells.write_h5ad(Path(folder, "cells.h5ad"))


def update_page(page: Path, printed: dict[int, str]) -> str:
    """Write what was printed into the blocks of a page that show all of it; return the difference.

    Parameters
    ----------
    page : Path
        A Markdown file.
    printed : dict of int to str
        Output by line of the block that shows it. A block marked ``part`` keeps the lines whose first words it shows.
    """
    old = page.read_text("utf-8")
    lines = old.splitlines(keepends=True)
    for block in reversed(read_blocks(page)):
        if block.line in printed:
            text = _select(block.text, printed[block.line]) if "part" in block.words else printed[block.line]
            shown = block.text.splitlines()
            lines[block.line : block.line + len(shown)] = [
                f"{next((old for old in shown if is_alike(mask(old), mask(new), 0.0)), new.rstrip())}\n"
                for new in text.strip("\n").splitlines()
            ]
    page.write_text("".join(lines), "utf-8")
    return "".join(difflib.unified_diff(old.splitlines(keepends=True), lines, "before", "after"))


def _select(shown: str, printed: str) -> str:
    label = re.compile(r"\s{2,}|\d")  # a line is known by its words up to a gap or a digit
    known = {label.split(line.strip(), maxsplit=1)[0] for line in shown.splitlines()}
    return "\n".join(line for line in printed.splitlines() if label.split(line.strip(), maxsplit=1)[0] in known)


def main() -> int:
    """Check pages from the command line; the exit code is 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="pages; default: README, docs and launch")
    parser.add_argument("--slow", action="store_true", help="run the blocks marked slow, too")
    parser.add_argument("--update", action="store_true", help="write what was printed into the pages")
    options = parser.parse_args()
    os.environ.setdefault("MPLBACKEND", "Agg")
    bad = False
    for page, outcome in check_pages([path.resolve() for path in options.pages] or PAGES, slow=options.slow):
        if options.update:
            print(update_page(page, outcome.printed), end="")
        for line in (*outcome.skipped, *outcome.faults):
            print(line)
        print(f"{page.relative_to(ROOT)}: {outcome.run} blocks run, {len(outcome.faults)} faults", flush=True)
        bad |= bool(outcome.faults)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
