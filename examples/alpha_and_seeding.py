"""Why initialization decides, not alpha.

Covers
    Seedings, the coupling, quality against central k-means.

Scenario
    Ten devices on a ring hold uneven shares of 16 clusters. From their own k-means++ seeds the penalty pulls together
    centroids that mean different clusters: no strength repairs that. From a common start every strength works.
"""

# %% The same points and the same ring for all
import p2pkm
import topologies

X, y = p2pkm.grid16(points=50, seed=0)
device = p2pkm.partition.dirichlet(y, 10, alpha=0.3, seed=0)
shards = p2pkm.Shards.deal(X, device, devices=10, labels=y)
graph = topologies.ring(10)

# %% Every seeding at every strength: cost over central k-means, mean of the devices
couplings = (0.1, 1.0, 10.0, 100.0)
print(f"{'init':28} " + " ".join(f"c = {coupling:<7g}" for coupling in couplings))
for seeding in ("local", "bounding-box", "leader", "d2-sampling", "flooded-summaries", "global"):
    ratios = [
        p2pkm.simulate(p2pkm.GTVMin(16, coupling=c, init=seeding), graph, shards).summary["ratio_mean"]
        for c in couplings
    ]
    print(f"{seeding:28} " + " ".join(f"{ratio:<11.3f}" for ratio in ratios))

# %% What to see: read down a column, then along a row. The seeding moves the result by factors, the coupling of a good
# start by percents; a weak coupling leaves every device with its own few points, so it pays on all points.
