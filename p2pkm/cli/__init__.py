"""The command line: options, commands, printing, doctor."""

from p2pkm.cli.main import main

__all__ = ["main"]
