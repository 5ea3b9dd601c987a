"""Repeated locking of a folder, checking that no other process holds the lock at the same time."""

import os
import sys
import time
from pathlib import Path

from p2pkm.core.errors import ExperimentError
from p2pkm.storage.lock import Lock

folder, limit, mine = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < limit:
    try:
        with Lock(folder):
            os.close(os.open(folder.parent / "alone", os.O_CREAT | os.O_EXCL))  # fails if anybody else is in here
            (folder.parent / "alone").unlink()
            mine += 1
    except ExperimentError as error:
        assert "is in use" in str(error) or "was locked by other processes" in str(error), error
print(mine)
