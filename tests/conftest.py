"""Properties have no time limit: the first example of a file reads compiled kernels."""

from hypothesis import settings

settings.register_profile("p2pkm", deadline=None)
settings.load_profile("p2pkm")
