"""Methods by name, with the parameters that some of them require."""

from p2pkm.methods.registry import METHODS as ALL
from p2pkm.methods.registry import find

GIVEN = {  # little noise, on any graph
    "private": {"epsilon": 100.0, "radius": 40.0, "trust": "none", "noise_seed": 0},
    "feddp": {"epsilon": 100.0, "radius": 40.0, "noise_seed": 0},
}
LEARNERS = ("deepfeca", "deepgossip")  # require images and an extra; they are tested separately
METHODS = [name for name in ALL if name not in LEARNERS]


def build(name, k, **options):
    """Build a method with k clusters."""
    return find(name)(k, **{**GIVEN.get(name, {}), **options})


def spell(name):
    """Spell a method as a spec of the command line."""
    options = ",".join(f"{key}={value}" for key, value in GIVEN.get(name, {}).items())
    return f"{name}:{options}" if options else name
