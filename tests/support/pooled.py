"""The cost of all points by one set of centroids, written plainly."""


def pooled_cost(points, centroids):
    """Return the sum of the squared distances to the nearest centroid."""
    return ((points[:, None] - centroids) ** 2).sum(axis=2).min(axis=1).sum()
