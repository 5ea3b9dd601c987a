"""Sixteen devices on a ring find sixteen clusters, and nobody holds all points.

Covers
    Generating points, dealing them unevenly, choosing a graph, running GTVMin, reading the result.

Scenario
    Each device saw only some of the clusters. It talks to two neighbors, sends centroids and counts, never points.

Run it as ``python examples/ring_of_sixteen.py`` or ``mpirun -n 16 python examples/ring_of_sixteen.py``: the figures are
the same to the last bit.
"""

# %% Points: 16 Gaussian clusters on a 4 x 4 grid, dealt so that a device sees few of them
import p2pkm
import topologies

X, y = p2pkm.grid16(points=50, sd=1.0, seed=0)
device = p2pkm.partition.dirichlet(y, 16, alpha=0.3, by="class", seed=0)
shards = p2pkm.Shards.deal(X, device, devices=16, labels=y)

# %% The graph is any networkx graph; here device i talks to i - 1 and i + 1
graph = topologies.ring(16)

# %% Run: summaries travel round the ring, the best of five candidate clusterings is chosen, GTVMin refines it
result = p2pkm.simulate(p2pkm.GTVMin(16), graph, shards, rounds=100, seed=0)

# %% What to see: nearly the quality of central k-means, far from what the devices reach alone
from p2pkm.network.world import connect  # noqa: E402

if connect().rank == 0:
    summary = result.summary
    print(f"points per device        {shards.sizes.min()} to {shards.sizes.max()}")
    print(f"cost / central k-means   {summary['ratio_mean']:.4f} (worst device {summary['ratio_worst']:.4f})")
    print(f"local-only baseline      {summary['ratio_local_only']:.2f}")
    print(f"sent                     {summary['messages']} messages, {summary['bytes'] / 1000:.0f} kB")
    print(f"ended                    {summary['termination']} after {summary['rounds']} rounds")
    print(f"descent                  {summary['descent']}")
    for record in result.rounds[-summary["rounds"] - 1 :]:
        print(f"  round {record['round']:2}: objective {record['objective']:9.3f}, ratio {record['ratio_mean']:.4f}")
