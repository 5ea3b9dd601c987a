"""Entry points `p2pkm` and `python -m p2pkm`.

Rank 0 parses the command line; the other ranks execute the orders that it broadcasts.
"""

import contextlib
import io
import os
import re
import sys
from itertools import pairwise
from typing import Any, NoReturn

from p2pkm.core.errors import DataError, ExperimentError, NetworkError, P2PKMError, command_line

# With these, rank 0 prints and exits without MPI, so the other ranks must not wait for an order.
_PRINT_ONLY = {"--help", "-h", "--help-all", "--version"}
# Characters of an error message that are kept at its beginning and at its end.
_KEPT_CHARACTERS = 1_500


def main(arguments: list[str] | None = None, *, alone: bool = False) -> int:
    """Run the command line on this rank and return the exit code; alone: whether the process does nothing else."""
    with command_line():
        return _main(arguments, alone=alone)


def _main(arguments: list[str] | None, *, alone: bool) -> int:
    from p2pkm.core.mpi_environment import THREADS, expected_rank, launched
    from p2pkm.engine.signals import code_of

    arguments = sys.argv[1:] if arguments is None else arguments
    _replace_unencodable_characters()
    # Figures are files: no window is opened, whatever backend the user's matplotlibrc names.
    os.environ["MPLBACKEND"] = "agg"
    if launched():
        # Many ranks share a machine: one thread for each.
        for name in THREADS:
            os.environ.setdefault(name, "1")
    try:
        if expected_rank() > 0:
            return 0 if _PRINT_ONLY & set(arguments) else _run_worker_loop(alone=alone)
        return _run_root(arguments, alone=alone)
    except KeyboardInterrupt as error:
        return _abort_ranks(code_of(error))


def _replace_unencodable_characters() -> None:
    """Print question marks for characters that the terminal cannot encode, so that no finished run fails."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in {"strict", "surrogateescape"}:
            stream.reconfigure(errors="replace")


def run_program() -> NoReturn:
    """Run the command line as a program; Ctrl-C during interpreter shutdown does not change the exit code."""
    import signal

    from p2pkm.core.allocator import retain_freed_memory, skip_last_collection

    retain_freed_memory()
    code = main(alone=True)
    skip_last_collection()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def _run_root(arguments: list[str], *, alone: bool) -> int:
    """Run the command line on rank 0 and send the exit code to the other ranks."""
    from p2pkm.core.mpi_environment import launched

    code = _run_command_line(arguments, alone=alone)
    if launched() and not _PRINT_ONLY & set(arguments):
        _shut_down_workers(code)
    return code


def _run_command_line(arguments: list[str], *, alone: bool) -> int:
    """Run the command line, print an error if one occurs, and return the exit code."""
    from p2pkm.core.allocator import suspended_collection

    with suspended_collection(lasting=alone):
        import click

        from p2pkm.cli.run import command
    try:
        code = command.main(arguments, prog_name="p2pkm", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        _suggest(error, arguments)
        with contextlib.suppress(OSError):
            error.show()
        code = error.exit_code
    except click.exceptions.Abort:
        raise KeyboardInterrupt from None
    except P2PKMError as error:
        code = print_error(str(error), error.code)
    except MemoryError as error:
        code = print_error(
            f"too little memory: {error or 'none is left'}. Use fewer devices, points or clusters", DataError.code
        )
    except SystemExit as ending:
        # click exits by itself after shell completion, and with a code if the reader of the output is gone.
        code = NetworkError.code if ending.code else 0
    except OSError as error:
        code = print_error(
            f"{error.filename or 'the output'} cannot be used: {error.strerror or error}", NetworkError.code
        )
        _discard_output()
    return code or 0


def _suggest(error: Any, arguments: list[str]) -> None:
    """Suggest commands if one is misspelled, which not every version of click does, and new names of options."""
    import click

    from p2pkm.core.spec import explain_removed, renamed, suggest

    old = error.option_name if isinstance(error, click.NoSuchOption) else ""
    parts = "=".join(arguments).split("=")
    value = dict(pairwise(parts)).get(old)
    if new := renamed(old[2:], value):
        error.message = f"No such option: {old}. It is called --{new.replace('_', '-')} now."
        error.possibilities = None
    if removed := explain_removed(old[2:]):
        error.message = f"No such option: {old}. {removed}"
        error.possibilities = None
    known = getattr(getattr(getattr(error, "ctx", None), "command", None), "commands", {})
    misspelled = re.match(r"No such command '(.*?)'", error.message)
    if misspelled and known:
        error.message = f"{misspelled[0]}. {suggest(misspelled[1], known)}"
        # click would append its own suggestions.
        error.possibilities = None


def print_error(message: str, code: int) -> int:
    """Print an error, without its middle if it is very long, and return the exit code."""
    short = message
    if len(message) > 2 * _KEPT_CHARACTERS:
        short = f"{message[:_KEPT_CHARACTERS]} ... {message[-_KEPT_CHARACTERS:]}"
    with contextlib.suppress(OSError):
        print(f"p2pkm: error: {short}", file=sys.stderr, flush=True)
    return code


def _discard_output() -> None:
    """Redirect standard output to the null device: flushing it at exit would fail again (full disk, closed pipe)."""
    with contextlib.suppress(OSError, ValueError, AttributeError), open(os.devnull, "wb") as null_device:
        os.dup2(null_device.fileno(), sys.stdout.fileno())


def _abort_ranks(code: int) -> int:
    """Abort the other ranks, which may wait for this one, with the code of an interruption."""
    from p2pkm.network.world import connect

    # Without this module MPI was never started, and connecting only to abort would start it.
    if "mpi4py.MPI" in sys.modules:
        with contextlib.suppress(NetworkError):
            connect().abort(code)
    return code


def _shut_down_workers(code: int) -> None:
    """Send the exit code to the other ranks, which end their loops."""
    import numpy as np

    from p2pkm.network.world import connect

    # Without a connection this is the only rank, and the error has been printed.
    with contextlib.suppress(NetworkError):
        connect().broadcast({"exit": np.array(code)})


def _run_worker_loop(*, alone: bool) -> int:
    """Execute the orders that rank 0 broadcasts, until it sends an exit code."""
    from p2pkm.core.allocator import suspended_collection

    with suspended_collection(lasting=alone):
        from p2pkm.experiments.worker import worker_loop
        from p2pkm.network.world import connect
    try:
        world = connect()
    except NetworkError as error:
        # Rank 0 prints the error.
        return error.code
    if world.size == 1:
        return ExperimentError.code
    return worker_loop(world, {"study": _follow_study})


def _follow_study(world: Any, order: dict[str, Any]) -> None:
    from p2pkm.experiments.studies.run_study import follow_study

    follow_study(world, order)
