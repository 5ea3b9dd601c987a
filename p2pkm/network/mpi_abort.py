"""What happens to the other ranks if one of them fails."""

import os
import sys
import time
from types import TracebackType

from p2pkm.core.errors import NetworkError
from p2pkm.network.transport import World


def abort_on_error(world: World) -> None:
    """Let an uncaught exception on one rank end all ranks: the others would wait for it for ever."""
    shown, process = sys.excepthook, os.getpid()

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if os.getpid() != process:  # a fork is not a rank
            shown(kind, error, trace)
            return
        time.sleep(0.5 if world.rank else 0.0)  # if all ranks fail alike, the first one reports
        print(f"p2pkm: rank {world.rank} failed: {kind.__name__}: {error}", file=sys.stderr, flush=True)
        shown(kind, error, trace)
        world.abort(NetworkError.code)

    sys.excepthook = hook
