"""DeepCluster on the pooled images, for comparison with the methods that do not pool them."""

import numpy as np

from p2pkm.core.batch import Floats, Integers, Search, Stream, cluster
from p2pkm.deep.method import DeepMethod
from p2pkm.deep.training import Row, TrainingContext
from p2pkm.kernels import select_kernels
from p2pkm.kernels.reference import philox
from p2pkm.kernels.streams import shared_key

# Initializations of k-means; the best result counts.
_INITIALIZATIONS = 20


def deep_cluster(method: DeepMethod, images: Floats, *, rounds: int, seed: int) -> tuple[Row, Floats, Integers]:
    """Alternate k-means of all features and training on its labels.

    Parameters
    ----------
    method : DeepMethod
        Determines network and training; its server method is not used.
    images : float64[m, d]
    rounds, seed : int

    Returns
    -------
    theta : float32[P]
    centroids : float64[k, D]
        Of the last features; absent rows are +inf.
    labels : int64[rounds + 1, m]
        Labels by each clustering.
    """
    images = np.ascontiguousarray(images, np.float64)
    learner, shared = method.learner(images.shape[1]), shared_key(seed)
    method = method if method.horizon else method.replaced(horizon=max(rounds, 1))
    # The random streams of device 0.
    key = int(philox(0, 0, seed, Stream.KEYS)[0, 0])
    kernels = select_kernels(1, 1, images.size * method.k)
    weights, offsets = np.ones(len(images)), np.array([0, len(images)])
    theta, labels = learner.init(shared), []
    for t in range(1, rounds + 2):
        _, features = learner.embed(theta, images)
        search = Search(method.k, Stream.CENTRAL, starts=_INITIALIZATIONS)
        centroids, _, _ = cluster(kernels, shared, features, weights, search)
        labels.append(kernels.losses(features, weights, offsets, centroids[None])[1])
        if t <= rounds:
            context = TrainingContext(key, t, method.epochs, method.rate_in(t))
            theta, _ = learner.train(theta, images, labels[-1], centroids, context)
    return theta, centroids, np.stack(labels)
