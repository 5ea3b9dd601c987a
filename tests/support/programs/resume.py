"""Command lines one after the other on the same ranks; with KEEP, the folder is copied after each checkpoint."""

import json
import os
import shutil
import sys
from pathlib import Path

from p2pkm.cli.main import main
from p2pkm.storage import checkpoint

_put = checkpoint.CheckpointWriter.put


def _copying(self, outline, arrays):
    _put(self, outline, arrays)
    copies = Path(f"{self._lock.folder}.copies")
    copies.mkdir(exist_ok=True)
    shutil.copytree(self._lock.folder, copies / f"{len(list(copies.iterdir())):04}")


if __name__ == "__main__":
    if "KEEP" in os.environ:
        checkpoint.CheckpointWriter.put = _copying
    sys.exit(max(main(line) for line in json.loads(sys.argv[1])))
