"""Sixteen devices on a ring find sixteen clusters, and no device holds all points.

Covers
    Generating points, dealing them unevenly, choosing a graph, running GTVMin, reading the result.

Scenario
    Each device has points of some of the clusters only. It sends centroids and counts to two neighbors.

Run it as ``python examples/ring_of_sixteen.py`` or ``mpirun -n 16 python examples/ring_of_sixteen.py``: the results are
bit-identical. It writes ring_of_sixteen.png.
"""

# %% Points: 16 Gaussian clusters on a 4 x 4 grid, assigned such that a device has few of them
import p2pkm
import topologies

X, y = p2pkm.grid16(points=50, sd=1.0, seed=0)
device = p2pkm.partition.dirichlet(y, 16, alpha=0.3, by="class", seed=0)
shards = p2pkm.Shards.deal(X, device, devices=16, labels=y)

# %% The graph is any networkx graph; here device i is linked with i - 1 and i + 1
graph = topologies.ring(16)

# %% Run: summaries are sent along a tree, the best of five candidate clusterings is chosen, and GTVMin refines it
result = p2pkm.simulate(p2pkm.GTVMin(16), graph, shards, rounds=100, seed=0)
alone = p2pkm.simulate(p2pkm.LocalOnly(16), None, shards, seed=0)

# %% What to see: nearly the quality of central k-means, far from what the devices reach alone
from p2pkm.network.world import connect  # noqa: E402

if connect().rank == 0:
    import matplotlib.pyplot as plt  # only here: the other ranks draw nothing

    summary = result.summary
    print(f"points per device        {shards.sizes.min()} to {shards.sizes.max()}")
    print(f"cost / central k-means   {summary['ratio_mean']:.4f} (worst device {summary['ratio_worst']:.4f})")
    print(f"local-only baseline      {summary['ratio_local_only']:.2f}")
    print(f"sent                     {summary['messages']} messages, {summary['bytes'] / 1000:.0f} kB")
    print(f"ended                    {summary['termination']} after {summary['rounds']} rounds")
    print(f"descent                  {summary['descent']}")
    figure, panels = plt.subplots(1, 2, figsize=(10, 5.6), sharex=True, sharey=True, layout="constrained")
    runs = {"each device alone": alone, "with messages to two neighbors": result}
    for axes, (title, run) in zip(panels, runs.items(), strict=True):
        axes.scatter(*X.T, c=y, s=4, cmap="tab20", alpha=0.5)
        axes.scatter(*run.centroids.reshape(-1, 2).T, c="black", s=18, marker="x", linewidths=0.8)
        axes.set_title(f"{title}:\n{run.summary['ratio_mean']:.4g} times the cost of central k-means")
        axes.set_aspect("equal")
    figure.savefig("ring_of_sixteen.png", dpi=100)
