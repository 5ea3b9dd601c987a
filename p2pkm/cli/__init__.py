"""Command line: options, commands, output, and a check of the installation."""

from p2pkm.cli.main import main

__all__ = ["main"]
