"""Abort of all ranks if one of them fails."""

import os
import sys
import time
from types import TracebackType

from p2pkm.core.errors import NetworkError
from p2pkm.network.transport import World


def abort_on_error(world: World) -> None:
    """Abort all ranks at an uncaught exception on this rank; otherwise the others would wait forever."""
    original_hook = sys.excepthook
    process = os.getpid()

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        # A forked process is not a rank.
        if os.getpid() != process:
            original_hook(kind, error, trace)
            return
        # If all ranks fail with the same error, only rank 0 reports it: it aborts the others within 0.5 s.
        time.sleep(0.5 if world.rank else 0.0)
        print(f"p2pkm: rank {world.rank} failed: {kind.__name__}: {error}", file=sys.stderr, flush=True)
        original_hook(kind, error, trace)
        world.abort(NetworkError.code)

    sys.excepthook = hook
