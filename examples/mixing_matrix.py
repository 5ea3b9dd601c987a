"""A mixing matrix of your own for consensus.

Covers
    `topologies.TimeVaryingGraph`, `ConsensusLloyd`, a static graph with given weights.

Scenario
    Eight devices on a ring average their sums with the weights 0.4 for themselves and 0.3 for each neighbor. A
    time-varying graph of period 1 whose links are all active is static, and brings its own weights: at least 0, equal
    at both ends of a link, 0 on inactive links, and at most 1 in sum for each device, which keeps the rest.

Run it as ``python examples/mixing_matrix.py``.
"""

# %% The matrix: symmetric, each row adds up to 1
import numpy as np

import p2pkm
import topologies

graph = topologies.CSRGraph.from_networkx(topologies.ring(8))
weights = np.zeros((8, 8))
for i in range(8):
    weights[i, i], weights[i, (i + 1) % 8], weights[i, i - 1] = 0.4, 0.3, 0.3

# %% The graph: the weight of each neighbor, in the order of the links
source = np.repeat(np.arange(8), np.diff(graph.indptr))
shares = weights[source, graph.indices]
mixed = topologies.TimeVaryingGraph(graph, 1, lambda t: np.ones(len(shares), bool), lambda t: shares)

# %% A run, compared with central k-means
X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 8), labels=y)
result = p2pkm.simulate(p2pkm.ConsensusLloyd(3, gossips=20), mixed, shards)
print(f"cost ratio {result.summary['ratio_mean']:.3f}")
