"""Every figure of speed beside its target: ``python -m tests.benchmarks [row ...] [--quick] [--against REV]``.

Each row runs in a process of its own, with the number of threads that it is about, and measures what is compared side
by side. On a machine that does other work as well the ratios hold, the absolute figures do not. Targets are those
of the machine that 0.1.0 was measured on (docs/results/speed.md has both versions side by side). A row whose trials
differ too much is "too noisy". With --against, the packages of a revision of git and those of this folder run every
row in turn, and the table has the ratios. With --write, the table becomes that of docs/results/speed.md.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from tests.benchmarks import stored, versions
from tests.benchmarks.figure import Figure

ROWS = {  # name: module and function, threads
    "local": ("local.measure", 1),
    "updates": ("sweeps.measure_updates", 1),
    "sweep": ("sweeps.measure_sweep", 2),
    "growth": ("sweeps.measure_growth", 1),
    "job": ("job.measure", 2),
    "against": ("against.measure", 1),
    "ranks": ("ranks.measure", 2),
    "roofline": ("roofline.measure", 1),
    "study": ("study.measure", 2),
    "keeping": ("keeping.measure", 1),
    "simulate": ("small.measure_simulate", 1),
    "script": ("small.measure_script", 1),
    "estimator": ("estimator.measure", 2),
    "start": ("small.measure_start", 1),
    "program": ("small.measure_program", 1),
    "star": ("small.measure_star", 1),
    "describe": ("small.measure_describe", 2),
    "exchange": ("small.measure_exchange", 1),
}
_THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_HEAD = ("what", "measured", "target", "result", "from")


def main() -> int:
    """Print the table; return 1 if a row failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="row", help=f"some of: {', '.join(ROWS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="smaller sizes: see that it runs; the targets do not hold")
    parser.add_argument("--against", metavar="REV", help="a revision of git: run both versions in turn, print ratios")
    parser.add_argument("--turns", type=int, default=5, help="with --against: runs of each version; default: 5")
    parser.add_argument("--format", choices=("plain", "markdown"), default="plain")
    parser.add_argument("--json", action="store_true", help="measure the rows in this process and print them as JSON")
    parser.add_argument(
        "--write", metavar="MACHINE", help="store the whole table in docs/results/speed.csv, measured on this machine"
    )
    options = parser.parse_args()
    if options.write and (options.rows or options.quick or options.against):
        parser.error("--write stores the whole table; leave out rows, --quick and --against")
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"unknown row {unknown[0]!r}; expected some of {', '.join(ROWS)}")
    names = options.rows or list(ROWS)
    if options.json:
        figures = [figure for name in names for figure in find(name)(options.quick)]
        print(json.dumps([figure._replace(note=add_kernels(figure.note)) for figure in figures]))
        return 0
    commit = stored.find_commit() if options.write else ""
    failed, figures = [], []
    with versions.check_out(options.against) as home:
        for name in names:
            print(f"{name} ...", file=sys.stderr, flush=True)
            found = compare(name, options, home) if home else measure(name, options.quick)
            failed += [name] if found is None else []
            figures += found or []
    print(describe_machine(options.quick))
    print("\n".join((draw_markdown if options.format == "markdown" else draw)(figures)))
    print("\n".join(f"failed: {name}" for name in failed), end="\n" if failed else "", file=sys.stderr)
    if options.write and not failed:
        stored.write([dict(zip(_HEAD, cells(figure), strict=True)) for figure in figures], commit, options.write)
    return 1 if failed else 0


def find(name: str) -> Callable[[bool], list[Figure]]:
    """Return what measures a row; its libraries are imported now."""
    module, function = ROWS[name][0].split(".")
    measured: Callable[[bool], list[Figure]] = getattr(import_module(f"tests.benchmarks.{module}"), function)
    return measured


def compare(name: str, options: argparse.Namespace, home: Path) -> list[Figure] | None:
    """Measure a row with both versions in turn; return the ratios new over old, None if one of them fails."""
    pairs = []
    for _ in range(options.turns):
        old, new = measure(name, options.quick, home), measure(name, options.quick)
        if old is None or new is None:
            return None
        pairs.append((old, new))
    return versions.relate(pairs)


def measure(name: str, quick: bool, home: Path | None = None) -> list[Figure] | None:
    """Measure a row in a new process, which starts in the folder of its packages; None if that fails."""
    command = [sys.executable, "-m", "tests.benchmarks", name, "--json", *(["--quick"] if quick else [])]
    # Nothing compiles beside what is measured.
    environment = os.environ | dict.fromkeys(_THREADS, str(ROWS[name][1])) | {"P2PKM_COMPILE_AHEAD": "0"}
    if home is not None:
        environment["PYTHONPATH"] = str(home)
    done = subprocess.run(
        command, env=environment, cwd=home, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False
    )
    return None if done.returncode else [Figure(*figure) for figure in json.loads(done.stdout.splitlines()[-1])]


def add_kernels(note: str) -> str:
    """Return the note of a figure, which says if its processes may have used kernels that are not compiled."""
    # A version that is measured with --against may lack the mark.
    with suppress(ImportError):
        from p2pkm.kernels.background import is_marked

        if "kernels" not in note and not is_marked("float64"):
            return "; ".join(filter(None, (note, "kernels not all compiled in the cache")))
    return note


def describe_machine(quick: bool) -> str:
    """Return a line about the machine and how busy it is."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    sizes = "small sizes, for which the targets are not meant; " if quick else ""
    return f"{sizes}{cores} cores, load {os.getloadavg()[1]:.1f} over the last five minutes; medians\n"


def cells(figure: Figure) -> tuple[str, ...]:
    """Return a figure as the texts of a row."""
    target = f"{figure.sense} {figure.target:g} {figure.unit}" if figure.sense else ""
    value = f"{figure.value:,.0f}" if figure.value >= 1000 else f"{figure.value:.3g}"
    if figure.is_noisy:
        value = "{:.3g} to {:.3g}".format(*figure.spread)
    if min(figure.spread) < 0.0:
        # A difference of two times that other work on the machine hides.
        return figure.what, "not measurable", target, figure.verdict, ""
    return figure.what, f"{value} {figure.unit}", target, figure.verdict, figure.note


def draw(figures: list[Figure]) -> list[str]:
    """Return the lines of the table, in columns."""
    table = [_HEAD, *map(cells, figures)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table]


def draw_markdown(figures: list[Figure]) -> list[str]:
    """Return the same in Markdown."""
    rows = [_HEAD, ("---",) * len(_HEAD), *map(cells, figures)]
    return [f"| {' | '.join(row)} |" for row in rows]


if __name__ == "__main__":
    sys.exit(main())
