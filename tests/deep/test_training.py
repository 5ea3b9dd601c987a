"""Networks and the training of one device."""

import re
import subprocess
import sys
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.deep.networks import Network, check_network, convolve
from p2pkm.deep.training import Trainer, TrainingContext, augment, find_shape, make_views, parse_shape
from tests.support.images import digits

SIDE = (8, 8, 1)


@cache
def shared(network="mlp", **options):
    """Return the trainer with these options: it compiles its functions, which takes seconds, once for all tests."""
    return Trainer(network, SIDE, **options)


def test_shapes_are_read_and_guessed():
    assert parse_shape("8x8") == (8, 8, 1) and parse_shape("32X32x3") == (32, 32, 3)
    assert find_shape(None, 784) == (28, 28, 1) and find_shape("32x32x3", 3072) == (32, 32, 3)
    assert find_shape("4x16", 64) == (4, 16, 1)
    for text in ("8x\N{SUPERSCRIPT TWO}", f"8x{'9' * 5000}", "8", "8x", "0x8", "8x8x1x1", "axb"):
        with pytest.raises(ExperimentError, match=re.escape(repr(text))):
            parse_shape(text)
    with pytest.raises(DataError, match="784 numbers, but every point has 64"):
        find_shape("28x28", 64)
    for d, shapes in {10: "shape=2x5,", 48: "shape=6x8 or shape=4x4x3,", 3072: "shape=48x64 or shape=32x32x3,"}.items():
        with pytest.raises(DataError, match=f"of {d} features are not square images .*{shapes}.*data source shapes"):
            find_shape(None, d)


def test_networks_by_name_and_by_functions():
    check_network("conv")
    check_network((len, len))
    with pytest.raises(ExperimentError, match="Did you mean 'conv'"):
        check_network("cov")
    with pytest.raises(ExperimentError, match="pair of functions"):
        check_network((len,))


def test_nothing_imports_jax_before_it_is_needed():
    code = (
        "import sys, p2pkm\nfrom p2pkm.cli.main import main\np2pkm.DeepFeCA(3), p2pkm.DeepGossip(3)\n"
        "main(['--help']); main(['algorithms', 'deepfeca'])\nassert 'jax' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_two_epochs_of_a_device_draw_the_same(monkeypatch):
    drawn = []

    def step(row, velocity, rate, images, numbers, key, *_):
        drawn.append((tuple(numbers), tuple(key)))
        return row, velocity, 0.0

    monkeypatch.setattr(Trainer, "_step", staticmethod(step))  # nothing is trained, so that JAX is not needed
    learner, (images, labels) = Trainer("mlp", SIDE, batch=8), digits(8)
    for t in (1, 2, 3):
        learner.train(np.zeros(4, np.float32), images, labels, np.eye(32)[:10], TrainingContext(5, t, 3, 0.1))
    assert len(drawn) == 9
    for parts in zip(*drawn, strict=True):
        assert len(set(parts)) == 9


def test_every_epoch_sees_every_image_once_with_its_label(monkeypatch):
    seen, (images, labels) = [], digits(21)

    def step(row, velocity, rate, held, numbers, key, told, mask, *_):
        assert_array_equal(held.reshape(8, 64), images[numbers].astype(np.float32))
        assert_array_equal(told, labels[numbers])
        seen.extend(numbers[mask > 0])
        return row, velocity, 3.0

    monkeypatch.setattr(Trainer, "_step", staticmethod(step))
    theta = np.zeros(4, np.float32)
    _, loss = Trainer("mlp", SIDE, batch=8).train(theta, images, labels, np.eye(32)[:10], TrainingContext(5, 1, 2, 0.1))
    assert_array_equal(np.sort(np.reshape(seen, (2, 21))), [np.arange(21)] * 2)
    assert loss == 3.0


@pytest.mark.slow
@pytest.mark.parametrize("classifier", ["prototypes", "linear"])
@pytest.mark.parametrize("network", ["linear", "mlp", "conv"])
def test_gradients_are_those_of_the_loss(jax, network, classifier):
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        learner = Trainer(network, SIDE, features=4, classifier=classifier, temperature=0.5)
        views = rng.normal(size=(2, 5, *SIDE))
        labels, mask, present = rng.integers(0, 3, 5), np.array([1.0, 1, 1, 1, 0]), np.array([True] * 3 + [False])
        rows = rng.normal(size=(4, learner.width))
        row = np.asarray(learner.init(3), np.float64)
        if classifier == "linear":
            row = np.concatenate((row, rng.normal(size=rows.size + 4)))
        arguments = views, labels, mask, rows, present
        loss, gradient = jax.jit(learner.loss), jax.jit(jax.grad(learner.loss))(row, *arguments)
        for axis in rng.choice(len(row), 12, replace=False):
            step = np.zeros_like(row)
            step[axis] = 1e-5
            rise = float(loss(row + step, *arguments)) - float(loss(row - step, *arguments))
            assert_allclose(rise / 2e-5, gradient[axis], atol=1e-6)
        changed = views.copy()
        changed[:, 4] = 7.0  # what fills up a batch does not count
        assert_allclose(loss(row, changed, *arguments[1:]), loss(row, *arguments), rtol=1e-12)


@pytest.mark.slow
def test_no_epoch_and_no_rate_leave_the_parameters_alone(jax):
    learner, (images, labels) = shared(), digits(40)
    theta, rows = learner.init(1), np.eye(32)[:10]
    for context in (TrainingContext(5, 1, 0, 0.1), TrainingContext(5, 1, 3, 0.0)):
        assert learner.train(theta, images, labels, rows, context)[0] is theta
    assert learner.train(theta, images[:0], labels[:0], rows, TrainingContext(5, 1, 3, 0.1))[0] is theta
    assert (learner.train(theta, images, labels, rows, TrainingContext(5, 1, 1, 0.1))[0] != theta).any()


@pytest.mark.slow
def test_the_order_of_prototypes_does_not_matter(jax):
    learner, (images, labels) = shared(), digits(40)
    rng = np.random.default_rng(0)
    rows, theta, context = rng.normal(size=(10, 32)), learner.init(1), TrainingContext(5, 1, 2, 0.05)
    order = rng.permutation(10)
    one, _ = learner.train(theta, images, labels, rows, context)
    other, _ = learner.train(theta, images, np.argsort(order)[labels], rows[order], context)
    assert_allclose(one, other, atol=2e-6)


@pytest.mark.slow
def test_an_absent_prototype_gets_no_logit(jax):
    learner, (images, labels) = shared(views=False), digits(40)
    rows, theta, context = np.eye(32)[:10], learner.init(1), TrainingContext(5, 1, 2, 0.05)
    more = np.concatenate((rows, np.full((3, 32), np.inf)))
    assert_allclose(
        learner.train(theta, images, labels, rows, context)[0],
        learner.train(theta, images, labels, more, context)[0], atol=2e-6,
    )  # fmt: skip


@pytest.mark.slow
def test_centered_prototypes_are_those_without_their_mean(jax):
    images, labels = digits(40)
    rows = np.random.default_rng(0).normal(size=(10, 32))
    more, context = np.concatenate((rows + 7.0, np.full((2, 32), np.inf))), TrainingContext(5, 1, 2, 0.05)
    plain, centered = (shared(classifier=kind, views=False) for kind in ("prototypes", "centered"))
    expected, _ = plain.train(plain.init(1), images, labels, rows - rows.mean(axis=0), context)
    assert_allclose(centered.train(centered.init(1), images, labels, more, context)[0], expected, atol=2e-6)
    one, _ = plain.train(plain.init(1), images, 0 * labels, rows[:1], context)
    assert_array_equal(centered.train(centered.init(1), images, 0 * labels, rows[:1], context)[0], one)


@pytest.mark.slow
def test_streams_depend_on_device_and_round_alone(jax):
    learner, (images, labels) = shared(), digits(50)
    theta, rows = learner.init(1), np.eye(32)[:10]

    def trained(key, t):
        return learner.train(theta, images, labels, rows, TrainingContext(key, t, 2, 0.05))[0]

    assert_array_equal(trained(5, 1), trained(5, 1))
    assert (trained(5, 1) != trained(6, 1)).any() and (trained(5, 1) != trained(5, 2)).any()
    assert (learner.init(1) != learner.init(2)).any()


@pytest.mark.slow
def test_true_labels_teach_the_network_to_tell_digits_apart(jax):
    learner, (images, labels) = shared(), digits(1200)
    rows = np.eye(32)[:10]
    theta, _ = learner.train(learner.init(1), images[:900], labels[:900], rows, TrainingContext(5, 1, 15, 0.05))
    _, features = learner.embed(theta, images[900:])
    assert (np.argmax(features @ rows.T, axis=1) == labels[900:]).mean() > 0.9


@pytest.mark.parametrize(
    ("drawn", "change"),
    [
        ([0, 0, 6, 0, 0, 0], lambda image: np.rot90(image, -1)),  # in units of 15 degrees
        ([1, -2, 0, 0, 0, 0], lambda image: np.pad(image, ((1, 0), (0, 2), (0, 0)), "edge")[:8, 2:]),
        ([0, 0, 0, 0, 1, 0], lambda image: image + 0.2 * image.mean()),
        ([0, 0, 0, 0, 0, 1], lambda image: image + 0.2 * (image - image.mean())),
    ],
    ids=["turned", "shifted", "lighter", "contrast"],
)
def test_a_view_is_turned_and_shifted_and_its_edge_goes_on(monkeypatch, drawn, change):
    """NumPy stands in for JAX, and there is no noise."""
    random = SimpleNamespace(split=lambda key: key, uniform=lambda key, shape, **ends: np.array(key, float),
                             normal=lambda key, shape: np.zeros(shape))  # fmt: skip
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(numpy=np, random=random))
    monkeypatch.setitem(sys.modules, "jax.numpy", np)
    image = np.random.default_rng(0).normal(size=(8, 8, 2))
    assert_allclose(augment(image, (drawn, None)), change(image), atol=1e-9)


@pytest.mark.slow
def test_views_are_two_small_changes_of_each_image(jax):
    images = np.zeros((3, 16, 16, 2), np.float32)
    images[:, 6:10, 6:10] = 1.0
    key = np.array([1, 2], np.uint32)
    draw = jax.jit(make_views)
    views = np.asarray(draw(images, np.arange(3), key))
    assert views.shape == (2, 3, 16, 16, 2)
    assert_array_equal(views, np.asarray(draw(images, np.arange(3), key)))
    assert_array_equal(views[:, 1:2], np.asarray(draw(images[1:2], np.array([1]), key)))
    assert len({view.tobytes() for view in views.reshape(6, -1)}) == 6
    totals, corners = views.sum(axis=(2, 3, 4)), views[:, :, [0, 0, -1, -1], [0, -1, 0, -1]]
    assert (totals > 0.4 * 32).all() and (totals < 2.2 * 32).all()
    assert np.abs(corners).max() < 0.35


@pytest.mark.slow
@pytest.mark.parametrize(("network", "count"), [("linear", 4096), ("mlp", 22816), ("conv", 29648), ("resnet18", None)])
def test_the_networks_are_as_large_as_documented(jax, network, count):
    learner = shared("resnet18", batch=16, views=False) if network == "resnet18" else shared(network)
    assert learner.width == (64 if network == "linear" else 32)
    assert count is None or learner.parameters == count
    if network == "resnet18":
        assert 11_000_000 < learner.parameters < 11_400_000
        return
    body, output = learner.embed(learner.init(0), digits(70)[0])
    assert len(body) == len(output) == 70
    if network == "linear":
        assert_array_equal(output, digits(70)[0].astype(np.float32))
    else:
        assert_allclose((output**2).sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_is_normalized_by_groups_of_channels(jax, stride):
    rng = np.random.default_rng(0)
    images, shapes = rng.normal(size=(2, 6, 6, 3)), {"w": (3, 3, 3, 16), "scale": 16, "shift": 16}
    layer = {name: rng.normal(size=size) for name, size in shapes.items()}
    with jax.enable_x64(True):
        found = np.asarray(convolve(layer, images, stride))
    before = 1 if stride == 1 else 0  # with stride 2 the one row that is lacking comes after the last
    padded = np.pad(images, ((0, 0), (before, 1), (before, 1), (0, 0)))
    for n, group in np.ndindex(2, 8):
        own = slice(2 * group, 2 * group + 2)
        values = np.array([
            [np.tensordot(padded[n, i : i + 3, j : j + 3], layer["w"][..., own], 3) for j in range(0, 6, stride)]
            for i in range(0, 6, stride)
        ])  # fmt: skip
        plain = (values - values.mean()) / np.sqrt(values.var() + 1e-5)
        assert_allclose(found[n, :, :, own], plain * layer["scale"][own] + layer["shift"][own], atol=1e-9)


@pytest.mark.slow
def test_the_residual_network_learns(jax):
    images, labels = digits(16)
    learner, rows = shared("resnet18", batch=16, views=False), np.eye(32)[:10]
    theta = learner.init(1)
    losses = []
    for t in (1, 2, 3):
        theta, loss = learner.train(theta, images, labels, rows, TrainingContext(5, t, 1, 0.001))
        losses.append(loss)
    assert np.isfinite(theta).all() and losses[2] < losses[0]


@pytest.mark.slow
def test_a_network_of_ones_own(jax):
    own = Network(lambda key, shape: {"a": jax.numpy.ones(3)}, lambda params, images: (images[:, 0, :, 0],) * 2)
    assert Trainer(own, SIDE).width == 8
    flat = Network(own.init, lambda params, images: (images[:, 0, :, 0], images[:, 0, 0, 0]))
    with pytest.raises(ExperimentError, match=r"shapes \[\(64, 8\), \(64,\)\]; expected"):
        _ = Trainer(flat, SIDE).width
    for wrong in (None, {"body": 0, "features": 1}):
        other = Network(own.init, lambda params, x, wrong=wrong: wrong and dict.fromkeys(wrong, x[:, 0, :, 0]))
        with pytest.raises(ExperimentError, match=f"returns a {type(wrong).__name__} .* expected a pair"):
            _ = Trainer(other, SIDE).width


@pytest.mark.slow
def test_features_that_are_no_numbers_are_refused(jax):
    broken = (lambda key, shape: {"a": jax.numpy.ones(3)}, lambda params, x: (x[:, 0, :, 0] * jax.numpy.nan,) * 2)
    shards = p2pkm.Shards.deal(digits(40)[0], np.arange(40) % 2, devices=2)
    with pytest.raises(p2pkm.TrainingError, match="features of device 0 are not finite in round 0; check the network"):
        p2pkm.simulate(p2pkm.DeepFeCA(3, network=broken), None, shards)
