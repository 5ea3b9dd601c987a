"""Entry points `p2pkm` and `python -m p2pkm`; rank 0 parses, the other ranks wait for its instructions."""

import contextlib
import io
import os
import re
import sys
from itertools import pairwise
from typing import Any, NoReturn

from p2pkm.core.errors import DataError, ExperimentError, NetworkError, P2PKMError

_QUIET_WORDS = {"--help", "-h", "--version"}
_LONG = 1_500  # letters of a message, before and after what is left out


def main(arguments: list[str] | None = None) -> int:
    """Run the command line on this rank and return its exit code; see the interface of the command for the codes."""
    from p2pkm.core.mpi_environment import THREADS, expected_rank, launched
    from p2pkm.engine.signals import code_of

    arguments = sys.argv[1:] if arguments is None else arguments
    _accept_all_letters()
    os.environ["MPLBACKEND"] = "agg"  # figures are files: no window is opened, whatever the user's matplotlibrc names
    if launched():
        for name in THREADS:  # many ranks on one machine: one thread each
            os.environ.setdefault(name, "1")
    try:
        if expected_rank() > 0:
            return 0 if _QUIET_WORDS & set(arguments) else _follow()
        return _lead(arguments)
    except KeyboardInterrupt as error:
        return _stop(code_of(error))


def _accept_all_letters() -> None:
    """Print a question mark for a letter that the terminal's encoding lacks, rather than fail once a run has ended."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in {"strict", "surrogateescape"}:
            stream.reconfigure(errors="replace")


def run_program() -> NoReturn:
    """Run the command line as a program; once it has ended, Ctrl-C does not change its exit code any more."""
    import signal

    from p2pkm.core.allocator import keep_freed_memory

    keep_freed_memory()
    code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def _lead(arguments: list[str]) -> int:
    """Run the command line on rank 0, and send the other ranks how it ended."""
    from p2pkm.core.mpi_environment import launched

    code = _obey(arguments)
    if launched() and not _QUIET_WORDS & set(arguments):
        _dismiss(code)
    return code


def _obey(arguments: list[str]) -> int:
    """Run the command line, print the error if there is one, and return the code."""
    import click

    from p2pkm.cli.run import command

    try:
        _require_values(command, arguments)
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
            f"too little memory: {error or 'none is left'}; take fewer devices, points or clusters", DataError.code
        )
    except SystemExit as ending:  # click: a shell has its completions, or whoever reads the output has gone
        code = NetworkError.code if ending.code else 0
    except OSError as error:
        code = print_error(
            f"{error.filename or 'the output'} cannot be used: {error.strerror or error}", NetworkError.code
        )
        _drop_output()
    return code or 0


def _require_values(command: Any, arguments: list[str]) -> None:
    """Reject an option that is followed by another option in the place of its value."""
    import click

    commands, known = [command], dict[str, bool]()
    while commands:
        one = commands.pop()
        commands += [*getattr(one, "commands", {}).values()]
        for option in (option for option in one.params if isinstance(option, click.Option)):
            known |= dict.fromkeys((*option.opts, *option.secondary_opts), not option.is_flag)
    for name, following in pairwise(arguments):
        if known.get(name) and following in known:
            raise click.UsageError(
                f"{name} is followed by {following}; expected a value. Use {name} VALUE, or remove it"
            )


def _suggest(error: Any, arguments: list[str]) -> None:
    """Name the commands where one is misspelled (not every version of click does), and options that were renamed."""
    import click

    from p2pkm.core.spec import renamed, suggest

    old = error.option_name if isinstance(error, click.NoSuchOption) else ""
    words = "=".join(arguments).split("=")
    value = dict(pairwise(words)).get(old)
    if new := renamed(old[2:], value):
        error.message = f"No such option: {old}. It is called --{new.replace('_', '-')} now."
        error.possibilities = None
    known = getattr(getattr(getattr(error, "ctx", None), "command", None), "commands", {})
    wrong = re.match(r"No such command '(.*?)'", error.message)
    if wrong and known:
        error.message = f"{wrong[0]}. {suggest(wrong[1], known)}"
        error.possibilities = None  # of click, which would name them again


def print_error(message: str, code: int) -> int:
    """Print an error, without its middle if it is very long, and return the exit code."""
    short = message if len(message) <= 2 * _LONG else f"{message[:_LONG]} ... {message[-_LONG:]}"
    with contextlib.suppress(OSError):
        print(f"p2pkm: error: {short}", file=sys.stderr, flush=True)
    return code


def _drop_output() -> None:
    """Let nothing be written at the end that nobody takes: a full disk, a pipe whose reader has gone."""
    with contextlib.suppress(OSError, ValueError, AttributeError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _stop(code: int) -> int:
    """End the other ranks, which may wait for this one, with the code of an interruption."""
    from p2pkm.network.world import connect

    if "mpi4py.MPI" in sys.modules:  # else MPI was not started yet
        with contextlib.suppress(NetworkError):
            connect().abort(code)
    return code


def _dismiss(code: int) -> None:
    """Let the other ranks end with the same code."""
    import numpy as np

    from p2pkm.network.world import connect

    with contextlib.suppress(NetworkError):  # then there are no other ranks to tell, and the message is out
        connect().broadcast({"exit": np.array(code)})


def _follow() -> int:
    """Run what rank 0 broadcasts until it sends the end."""
    from p2pkm.experiments.worker import worker_loop
    from p2pkm.network.world import connect

    try:
        world = connect()
    except NetworkError as error:
        return error.code  # rank 0 says so
    if world.size == 1:
        return ExperimentError.code
    return worker_loop(world, {"study": _follow_study})


def _follow_study(world: Any, order: dict[str, Any]) -> None:
    from p2pkm.experiments.studies.run_study import follow_study

    follow_study(world, order)
