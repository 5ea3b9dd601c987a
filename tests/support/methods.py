"""Methods by name, with what some of them must be given."""

from p2pkm.methods.registry import METHODS as ALL
from p2pkm.methods.registry import find

GIVEN = {"private": {"epsilon": 100.0, "radius": 40.0, "trust": "none", "noise_seed": 0}}  # little noise, on any graph
LEARNERS = ("deepfeca", "deepgossip")  # need images, and an extra: they have tests of their own
METHODS = [name for name in ALL if name not in LEARNERS]


def build(name, k, **options):
    """Return a method with so many clusters."""
    return find(name)(k, **{**GIVEN.get(name, {}), **options})


def spell(name):
    """Return the same for the command line."""
    options = ",".join(f"{key}={value}" for key, value in GIVEN.get(name, {}).items())
    return f"{name}:{options}" if options else name
