"""Execution of tasks by an executor of ``concurrent.futures``, or by one of another package with the same methods."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any

from p2pkm.core.errors import ExperimentError

_POLL = 0.05  # seconds between two looks at the tasks


def check_executor(executor: Any) -> None:
    """Check that an object can execute tasks.

    Raises
    ------
    ExperimentError
        If it cannot.
    """
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise ExperimentError(
            f"executor is of type {type(executor).__name__}; expected an object with the method submit, such as "
            "concurrent.futures.ProcessPoolExecutor(4)"
        )


def work_in_executor(
    executor: Any, call: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], interrupted: Callable[[], int]
) -> Generator[tuple[int, Any]]:
    """Submit a call for each task, and yield number and result of each one that has ended, or its exception.

    Only `submit` of the executor, and `done`, `result` and `cancel` of what it returns are used: executors that are not
    subclasses of ``concurrent.futures.Executor``, such as those of submitit, have these, too.

    Parameters
    ----------
    executor : Executor
    call : callable
    tasks : sequence of tuple
        Arguments of each call.
    interrupted : callable
        Polled while tasks run; after a nonzero result, tasks that have not begun are canceled.
    """
    futures = {number: executor.submit(call, *arguments) for number, arguments in enumerate(tasks)}
    try:
        while futures and not interrupted():
            ended = [number for number, future in futures.items() if future.done()]
            for number in ended:
                yield number, _find_result(futures.pop(number))
            if not ended:
                time.sleep(_POLL)
    finally:
        for future in futures.values():
            # Executors report by exceptions of their own what cannot be canceled.
            with suppress(Exception):
                future.cancel()


def _find_result(future: Any) -> Any:
    try:
        return future.result()
    except Exception as error:
        # Executors report a lost worker by exceptions of their own.
        return error
