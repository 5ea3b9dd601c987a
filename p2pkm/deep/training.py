"""Features of images and the training of a network on labels, on one device at a time; parameters are one flat row.

All that a device computes depends on its own images, its own random streams and what it is given, so neither the
other devices nor the ranks that they are on change a bit of it. The bits are those of one machine with the same
versions: XLA works on one thread, for which this module asks; too late only where JAX has already computed something.
"""

import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isqrt, prod
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Floats, Integers, Stream
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.fork import is_inherited
from p2pkm.core.spec import read_count
from p2pkm.deep.networks import Network, Shape, find_network
from p2pkm.kernels.reference import philox, uniforms

Row = NDArray[np.float32]
"""Parameters, float32[P]."""

_PIECE = 64  # images that are looked at together
_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def require_jax() -> None:
    """Import JAX, on one thread: XLA reads its flags when it first computes, not when JAX is imported.

    Raises
    ------
    ExperimentError
        If it is not installed, or if this process is a fork of one that has loaded it.
    """
    if is_inherited("jax"):
        raise ExperimentError(
            "this process is a fork of one that has loaded JAX, whose threads do not survive a fork; expected a new "
            "process. Use multiprocessing.get_context('spawn')"
        )
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_ONE_THREAD}".strip()
    try:
        import jax  # noqa: F401
    except ImportError as error:
        raise ExperimentError(
            'deep clustering needs JAX, which is not installed; install it with pip install "p2pkm[deep]"'
        ) from error


def parse_shape(text: str) -> Shape:
    """Return (height, width, channels) of a text such as 8x8 or 32x32x3.

    Raises
    ------
    ExperimentError
        If it is none.
    """
    sides = [read_count(side) or 0 for side in str(text).lower().split("x")]
    if len(sides) not in (2, 3) or 0 in sides:
        raise ExperimentError(
            f"shape is {text!r}; expected height x width, or height x width x channels, such as 28x28"
        )
    height, width, channels = (*sides, 1)[:3]
    return height, width, channels


def find_shape(text: str | None, d: int) -> Shape:
    """Return the shape of images of d numbers each: the given one, else a square of one channel.

    Raises
    ------
    DataError
        If points of d features are no such images.
    """
    if text is not None:
        shape = parse_shape(text)
        if prod(shape) != d:
            raise DataError(
                f"shape is {text}, which is {prod(shape)} numbers, but every point has {d}; give images of one size, "
                "one after another row by row"
            )
        return shape
    if isqrt(d) ** 2 == d:
        return isqrt(d), isqrt(d), 1
    height = max(side for side in range(1, isqrt(d) + 1) if d % side == 0)
    found = [f"{height}x{d // height}"]
    if d % 3 == 0 and isqrt(d // 3) ** 2 == d // 3:
        found.append(f"{isqrt(d // 3)}x{isqrt(d // 3)}x3")
    raise DataError(
        f"points of {d} features are no square images of one channel, and nothing says what else they are; give their "
        f"shape, such as shape={' or shape='.join(found)}, or an .npz of images [n, height, width, channels]"
    )


class Session(NamedTuple):
    """What the training of one device in one round depends on beside parameters, images and labels.

    Attributes
    ----------
    key : int
        Of the device's random streams.
    round, epochs : int
    rate : float
        Learning rate.
    """

    key: int
    round: int
    epochs: int
    rate: float


@dataclass(frozen=True)
class Trainer:
    """A network for images of one shape, and how it is trained; every function is compiled once per learner.

    Parameters
    ----------
    network : str or Network
    shape : (int, int, int)
        Height, width and channels.
    features : int
        D, of a network with a head.
    classifier : {"prototypes", "centered", "linear"}
        Logits from given rows at unit length, from their differences to their mean at unit length, or from a linear
        layer that is trained along and thrown away.
    temperature : float
        What logits are divided by.
    batch : int
    momentum, decay : float
        Of stochastic gradient descent: v <- momentum v + gradient + decay theta; theta <- theta - rate v.
    views : bool
        Whether every image is seen as two random views instead of twice as it is.
    """

    network: str | Network
    shape: Shape
    features: int = 32
    classifier: Literal["prototypes", "centered", "linear"] = "prototypes"
    temperature: float = 0.1
    batch: int = 32
    momentum: float = 0.9
    decay: float = 1e-6
    views: bool = True

    def init(self, key: int) -> Row:
        """Return the first parameters, float32[P]; key: of the stream that all devices share."""
        import jax
        from jax.flatten_util import ravel_pytree

        word = philox(0, 0, key, Stream.NETWORK)[0, 0]
        row, _ = ravel_pytree(self._pair.init(_key(word), self.shape))
        return np.asarray(jax.device_get(row), np.float32)

    def embed(self, theta: Row, images: Floats) -> tuple[Floats, Floats]:
        """Return the body's output, float64[m, b], and what is clustered, float64[m, D], of images, float64[m, d]."""
        _, width, _ = self._layout
        m, parts = len(images), []
        for first in range(0, m, _PIECE):
            piece = np.zeros((_PIECE, *self.shape), np.float32)
            own = images[first : first + _PIECE]
            piece[: len(own)] = own.reshape(-1, *self.shape)
            parts.append([np.asarray(part, np.float64)[: len(own)] for part in self._embed(theta, piece)])
        if not parts:
            return np.zeros((0, width[0])), np.zeros((0, width[1]))
        body, output = (np.concatenate(side) for side in zip(*parts, strict=True))
        return body, output

    @property
    def parameters(self) -> int:
        """Return P."""
        return self._layout[0]

    @property
    def width(self) -> int:
        """Return D."""
        return self._layout[1][1]

    @cached_property
    def flops(self) -> int:
        """Return the operations that the features of one image take, as XLA counts them."""
        import jax

        images = jax.ShapeDtypeStruct((1, *self.shape), np.float32)
        row = jax.ShapeDtypeStruct((self.parameters,), np.float32)
        return int(jax.jit(self._pair_apply).lower(row, images).cost_analysis()["flops"])

    def train(
        self, theta: Row, images: Floats, labels: Integers, prototypes: Floats, session: Session
    ) -> tuple[Row, float]:
        """Return the parameters after some epochs, and the mean loss of the last one; nothing changes without images.

        Parameters
        ----------
        theta : float32[P]
        images : float64[m, d]
        labels : int64[m]
            Row of each image.
        prototypes : float64[k, D]
            Absent rows are +inf and get no logit; with a linear classifier they only say how many labels there are.
        """
        m, loss = len(images), 0.0
        if m == 0 or session.epochs == 0 or session.rate == 0.0:
            return theta, loss
        held = images.reshape(m, *self.shape).astype(np.float32)
        present = prototypes[:, 0] < np.inf
        rows = np.where(present[:, None], prototypes, 0.0)
        if self.classifier == "centered" and present.sum() > 1:
            rows = np.where(present[:, None], rows - rows.sum(axis=0) / present.sum(), 0.0)
        norms = np.sqrt(np.cumsum(rows * rows, axis=1)[:, -1:])
        rows = (rows / np.where(norms > 0.0, norms, 1.0)).astype(np.float32)
        state = self._start(theta, rows, session)
        for epoch in range(session.epochs):
            number, total = session.round * session.epochs + epoch, []
            order = np.argsort(uniforms(session.key, Stream.SHUFFLE, [number], m)[0], kind="stable")
            key = _words(philox(number, 0, session.key, Stream.VIEW)[0, 0])
            for first in range(0, m, self.batch):
                chosen = np.zeros(self.batch, np.int64)
                real = order[first : first + self.batch]
                chosen[: len(real)] = real
                mask = (np.arange(self.batch) < len(real)).astype(np.float32)
                *state, cost = self._step(
                    *state, np.float32(session.rate), held[chosen], chosen, key, labels[chosen], mask, rows, present
                )
                total.append(cost * len(real))
            loss = float(np.sum([float(cost) for cost in total])) / m
        return np.asarray(state[0], np.float32)[: len(theta)], loss

    def _start(self, theta: Row, rows: Row, session: Session) -> list[Any]:
        """Return what is trained, in one row, and its velocity: the parameters, and a linear classifier behind them."""
        if self.classifier == "linear":
            drawn = uniforms(session.key, Stream.HEAD, [session.round], rows.size)[0]
            weights = (2.0 * drawn - 1.0) / np.sqrt(rows.shape[1])
            theta = np.concatenate((theta, weights.astype(np.float32), np.zeros(len(rows), np.float32)))
        return [theta, np.zeros_like(theta)]

    @cached_property
    def _pair(self) -> Network:
        return find_network(self.network, self.features)

    @cached_property
    def _layout(self) -> tuple[int, Any, Any]:
        """Return P, the widths of body and output, and what turns a row into the parameters."""
        import jax
        from jax.flatten_util import ravel_pytree

        params = self._pair.init(_key(np.uint64(0)), self.shape)
        row, unravel = ravel_pytree(params)
        images = jax.ShapeDtypeStruct((_PIECE, *self.shape), row.dtype)
        found = jax.eval_shape(self._pair.apply, params, images)
        shapes = [leaf.shape for leaf in jax.tree.leaves(found)]
        pair = isinstance(found, (tuple, list)) and len(found) == 2
        if not pair or [shape[:-1] for shape in shapes] != [(_PIECE,)] * 2:
            raise ExperimentError(
                f"for {_PIECE} images the network returns a {type(found).__name__} with arrays of shapes {shapes}; "
                f"expected a pair: the body's output [{_PIECE}, b] and what is clustered [{_PIECE}, D]"
            )
        return len(row), (shapes[0][1], shapes[1][1]), unravel

    @cached_property
    def _embed(self) -> Any:
        import jax

        return jax.jit(self._pair_apply)

    def _pair_apply(self, row: Any, images: Any) -> Any:
        return self._pair.apply(self._layout[2](row), images)

    @cached_property
    def _step(self) -> Any:
        import jax

        def step(row: Any, velocity: Any, rate: Any, images: Any, numbers: Any, key: Any, *rest: Any) -> Any:
            views = make_views(images, numbers, key) if self.views else jax.numpy.stack((images, images))
            cost, gradient = jax.value_and_grad(self.loss)(row, views, *rest)
            velocity = self.momentum * velocity + gradient + self.decay * row
            return row - rate * velocity, velocity, cost

        return jax.jit(step)

    def loss(self, row: Any, views: Any, labels: Any, mask: Any, rows: Any, present: Any) -> Any:
        """Return the mean cross entropy over both views of the images that count.

        Parameters
        ----------
        row : float[P], or with a linear classifier float[P + k D + k]
        views : float[2, b, height, width, channels]
        labels : int[b]
        mask : float[b]
            1 for an image that counts, 0 for one that fills up the batch.
        rows : float[k, D]
            Prototypes of unit length.
        present : bool[k]
        """
        import jax
        import jax.numpy as jnp

        count, _, unravel = self._layout
        both = views.reshape(-1, *self.shape)
        output = self._pair.apply(unravel(row[:count]), both)[1]
        if self.classifier == "linear":
            weights, bias = row[count : count + rows.size].reshape(rows.shape), row[count + rows.size :]
            logits = output @ weights.T / self.temperature + bias
        else:
            logits = output @ rows.T / self.temperature
        logits = jnp.where(present, logits, -jnp.inf)
        chosen = jnp.take_along_axis(logits, jnp.tile(labels, 2)[:, None], axis=1)[:, 0]
        costs = jax.nn.logsumexp(logits, axis=1) - chosen
        weight = jnp.tile(mask, 2)
        return jnp.where(weight > 0, costs * weight, 0.0).sum() / weight.sum()


def make_views(images: Any, numbers: Any, key: Any) -> Any:
    """Return two random views of every image, float32[2, b, height, width, channels].

    A view is shifted by up to an eighth of the side, turned by up to 15 degrees, scaled by .8 to 1.2, and its contrast
    and brightness change by up to 20 percent, with normal noise of standard deviation .05; pixels are expected in
    [0, 1]. Nothing is mirrored: digits and letters would change their meaning. What comes in from beyond the edge is
    the nearest pixel of it.

    Parameters
    ----------
    images : float32[b, height, width, channels]
    numbers : int[b]
        Numbers of the images on their device: a view depends on the key, the number of its image and its own.
    key : uint32[2]
        Of the device, round and epoch.
    """
    import jax
    import jax.numpy as jnp

    base = jax.random.wrap_key_data(jnp.asarray(key, jnp.uint32), impl="threefry2x32")
    return jnp.stack([
        jax.vmap(lambda image, number, view=view: augment(image, jax.random.fold_in(base, 2 * number + view)))(
            images, numbers
        )
        for view in (0, 1)
    ])  # fmt: skip


def augment(image: Any, key: Any) -> Any:
    """Draw a random view of an image [height, width, channels]."""
    import jax
    import jax.numpy as jnp

    height, width, _ = image.shape
    draws, noise = jax.random.split(key)
    down, right, turn, zoom, light, contrast = jax.random.uniform(draws, (6,), minval=-1.0, maxval=1.0)
    angle, scale = turn * (jnp.pi / 12), 1.0 + 0.2 * zoom
    y = jnp.arange(height)[:, None] - (height - 1) / 2 - down * height / 8
    x = jnp.arange(width)[None] - (width - 1) / 2 - right * width / 8
    from_y = (jnp.cos(angle) * y - jnp.sin(angle) * x) / scale + (height - 1) / 2
    from_x = (jnp.sin(angle) * y + jnp.cos(angle) * x) / scale + (width - 1) / 2
    places = jnp.clip(from_y, 0.0, height - 1.0), jnp.clip(from_x, 0.0, width - 1.0)
    top, left = (jnp.floor(place).astype(jnp.int32) for place in places)
    below, beside = jnp.minimum(top + 1, height - 1), jnp.minimum(left + 1, width - 1)
    v, h = ((place - jnp.floor(place))[:, :, None] for place in places)
    moved = (
        (1 - v) * ((1 - h) * image[top, left] + h * image[top, beside])
        + v * ((1 - h) * image[below, left] + h * image[below, beside])
    )  # fmt: skip
    mean = moved.mean()
    lit = (moved - mean) * (1.0 + 0.2 * contrast) + mean * (1.0 + 0.2 * light)
    return lit + 0.05 * jax.random.normal(noise, lit.shape)


def _words(word: Any) -> NDArray[np.uint32]:
    """Return the two halves of a 64-bit number."""
    return np.array([int(word) >> 32, int(word) & 0xFFFFFFFF], np.uint32)


def _key(word: Any) -> Any:
    import jax

    return jax.random.wrap_key_data(jax.numpy.asarray(_words(word)), impl="threefry2x32")


@lru_cache(maxsize=16)
def make_learner(learner: Trainer) -> Trainer:
    """Return the learner that is equal to this one and was made first: what it has compiled is used again."""
    return learner
