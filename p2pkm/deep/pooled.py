"""DeepCluster with all images in one place: what the methods without a common place for them are measured against."""

import numpy as np

from p2pkm.core.batch import Floats, Integers, Search, Stream, cluster
from p2pkm.deep.method import DeepMethod
from p2pkm.deep.training import Row, Session
from p2pkm.kernels import select_kernels
from p2pkm.kernels.reference import philox
from p2pkm.kernels.streams import shared_key

_STARTS = 20


def deep_cluster(method: DeepMethod, images: Floats, *, rounds: int, seed: int) -> tuple[Row, Floats, Integers]:
    """Alternate k-means of all features, the best of 20 starts, and training on its labels.

    Parameters
    ----------
    method : DeepMethod
        Whose network and training are used; its server is not.
    images : float64[m, d]

    Returns
    -------
    theta : float32[P]
    centroids : float64[k, D]
        Of the last features; absent rows are +inf.
    labels : int64[rounds + 1, m]
        By every clustering.
    """
    images = np.ascontiguousarray(images, np.float64)
    learner, shared = method.learner(images.shape[1]), shared_key(seed)
    method = method if method.horizon else method.replaced(horizon=max(rounds, 1))
    own = int(philox(0, 0, seed, Stream.KEYS)[0, 0])  # of device 0
    kernels = select_kernels(1, 1, images.size * method.k)
    ones, offsets = np.ones(len(images)), np.array([0, len(images)])
    theta, found = learner.init(shared), []
    for t in range(1, rounds + 2):
        _, features = learner.embed(theta, images)
        centroids, _, _ = cluster(kernels, shared, features, ones, Search(method.k, Stream.CENTRAL, starts=_STARTS))
        found.append(kernels.losses(features, ones, offsets, centroids[None])[1])
        if t <= rounds:
            session = Session(own, t, method.epochs, method.rate_in(t))
            theta, _ = learner.train(theta, images, found[-1], centroids, session)
    return theta, centroids, np.stack(found)
