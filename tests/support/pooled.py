"""Reference for the pooled cost of one centroid set."""


def pooled_cost(points, centroids):
    """Compute the sum of squared distances to the nearest centroid."""
    return ((points[:, None] - centroids) ** 2).sum(axis=2).min(axis=1).sum()
