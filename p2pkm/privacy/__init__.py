"""Measurement of leaks: attacks on gossip and private sums, pairwise leaks between devices, reports of both."""
