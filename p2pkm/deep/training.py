"""Training of a network on the labels of one device, and features of its images; parameters are one flat vector.

All results depend on the images and random streams of the device and on the arguments only, so they are bit-identical
for any rank partition, on one machine with the same versions. For this, XLA must use one thread. This module requests
it, too late if JAX has already computed something.
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

# Images that are embedded at a time: a fixed number, so that the function is compiled once.
_BLOCK = 64
_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def require_jax() -> None:
    """Import JAX and request one thread: XLA reads its flags at the first computation, not when JAX is imported.

    Raises
    ------
    ExperimentError
        If JAX is not installed, or this process is a fork of one that has loaded it.
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
            'deep clustering requires JAX, which is not installed. Install it with pip install "p2pkm[deep]"'
        ) from error


def parse_shape(text: str) -> Shape:
    """Parse a shape such as 8x8 or 32x32x3 to (height, width, channels).

    Raises
    ------
    ExperimentError
        If the text is not a shape.
    """
    sides = [read_count(side) or 0 for side in str(text).lower().split("x")]
    if len(sides) not in (2, 3) or 0 in sides:
        raise ExperimentError(
            f"shape is {text!r}; expected height x width, or height x width x channels, for example 28x28"
        )
    height, width, channels = (*sides, 1)[:3]
    return height, width, channels


def find_shape(text: str | None, d: int) -> Shape:
    """Determine the shape of images of d numbers: that of the text, by default a square of one channel.

    Raises
    ------
    DataError
        If points with d features do not have this shape.
    """
    if text is not None:
        shape = parse_shape(text)
        if prod(shape) != d:
            raise DataError(
                f"shape is {text}, which is {prod(shape)} numbers, but every point has {d}; expected images of one "
                "size, row by row. Change shape"
            )
        return shape
    if isqrt(d) ** 2 == d:
        return isqrt(d), isqrt(d), 1
    height = max(side for side in range(1, isqrt(d) + 1) if d % side == 0)
    candidates = [f"{height}x{d // height}"]
    if d % 3 == 0 and isqrt(d // 3) ** 2 == d // 3:
        candidates.append(f"{isqrt(d // 3)}x{isqrt(d // 3)}x3")
    raise DataError(
        f"points of {d} features are not square images of one channel. Set their shape, for example "
        f"shape={' or shape='.join(candidates)}, or use images, such as the data source shapes, or an .npz of "
        "[n, height, width, channels]"
    )


class TrainingContext(NamedTuple):
    """Seed and settings of the training of one device in one round.

    Attributes
    ----------
    key : int
        Key of the device's random streams.
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
    """Network for images of one shape, with its training; every function is compiled once per trainer.

    Parameters
    ----------
    network : str or Network
    shape : (int, int, int)
        Height, width and channels.
    features : int
        Number of features D of a network with a head.
    classifier : {"prototypes", "centered", "linear"}
        Rows for the logits: the prototypes at unit length, their differences to their mean at unit length, or a linear
        layer that is trained with the network and discarded.
    temperature : float
        Divisor of the logits.
    batch : int
        Images per gradient step.
    momentum, decay : float
        Stochastic gradient descent: v <- momentum v + gradient + decay theta; theta <- theta - rate v.
    views : bool
        Whether training uses two random views of every image, or the unchanged image twice.
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
        """Draw the initial parameters, float32[P]; key: that of the stream that all devices share."""
        import jax
        from jax.flatten_util import ravel_pytree

        number = philox(0, 0, key, Stream.NETWORK)[0, 0]
        row, _ = ravel_pytree(self._functions.init(_key(number), self.shape))
        return np.asarray(jax.device_get(row), np.float32)

    def embed(self, theta: Row, images: Floats) -> tuple[Floats, Floats]:
        """Compute the outputs of the network.

        Parameters
        ----------
        theta : float32[P]
        images : float64[m, d]

        Returns
        -------
        body : float64[m, b]
            Output of the network without its head, for a linear probe.
        features : float64[m, D]
            Features that are clustered.
        """
        _, width, _ = self._layout
        m, parts = len(images), []
        for first in range(0, m, _BLOCK):
            block = np.zeros((_BLOCK, *self.shape), np.float32)
            filled = images[first : first + _BLOCK]
            block[: len(filled)] = filled.reshape(-1, *self.shape)
            parts.append([np.asarray(part, np.float64)[: len(filled)] for part in self._embed(theta, block)])
        if not parts:
            return np.zeros((0, width[0])), np.zeros((0, width[1]))
        body, output = (np.concatenate(side) for side in zip(*parts, strict=True))
        return body, output

    @property
    def parameters(self) -> int:
        """Number P of parameters."""
        return self._layout[0]

    @property
    def width(self) -> int:
        """Number D of features."""
        return self._layout[1][1]

    @cached_property
    def flops(self) -> int:
        """Operations for the features of one image, as counted by XLA."""
        import jax

        images = jax.ShapeDtypeStruct((1, *self.shape), np.float32)
        row = jax.ShapeDtypeStruct((self.parameters,), np.float32)
        return int(jax.jit(self._apply).lower(row, images).cost_analysis()["flops"])

    def train(
        self, theta: Row, images: Floats, labels: Integers, prototypes: Floats, context: TrainingContext
    ) -> tuple[Row, float]:
        """Train the network on labels; the parameters do not change without images.

        Parameters
        ----------
        theta : float32[P]
        images : float64[m, d]
        labels : int64[m]
            Number of the prototype of each image.
        prototypes : float64[k, D]
            Absent rows are +inf and are left out of the logits. A linear classifier uses only their number.
        context : TrainingContext

        Returns
        -------
        theta : float32[P]
        loss : float
            Mean loss of the last epoch.
        """
        m, loss = len(images), 0.0
        if m == 0 or context.epochs == 0 or context.rate == 0.0:
            return theta, loss
        pixels = images.reshape(m, *self.shape).astype(np.float32)
        present = prototypes[:, 0] < np.inf
        rows = np.where(present[:, None], prototypes, 0.0)
        if self.classifier == "centered" and present.sum() > 1:
            rows = np.where(present[:, None], rows - rows.sum(axis=0) / present.sum(), 0.0)
        # A cumulative sum adds in a fixed order, unlike `sum`.
        norms = np.sqrt(np.cumsum(rows * rows, axis=1)[:, -1:])
        rows = (rows / np.where(norms > 0.0, norms, 1.0)).astype(np.float32)
        state = self._start(theta, rows, context)
        for epoch in range(context.epochs):
            number, batch_costs = context.round * context.epochs + epoch, []
            order = np.argsort(uniforms(context.key, Stream.SHUFFLE, [number], m)[0], kind="stable")
            key = _split_halves(philox(number, 0, context.key, Stream.VIEW)[0, 0])
            for first in range(0, m, self.batch):
                # The last batch is padded with image 0, which the mask excludes: the step is compiled for one shape.
                chosen = np.zeros(self.batch, np.int64)
                in_batch = order[first : first + self.batch]
                chosen[: len(in_batch)] = in_batch
                mask = (np.arange(self.batch) < len(in_batch)).astype(np.float32)
                *state, cost = self._step(
                    *state, np.float32(context.rate), pixels[chosen], chosen, key, labels[chosen], mask, rows, present
                )
                batch_costs.append(cost * len(in_batch))
            loss = float(np.sum([float(cost) for cost in batch_costs])) / m
        return np.asarray(state[0], np.float32)[: len(theta)], loss

    def _start(self, theta: Row, rows: Row, context: TrainingContext) -> list[Any]:
        """Return the trained vector and its velocity: the parameters, followed by those of a linear classifier."""
        if self.classifier == "linear":
            drawn = uniforms(context.key, Stream.HEAD, [context.round], rows.size)[0]
            weights = (2.0 * drawn - 1.0) / np.sqrt(rows.shape[1])
            theta = np.concatenate((theta, weights.astype(np.float32), np.zeros(len(rows), np.float32)))
        return [theta, np.zeros_like(theta)]

    @cached_property
    def _functions(self) -> Network:
        return find_network(self.network, self.features)

    @cached_property
    def _layout(self) -> tuple[int, Any, Any]:
        """Number of parameters, widths of body and features, and the function from a vector to parameters."""
        import jax
        from jax.flatten_util import ravel_pytree

        params = self._functions.init(_key(np.uint64(0)), self.shape)
        row, unravel = ravel_pytree(params)
        images = jax.ShapeDtypeStruct((_BLOCK, *self.shape), row.dtype)
        outputs = jax.eval_shape(self._functions.apply, params, images)
        shapes = [leaf.shape for leaf in jax.tree.leaves(outputs)]
        is_pair = isinstance(outputs, (tuple, list)) and len(outputs) == 2
        if not is_pair or [shape[:-1] for shape in shapes] != [(_BLOCK,)] * 2:
            raise ExperimentError(
                f"for {_BLOCK} images the network returns a {type(outputs).__name__} with arrays of shapes {shapes}; "
                f"expected a pair: the body's output [{_BLOCK}, b] and the features [{_BLOCK}, D]"
            )
        return len(row), (shapes[0][1], shapes[1][1]), unravel

    @cached_property
    def _embed(self) -> Any:
        import jax

        return jax.jit(self._apply)

    def _apply(self, row: Any, images: Any) -> Any:
        return self._functions.apply(self._layout[2](row), images)

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
        """Compute the mean cross entropy over both views of the images with mask 1.

        Parameters
        ----------
        row : float[P], or with a linear classifier float[P + k D + k]
        views : float[2, b, height, width, channels]
        labels : int[b]
        mask : float[b]
            1 for an image, 0 for padding of the batch.
        rows : float[k, D]
            Prototypes of unit length.
        present : bool[k]
        """
        import jax
        import jax.numpy as jnp

        count, _, unravel = self._layout
        output = self._functions.apply(unravel(row[:count]), views.reshape(-1, *self.shape))[1]
        if self.classifier == "linear":
            weights, bias = row[count : count + rows.size].reshape(rows.shape), row[count + rows.size :]
            logits = output @ weights.T / self.temperature + bias
        else:
            logits = output @ rows.T / self.temperature
        logits = jnp.where(present, logits, -jnp.inf)
        chosen = jnp.take_along_axis(logits, jnp.tile(labels, 2)[:, None], axis=1)[:, 0]
        costs = jax.nn.logsumexp(logits, axis=1) - chosen
        weight = jnp.tile(mask, 2)
        # Not a product alone: an infinite cost of padding times 0 would be NaN.
        return jnp.where(weight > 0, costs * weight, 0.0).sum() / weight.sum()


def make_views(images: Any, numbers: Any, key: Any) -> Any:
    """Draw two random views of every image.

    A view is shifted by up to one eighth of the side, rotated by up to 15 degrees and scaled by 0.8 to 1.2. Contrast
    and brightness change by up to 20 %, and normal noise of standard deviation 0.05 is added. Pixels should be in
    [0, 1].
    Views are not mirrored, which would change the meaning of digits and letters. Pixels from outside the image are
    copies of the nearest pixel of the edge.

    Parameters
    ----------
    images : float32[b, height, width, channels]
    numbers : int[b]
        Numbers of the images on their device: a view depends on the key, the number of the image, and 0 or 1.
    key : uint32[2]
        Key of device, round and epoch.

    Returns
    -------
    float32[2, b, height, width, channels]
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
    # Bilinear interpolation between four pixels.
    top, left = (jnp.floor(place).astype(jnp.int32) for place in places)
    bottom, right_column = jnp.minimum(top + 1, height - 1), jnp.minimum(left + 1, width - 1)
    v, h = ((place - jnp.floor(place))[:, :, None] for place in places)
    moved = (
        (1 - v) * ((1 - h) * image[top, left] + h * image[top, right_column])
        + v * ((1 - h) * image[bottom, left] + h * image[bottom, right_column])
    )  # fmt: skip
    mean = moved.mean()
    lit = (moved - mean) * (1.0 + 0.2 * contrast) + mean * (1.0 + 0.2 * light)
    return lit + 0.05 * jax.random.normal(noise, lit.shape)


def _split_halves(number: Any) -> NDArray[np.uint32]:
    """Split a 64-bit number into its two halves, uint32[2]."""
    return np.array([int(number) >> 32, int(number) & 0xFFFFFFFF], np.uint32)


def _key(number: Any) -> Any:
    """Convert a 64-bit number to a JAX key."""
    import jax

    return jax.random.wrap_key_data(jax.numpy.asarray(_split_halves(number)), impl="threefry2x32")


@lru_cache(maxsize=16)
def share_trainer(trainer: Trainer) -> Trainer:
    """Return the first trainer that is equal to this one, so that its compiled functions are used again."""
    return trainer
