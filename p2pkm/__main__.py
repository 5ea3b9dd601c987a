"""``python -m p2pkm``."""

import sys

from p2pkm.cli import main

sys.exit(main())
