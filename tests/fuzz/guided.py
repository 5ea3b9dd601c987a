"""One parser under atheris; started by fuzz.py with the parser's name, a folder, and options of libFuzzer."""

import sys
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["p2pkm", "topologies"]):
    from tests.fuzz.parsers import parsers, run


def main() -> None:
    """Write the seeds and start."""
    name, folder, *options = sys.argv[1:]
    corpus = Path(folder) / "corpus"
    corpus.mkdir()
    parser, seeds = parsers(Path(folder))[name]
    for number, seed in enumerate(seeds):
        (corpus / str(number)).write_bytes(seed)
    warnings.simplefilter("ignore")

    def one(data: bytes) -> None:
        run(parser, data)

    atheris.Setup([sys.argv[0], *options, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
