"""Methods with a server, run as a star on the same message layer."""
