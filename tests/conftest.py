"""Properties have no time limit: the first example of a file reads compiled kernels. Ctrl-C works in all children."""

import signal

from hypothesis import settings

settings.register_profile("p2pkm", deadline=None)
settings.load_profile("p2pkm")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
