"""Networks that learn features: each is a pair of plain functions on a tree of float32 arrays.

``init(key, shape)`` returns the parameters for images of a shape (height, width, channels). ``apply(params, images)``
with images float32[n, height, width, channels] returns the output of the body, float32[n, b], for a linear probe, and
the features that are clustered, float32[n, D]. Any other pair of such functions can be used as well, see `Network`.
Layers have group norm instead of batch norm: without statistics of batches, averaging the parameters of devices is
sufficient.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import suggest

Shape = tuple[int, int, int]

NAMES = ("linear", "mlp", "conv", "resnet18")
# Units of the hidden layer of the head.
_HIDDEN = 64
# Groups of channels in a group norm.
_GROUPS = 8
# Added to the variance in a group norm, so that constant channels do not divide by 0.
_EPSILON = 1e-5


class Network(NamedTuple):
    """Custom network.

    Attributes
    ----------
    init : callable
        ``init(key, shape)`` with a JAX key and (height, width, channels) returns the parameters, a tree of float32
        arrays.
    apply : callable
        ``apply(params, images)`` returns the output of the body, float32[n, b], and the features, float32[n, D].
    """

    init: Callable[[Any, Shape], Any]
    apply: Callable[[Any, Any], tuple[Any, Any]]


def check_network(network: Any) -> None:
    """Validate that a value is the name of a network or a pair of functions.

    Raises
    ------
    ExperimentError
        If it is neither.
    """
    if isinstance(network, str):
        if network not in NAMES:
            raise ExperimentError(f"network is {network!r}. {suggest(network, NAMES)}")
    elif not (isinstance(network, tuple) and len(network) == 2 and all(map(callable, network))):
        raise ExperimentError(
            f"network is {network!r}; expected one of {', '.join(NAMES)}, or a pair of functions init(key, shape) and "
            "apply(params, images)"
        )


def find_network(network: str | Network, features: int) -> Network:
    """Return the two functions of a network; features: number D of features of a network with a head."""
    if not isinstance(network, str):
        return Network(*network)
    if network == "linear":
        return Network(_init_linear, _apply_linear)
    bodies = {"mlp": (_init_mlp, _apply_mlp), "conv": (_init_conv, _apply_conv), "resnet18": (_init_res, _apply_res)}
    init, body = bodies[network]
    return Network(
        lambda key, shape: _init_headed(key, shape, init, features),
        lambda params, images: _apply_headed(params, images, body),
    )


def _init_linear(key: Any, shape: Shape) -> Any:
    import jax.numpy as jnp

    return jnp.eye(shape[0] * shape[1] * shape[2], dtype=jnp.float32)


def _apply_linear(params: Any, images: Any) -> tuple[Any, Any]:
    features = images.reshape(len(images), -1) @ params
    return features, features


def _init_headed(key: Any, shape: Shape, init: Any, features: int) -> Any:
    """Draw the parameters of a body and of its head: linear, ReLU, linear."""
    import jax

    keys = jax.random.split(key, 3)
    body, width = init(keys[0], shape)
    return {"body": body, "head": [_dense(keys[1], width, _HIDDEN), _dense(keys[2], _HIDDEN, features)]}


def _apply_headed(params: Any, images: Any, apply: Any) -> tuple[Any, Any]:
    import jax.numpy as jnp

    body = apply(params["body"], images)
    output = _apply_dense(params["head"], body)
    norm = jnp.sqrt((output * output).sum(axis=1, keepdims=True) + 1e-12)
    return body, output / norm


def _init_mlp(key: Any, shape: Shape) -> tuple[Any, int]:
    import jax

    first, second = jax.random.split(key)
    return [_dense(first, shape[0] * shape[1] * shape[2], 128), _dense(second, 128, 64)], 64


def _apply_mlp(params: Any, images: Any) -> Any:
    import jax

    return jax.nn.relu(_apply_dense(params, images.reshape(len(images), -1)))


# Channels and stride of each convolution of "conv".
_CONVOLUTIONS = ((16, 1), (32, 2), (64, 2))


def _init_conv(key: Any, shape: Shape) -> tuple[Any, int]:
    import jax

    layers, width = [], shape[2]
    for layer_key, (channels, _) in zip(jax.random.split(key, len(_CONVOLUTIONS)), _CONVOLUTIONS, strict=True):
        layers.append(_filters(layer_key, 3, width, channels))
        width = channels
    return layers, width


def _apply_conv(params: Any, images: Any) -> Any:
    import jax

    for layer, (_, stride) in zip(params, _CONVOLUTIONS, strict=True):
        images = jax.nn.relu(convolve(layer, images, stride))
    return images.mean(axis=(1, 2))


# Channels and stride of each stage of "resnet18"; a stage has two blocks.
_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))


def _init_res(key: Any, shape: Shape) -> tuple[Any, int]:
    import jax

    keys = iter(jax.random.split(key, 2 + 6 * len(_STAGES)))
    stem, width, blocks = _filters(next(keys), 3, shape[2], 64), 64, []
    for channels, stride in _STAGES:
        for step in (stride, 1):
            block = {
                "one": _filters(next(keys), 3, width, channels),
                "two": _filters(next(keys), 3, channels, channels),
            }
            # A projection for the shortcut, if the block changes the shape.
            if step > 1 or width != channels:
                block["past"] = _filters(next(keys), 1, width, channels)
            blocks.append(block)
            width = channels
    return {"stem": stem, "blocks": blocks}, width


def _apply_res(params: Any, images: Any) -> Any:
    import jax

    images = jax.nn.relu(convolve(params["stem"], images, 1))
    strides = [step for _, stride in _STAGES for step in (stride, 1)]
    for block, stride in zip(params["blocks"], strides, strict=True):
        inner = convolve(block["two"], jax.nn.relu(convolve(block["one"], images, stride)), 1)
        images = jax.nn.relu(inner + (convolve(block["past"], images, stride) if "past" in block else images))
    return images.mean(axis=(1, 2))


def _dense(key: Any, before: int, after: int) -> Any:
    """Draw weights and bias of a linear layer by He initialization."""
    import jax

    return {"w": jax.random.normal(key, (before, after)) * (2.0 / before) ** 0.5, "b": jax.numpy.zeros(after)}


def _apply_dense(layers: Any, values: Any) -> Any:
    """Apply linear layers with ReLU between them."""
    import jax

    for number, layer in enumerate(layers):
        values = (jax.nn.relu(values) if number else values) @ layer["w"] + layer["b"]
    return values


def _filters(key: Any, side: int, before: int, after: int) -> Any:
    """Draw the filters of a convolution by He initialization; with scale and shift of the group norm after it."""
    import jax
    import jax.numpy as jnp

    spread = (2.0 / (side * side * before)) ** 0.5
    return {"w": jax.random.normal(key, (side, side, before, after)) * spread, "scale": jnp.ones(after),
            "shift": jnp.zeros(after)}  # fmt: skip


def convolve(layer: Any, images: Any, stride: int) -> Any:
    """Apply a convolution and a group norm to images [n, height, width, channels]."""
    import jax
    import jax.numpy as jnp

    images = jax.lax.conv_general_dilated(
        images, layer["w"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    # Sum over pixels first, then over the channels of a group: with groups as an axis of all pixels, this took twice as
    # long.
    n, _, _, channels = images.shape
    first, second = (
        part.mean(axis=(1, 2)).reshape(n, _GROUPS, -1).mean(axis=2, keepdims=True) for part in (images, images**2)
    )
    spread = jnp.sqrt(jnp.maximum(second - first**2, 0.0) + _EPSILON)
    mean, spread = (
        jnp.broadcast_to(part, (n, _GROUPS, channels // _GROUPS)).reshape(n, 1, 1, channels) for part in (first, spread)
    )
    scale = layer["scale"] / spread
    return images * scale + (layer["shift"] - mean * scale)
