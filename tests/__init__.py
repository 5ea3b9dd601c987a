"""Tests write bytecode: containers often forbid it, and each process of a test would compile all that it imports."""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
