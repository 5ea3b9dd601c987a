"""``python -m p2pkm``."""

import sys

from p2pkm.cli.main import main

sys.exit(main())
