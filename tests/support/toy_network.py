"""A network without JAX: a linear map of the images, which training draws towards the prototypes of their labels."""

from dataclasses import dataclass

import numpy as np

from p2pkm.deep.method import DeepMethod
from p2pkm.kernels.reference import uniforms

WIDTH = 32


@dataclass(frozen=True)
class Toy:
    """What methods ask of a `Learner`, for images of d numbers."""

    d: int
    width = WIDTH

    @property
    def parameters(self):
        """Return their number."""
        return self.d * WIDTH

    @property
    def flops(self):
        """Return the operations for one image."""
        return 2 * self.parameters

    def init(self, key):
        """Return what all devices begin with."""
        return (uniforms(key, 99, [0], self.parameters)[0] - 0.5).astype(np.float32)

    def embed(self, theta, images):
        """Return the images and their features; each by itself, so that they do not depend on the others."""
        return images, np.stack([image @ theta.reshape(self.d, WIDTH).astype(np.float64) for image in images])

    def train(self, theta, images, labels, prototypes, session):
        """Return parameters and loss after gradient steps on the mean squared distance to the prototypes."""
        table = theta.reshape(self.d, WIDTH).astype(np.float64)
        for _ in range(session.epochs):
            apart = images @ table - prototypes[labels]
            table = table - session.rate * images.T @ apart / len(images)
        return table.astype(np.float32).ravel(), float((apart**2).mean()) if session.epochs else 0.0


def plug(monkeypatch):
    """Let deep methods train it, whatever they are asked for."""
    monkeypatch.setattr(DeepMethod, "learner", lambda self, d: Toy(d))
    monkeypatch.setattr("p2pkm.deep.method.check_jax", lambda: None)
