"""Decentralized or with a server? The same points, partition and seeds for all, the same way of counting.

Ten devices get points of 16 clusters by distance, so each holds a few clusters only. Methods without a server meet on
four graphs; those with a server run as a star. Look at the bytes of the busiest device: that is where the hub shows.
"""

from pathlib import Path

from p2pkm.cli.main import main

OUT = Path("comparison")

code = main([
    "compare", "--algorithm", "gtvmin,consensus,tracking,fkm:server_n_init=10,feca,local",
    "--graph", "ring,star,small-world:degree=4,complete", "--seeds", "0-1", "--devices", "10",
    "--data", "grid16:points=50", "--partition", "beta:beta=0.1", "--rounds", "10", "--out", str(OUT), "-q",
])  # fmt: skip
assert code == 0
assert (OUT / "figures" / "quality_bytes_busiest.png").exists()
