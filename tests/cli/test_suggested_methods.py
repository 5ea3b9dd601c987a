"""A refusal names methods, and each of them runs with the option that the other one was refused for."""

import re

import pytest

from p2pkm.methods.registry import METHODS, find, suggest_methods
from tests.support.run_cli import here
from tests.support.sampling import thin

SMALL = ("--data", "grid16:points=4", "--devices", "8", "--out", "none", "--dry-run")
REFUSED = {
    "stream": ("coreset", ("--stream", "drawn:kind=slow")),
    "links that change": ("treelloyd", ("--graph", "one-peer-exponential")),
    "noise": ("coreset", ("--noise", "0.1")),
    "byzantine": ("coreset", ("--byzantine", "2")),
    "integers": ("treelloyd", ("--quantize", "rice")),
    "small clusters": ("coreset", ("--min-cluster-size", "3")),
    "faults": ("treelloyd", ("--faults", "loss=0.1")),
    "faults of a server": ("mufc", ("--faults", "loss=0.1")),
    "a graph for a server": ("kfed", ("--graph", "ring")),
    "a graph for devices alone": ("local", ("--graph", "ring")),
}


@pytest.mark.parametrize(("method", "words"), thin(REFUSED.values(), 2), ids=REFUSED)
@pytest.mark.sample(3)
def test_every_method_that_a_refusal_names_is_taken(method, words):
    refused = here(*SMALL, *words, "--algorithm", method)
    assert refused.code in (2, 3), refused.err
    listed = re.search(r"use (?:another --graph, or )?--algorithm ([a-z0-9, -]+?) or ([a-z0-9-]+)", refused.err)
    listed = listed or re.search(r"--algorithm ([a-z0-9, -]+?) or ([a-z0-9-]+)", refused.err)
    names = [*listed[1].split(", "), listed[2]]
    assert len(names) > 3 and method not in names and set(names) <= set(METHODS)
    assert {name: found.err for name in names if (found := here(*SMALL, *words, "--algorithm", name)).code} == {}
    others = [name for name in METHODS if name not in {*names, "private", "feddp", "deepfeca", "deepgossip"}]
    assert [name for name in others if here(*SMALL, *words, "--algorithm", name).code == 0] == []


def test_methods_that_need_parameters_or_images_are_not_named():
    every = suggest_methods(lambda method: True)
    assert "private" not in every and "deep" not in every and "gtvmin" in every
    assert not [name for name in METHODS if find(name)(1).traits is None]


def test_one_method_and_none_are_suggested():
    assert suggest_methods(lambda method: method.name == "gtvmin") == "--algorithm gtvmin"
    assert suggest_methods(lambda method: False) == "a method of your own, because none of p2pkm is suitable"


def test_a_method_that_sends_nothing_uses_no_server():
    found = here(*SMALL, "--algorithm", "local", "--graph", "ring")
    assert "method local cannot be combined with graph 'ring': it sends no messages. Remove --graph" in found.err
    error = here(*SMALL, "--algorithm", "kfed", "--graph", "ring").err
    assert "method kfed cannot be combined with graph 'ring': it uses a server" in error
