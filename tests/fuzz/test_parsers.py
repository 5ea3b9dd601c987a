"""Any bytes or text give a result or a P2PKMError: every parser, by hypothesis and by mutations of what it takes."""

import contextlib
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fuzz import damaged_files as damaged
from tests.fuzz import fuzz
from tests.fuzz.parsers import parsers, run

FOLDER = tempfile.TemporaryDirectory()
PARSERS = parsers(Path(FOLDER.name))
OF_TEXT = "spec algorithm source seeds couplings net stream tape lists memory toml csv tsv edgelist json leaf".split()
ALPHABET = st.sampled_from("0123456789,.-:;=_e \t\n\"'[]{}()<>#&nNaAxyinf\u0663\u00b2\ud800\x00\ufeff")
QUICK = settings(suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PARSERS)
def test_what_a_parser_takes_is_taken(name):
    parser, seeds = PARSERS[name]
    assert any(run(parser, seed) for seed in seeds) or name == "checksums"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PARSERS)
@given(data=st.binary(max_size=200))
@example(data=b"")
@QUICK
def test_any_bytes(name, data):
    run(PARSERS[name][0], data)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_TEXT)
@given(text=st.text(max_size=80) | st.text(ALPHABET, max_size=80))
@example(text="[" * 10_000)
@example(text="9" * 10_000)
@QUICK
def test_any_text(name, text):
    run(PARSERS[name][0], text.encode("utf-8", "surrogatepass"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PARSERS)
def test_a_sample_of_the_long_fuzzing(name):
    parser, seeds = PARSERS[name]
    outcome = fuzz.shake(name, parser, seeds, lambda cases: cases >= 50, seed=1)
    assert outcome.cases == 50 and not outcome.faults


def test_a_fault_is_found_and_told():
    def broken(data: bytes) -> object:
        return data.decode("ascii")

    outcome = fuzz.shake("broken", broken, [b"abc"], lambda cases: cases >= 300, seed=0)
    assert outcome.faults and "UnicodeDecodeError" in outcome.faults[0]


def test_a_case_that_hangs_is_a_fault(monkeypatch):
    def endless(data: bytes) -> object:
        while True:
            with contextlib.suppress(Exception):
                sum(range(1000))

    monkeypatch.setattr(fuzz, "SLOW", 0.2)
    outcome = fuzz.shake("endless", endless, [b"abc"], lambda cases: cases >= 1, seed=0)
    assert "TooSlowError" in outcome.faults[0]


def test_a_case_that_takes_much_memory_is_a_fault(monkeypatch):
    peak = iter((100, 100, 100, 400))
    monkeypatch.setattr(fuzz, "_peak", lambda: next(peak))
    outcome = fuzz.shake("large", lambda _: True, [b"abc"], lambda cases: cases >= 2, seed=0)
    assert outcome.taken == 1 and len(outcome.faults) == 1 and outcome.faults[0].startswith("300 MB of memory from b")


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("anndata"), reason="anndata is not installed")
def test_a_sample_of_the_damaged_files():
    cases, outcomes, odd = damaged.damage(60, 40, seed=0)
    assert cases == 40 and not odd
    assert outcomes[damaged.TAKEN] and outcomes[damaged.REFUSED]


@pytest.mark.parametrize(("deed", "said"), [
    ("time.sleep(60)", "hangs for more than 0.2 s"), ("os.abort()", "ended by SIGABRT"),
    ("os._exit(3)", "ended the process"),
])  # fmt: skip
def test_a_file_that_ends_or_holds_the_process_is_told(monkeypatch, tmp_path, deed, said):
    monkeypatch.setattr(damaged, "PATIENCE", 0.2)
    with (tmp_path / "said").open("w") as file:
        program = f"import os, time; print(0, end=' ', flush=True); {deed}"
        with subprocess.Popen([sys.executable, "-c", program], stdout=file) as process:
            assert damaged._watch(process, file.fileno()) == said
