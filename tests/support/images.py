"""Small images for tests of deep clustering."""

import numpy as np
from sklearn.datasets import load_digits

import p2pkm


def digits(m=300):
    """Return the first m digits, float64[m, 64] in [0, 1], and their classes."""
    points, classes = load_digits(return_X_y=True)
    return points[:m] / 16.0, classes[:m]


def deal(sizes, seed=0):
    """Assign digits to devices with these numbers of images."""
    points, classes = digits(sum(sizes))
    order = np.random.default_rng(seed).permutation(len(points))
    return p2pkm.Shards.deal(
        points[order], np.repeat(np.arange(len(sizes)), sizes), devices=len(sizes), labels=classes[order]
    )
