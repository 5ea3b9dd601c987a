"""Entry point of ``python -m p2pkm``."""

from p2pkm.cli.main import run_program

run_program()
