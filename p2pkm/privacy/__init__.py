"""What is measured of leaks: attacks on gossip and private sums, what pairs of devices can learn, reports of both."""
