"""A message carries what it says: what a device knows, it knows from its inbox, in one process as on ranks."""

from functools import cache
from pathlib import Path

import pytest

from p2pkm.methods.init.registry import INITS
from tests.contract.test_determinism import start
from tests.support.methods import METHODS
from tests.support.programs import perturbed
from tests.support.sampling import thin

SIZE = 0.05
SILENT = ("local",)


@cache
def in_process(size):
    return {record["name"]: record for record in perturbed.runs(size)}


def test_every_method_and_initialization_is_tried():
    names = [name for name, *_ in perturbed.configurations()]
    assert set(METHODS) <= set(names)
    assert {name.partition(":")[0] for name in names} >= {f"init {name}" for name in INITS}
    assert len(names) == len(set(names))


@pytest.mark.slow
@pytest.mark.parametrize("name", thin([name for name, *_ in perturbed.configurations()], 2))
def test_what_is_changed_on_its_way_changes_the_run(name):
    calm, changed = in_process(0.0)[name], in_process(SIZE)[name]
    assert (calm["chain_sha256"] == changed["chain_sha256"]) == (name in SILENT)


@pytest.mark.mpi
def test_messages_changed_on_their_way_give_the_same_bits_on_one_rank_and_on_three():
    found = start(3, str(SIZE), Path(perturbed.__file__), limit=600)
    expected = list(in_process(SIZE).values())
    assert [line["name"] for line in found] == [line["name"] for line in expected]
    assert [(one, other) for one, other in zip(found, expected, strict=True) if one != other] == []
