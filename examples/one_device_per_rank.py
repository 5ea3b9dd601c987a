"""One device per MPI rank, with the same bits as in one process.

Covers
    ``mpirun``, devices and ranks, fingerprints.

Scenario
    ``mpirun -n 16 python examples/one_device_per_rank.py`` gives every rank one device, with only its own points. With
    another number of ranks, or without mpirun, each rank hosts several devices. The fingerprint does not change.
"""

# %% Every rank runs this script; the points come from a seed, so all ranks know the whole and keep their part
import p2pkm
import topologies
from p2pkm.network.world import connect

X, y = p2pkm.grid16(points=50, seed=0)
device = p2pkm.partition.dirichlet(y, 16, alpha=0.3, seed=0)
shards = p2pkm.Shards.deal(X, device, devices=16, labels=y)

# %% `simulate` finds the ranks by itself and returns the same result on all of them
result = p2pkm.simulate(p2pkm.GTVMin(16), topologies.small_world(16, degree=4, seed=0), shards)

# %% What to see: run it on 1, 4 and 16 ranks and compare the last line
if connect().rank == 0:
    summary = result.summary
    print(f"{summary['devices']} devices on {summary['ranks']} rank(s), {summary['messages']} messages between devices")
    print(f"cost / central k-means {summary['ratio_mean']:.4f}")
    print(f"fingerprint {summary['chain_sha256'][:16]}")
