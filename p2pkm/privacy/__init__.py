"""Measurement of leaks: attacks on gossip and on runs of `private`, pairwise leaks between devices, reports of both."""
