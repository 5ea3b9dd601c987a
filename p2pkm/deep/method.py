"""Deep clustering, common parts of the methods with and without a server: parameters, features, labels, training."""

from dataclasses import KW_ONLY, dataclass, replace
from importlib.util import find_spec
from math import cos, pi
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers, Mask, Stream
from p2pkm.core.errors import ExperimentError, TrainingError
from p2pkm.core.expected_messages import Known, MessageVolume, Reports, tables
from p2pkm.core.fork import is_inherited
from p2pkm.core.messages import RaggedArray
from p2pkm.core.protocols import MethodBase, PointCount, RunOutline, ServerMethodBase, Work
from p2pkm.core.states import register
from p2pkm.core.traits import Condition, MessageContent, MethodTraits
from p2pkm.core.validation import check_choice, check_integer, check_positive
from p2pkm.deep.networks import Network, check_network
from p2pkm.deep.training import Trainer, TrainingContext, find_shape, parse_shape, require_jax, share_trainer
from p2pkm.methods.registry import find

# Initializations of k-means on the local features; the best result counts.
_INITIALIZATIONS = 20
# Lower end and span of each feature, which has absolute value up to 1: for server methods with normalized units.
_LOW, _SPAN = -1.0, 2.0
_SERVERS = ("feca", "mavg", "ffcm1", "ffcm2", "kfed", "fkmeanscb", "mufc", "fkm", "central")


@register("deep:learned")
class Learned(NamedTuple):
    """Parameters, features and labels of a batch.

    Attributes
    ----------
    theta : float32[n, P]
        Network parameters of each device.
    features : RaggedArray
        float64[m, D], features of each image under the parameters that its device had at the last embedding.
    labels : RaggedArray
        int64[m, t], labels of each image by each clustering so far; -1 without one.
    """

    theta: NDArray[np.float32]
    features: RaggedArray
    labels: RaggedArray

    @property
    def clusterings(self) -> int:
        """Number of clusterings so far."""
        return self.labels.values.shape[1]


@register("deep")
class DeepState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, D]
        Centroids of the features by which each device labels its images; at a server those that it sent last.
    converged : bool[n]
        All False: training continues to the last round.
    derived : Learned
    values, rows : float64[n, r, w], int64[n]
        Table that each device sends next, and its number of rows; -1 for no message.
    """

    centroids: Floats
    converged: Mask
    derived: Learned
    values: Floats
    rows: Integers


TRAITS = MethodTraits(
    message_content=MessageContent.OTHER,
    derives_features=True,
    incompatible_with={
        "suppression": "sends the parameters of a network, which every image has changed",
        "quantization": "sends the parameters of a network, to which the grid of centroids does not apply",
        Condition.POINT_WEIGHTS: "trains on images that all count the same",
        Condition.MEASURED_POINTS: "clusters features that it learns itself, not the images",
        Condition.LOSSY_LINKS: "takes turns of training and clustering, in which every message must arrive",
        Condition.CHANGING_LINKS: "takes turns of training and clustering over the same links",
    },
)


def check_jax() -> None:
    """Reject a run without JAX, or in a fork of a process that has loaded it."""
    if find_spec("jax") is None or is_inherited("jax"):
        require_jax()


@dataclass(frozen=True)
class DeepMethod(MethodBase):
    """Base class of deep clustering; `p2pkm.DeepFeCA` documents the parameters."""

    k: int
    _: KW_ONLY
    server: str | ServerMethodBase = "feca"
    network: str | Network = "conv"
    shape: str | None = None
    features: int = 32
    classifier: Literal["prototypes", "centered", "linear"] = "prototypes"
    temperature: float = 0.1
    epochs: int = 5
    batch: int = 32
    rate: float = 0.02
    momentum: float = 0.9
    decay: float = 1e-6
    views: bool = True
    horizon: int | None = None

    default_rounds: ClassVar[int] = 30
    traits: ClassVar[MethodTraits] = TRAITS

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        if isinstance(self.server, str):
            check_choice(self.server, (*_SERVERS, "none"), "server")
        elif not isinstance(self.server, ServerMethodBase):
            raise ExperimentError(
                f"server is {self.server!r}; expected one of {', '.join(_SERVERS)}, none, or a server method such as "
                f"KFED({self.k})"
            )
        elif vars(self.server).get("k", self.k) != self.k:
            raise ExperimentError(f"server is {self.server!r}; expected {self.k} clusters, as in k={self.k}")
        check_network(self.network)
        if self.shape is not None:
            parse_shape(self.shape)
        for name, least in (("features", 1), ("epochs", 0), ("batch", 1)):
            check_integer(vars(self)[name], least, name)
        if self.horizon is not None:
            check_integer(self.horizon, 1, "horizon")
        check_choice(self.classifier, ("prototypes", "centered", "linear"), "classifier")
        check_positive(self.temperature, "temperature")
        for name in ("rate", "momentum", "decay"):
            check_positive(vars(self)[name], name, zero=True)

    def configure(self, run: RunOutline) -> "DeepMethod":
        """Fill in the shape of the images, and the rounds of the run as horizon of the learning rate."""
        method = self.for_images(run.image)
        return method if run.rounds is None or method.horizon else method.replaced(horizon=max(run.rounds, 1))

    def for_images(self, shape: tuple[int, ...] | None) -> "DeepMethod":
        """Return the method with the shape of the images, unless it is set."""
        return self if shape is None or self.shape is not None else self.replaced(shape="x".join(map(str, shape)))

    def check(self, run: RunOutline, points: PointCount) -> None:
        """Validate that JAX can be used, that points are images, and that the server method can run."""
        check_jax()
        method = self.for_images(run.image)
        find_shape(method.shape, points.d)
        if (server_method := method._server_method) is not None:
            server_method.check(run, points._replace(d=method.learner(points.d).width))

    def learner(self, d: int) -> Trainer:
        """Return the trainer of the network for images of d numbers; equal trainers share their compiled functions."""
        require_jax()
        return share_trainer(
            Trainer(
                self.network if isinstance(self.network, str) else Network(*self.network),
                find_shape(self.shape, d),
                self.features,
                self.classifier,
                self.temperature,
                self.batch,
                self.momentum,
                self.decay,
                self.views,
            )
        )

    def rate_in(self, round: int) -> float:
        """Compute the learning rate of round t of T: rate / 2 (1 + cos(pi (t - 1) / T)), and 0 after round T."""
        passed = min((round - 1) / (self.horizon or self.default_rounds), 1.0)
        return 0.5 * self.rate * (1.0 + cos(pi * passed))

    def count_flops(self, work: Work) -> Integers:
        """Count the operations of each device in a round, int64[n], without clustering and augmentation."""
        per_image = self.learner(work.d).flops
        # An epoch has two views, and a gradient costs twice as much as its function: 2 * 3. Embedding: 1.
        return np.asarray(work.sizes * per_image * (6 * self.epochs + 1), np.int64)

    def expected_report(self, known: Known, width: int) -> tuple[Reports, MessageVolume, MessageVolume]:
        """Predict the reports of all devices, their total volume, and the volume of centroids for each device."""
        n, server_method = known.clients, self._server_method
        sent = None if server_method is None else server_method.expected_messages(known._replace(features=width))
        # Without a server method, reports and centroids are empty tables.
        if not isinstance(sent, Reports):
            return Reports(0, width, True, True), MessageVolume(n, 0), MessageVolume(n, 0)
        answer = tables(n, self.k, width, full=sent.answered)
        return sent, MessageVolume(n, 8 * sent.rows * sent.columns, True, sent.exact), answer

    def begin(self, devices: Devices) -> Learned:
        """Draw the parameters, equal on all devices, and compute the first features; labels are empty."""
        learner = self.learner(devices.d)
        theta = np.tile(learner.init(devices.shared_key), (len(devices), 1))
        features = RaggedArray(np.zeros((len(devices.stored), learner.width)), devices.sizes)
        labels = RaggedArray(np.zeros((len(devices.stored), 0), np.int64), devices.sizes)
        return self.embed(Learned(theta, features, labels), devices)

    def embed(self, learned: Learned, devices: Devices) -> Learned:
        """Compute the features of all images under the current parameters of their devices.

        Raises
        ------
        TrainingError
            If a feature is not finite.
        """
        learner, values = self.learner(devices.d), learned.features.values.copy()
        for i in np.flatnonzero(devices.sizes):
            local = slice(devices.offsets[i], devices.offsets[i + 1])
            _, values[local] = learner.embed(learned.theta[i], devices.table(i)[0])
            if not np.isfinite(values[local]).all():
                raise TrainingError(
                    f"the features of device {devices.ids[i]} are not finite in round {devices.round}; check the "
                    f"network on one image, use a rate below {self.rate:g}, or scale pixels to 0 to 1. The last "
                    "checkpoint remains"
                )
        return learned._replace(features=learned.features._replace(values=values))

    def label(self, learned: Learned, centroids: Floats, devices: Devices) -> Learned:
        """Add the labels of all images: the nearest row of the centroids of their device."""
        batch = self._feature_batch(learned, devices)
        _, labels = batch.kernels.losses(*batch.kernel_inputs, centroids)
        values = np.column_stack((learned.labels.values, labels))
        return learned._replace(labels=learned.labels._replace(values=values))

    def train(self, learned: Learned, centroids: Floats, devices: Devices) -> Learned:
        """Train the parameters of all active devices.

        Raises
        ------
        TrainingError
            If the loss of a device is not finite.
        """
        learner, theta = self.learner(devices.d), learned.theta.copy()
        context = TrainingContext(0, devices.round, self.epochs, self.rate_in(devices.round))
        is_training = devices.active_devices & (centroids[:, :, 0] < np.inf).any(axis=1)
        for i in np.flatnonzero(is_training & (devices.sizes > 0)):
            labels = learned.labels.values[devices.offsets[i] : devices.offsets[i + 1], -1]
            theta[i], loss = learner.train(
                theta[i], devices.table(i)[0], labels, centroids[i], context._replace(key=int(devices.keys[i]))
            )
            if not (np.isfinite(loss) and np.isfinite(theta[i]).all()):
                raise TrainingError(
                    f"training diverged in round {devices.round} at device {devices.ids[i]}: the loss is {loss:g}. "
                    f"Use a rate below {self.rate:g}, or scale pixels to 0 to 1. The last checkpoint remains"
                )
        return learned._replace(theta=theta)

    def report(self, learned: Learned, centroids: Floats, devices: Devices) -> tuple[Floats, Integers]:
        """Compute the report of the server method on the features of each device.

        A method that follows its points (fkm) continues from the last centroids. The others restart.

        Returns
        -------
        values : float64[n, r, w]
        rows : int64[n]
        """
        server_method = self._server_method
        # Without a server method, empty tables keep the turns of all devices in step.
        if server_method is None:
            return np.zeros((len(devices), 1, 1)), np.zeros(len(devices), np.int64)
        clients, model = self._feature_batch(learned, devices), np.full_like(centroids, np.inf)
        if server_method.traits.follows_points:
            clients = clients.at_turn(learned.clusterings, 0, clients.active_devices)
            model = centroids if learned.clusterings else model
        if self._uses_unit_box:
            clients, model = replace(clients, stored=(clients.stored - _LOW) / _SPAN), (model - _LOW) / _SPAN
        report = server_method.report(clients, model)
        return report.values, report.rows

    def aggregate(self, tables: list[Floats], learned: Learned, devices: Devices) -> Floats:
        """Compute the centroids of the server method from all reports, float64[k, D]; absent rows are +inf."""
        server, server_method = self._feature_batch(learned, devices), self._server_method
        centroids = np.full((self.k, server.d), np.inf)
        if server_method is not None:
            if server_method.traits.follows_points:
                server = server.at_turn(learned.clusterings + 1, 0, server.active_devices)
            aggregated = server_method.aggregate(server, tables, centroids)
            centroids[: len(aggregated)] = aggregated * _SPAN + _LOW if self._uses_unit_box else aggregated
        return centroids

    def cluster_locally(self, learned: Learned, devices: Devices) -> Floats:
        """Run k-means of each device on its local features, float64[n, k, D]."""
        centroids, _, _ = self._feature_batch(learned, devices).kmeans(self.k, Stream.CLIENT, starts=_INITIALIZATIONS)
        return centroids

    @property
    def is_local_only(self) -> bool:
        """Whether every device clusters its features without the others."""
        return self.server == "none"

    @property
    def _server_method(self) -> Any:
        """Server method that clusters the features; None for local clustering."""
        if not isinstance(self.server, str):
            return self.server
        return None if self.is_local_only else find(self.server)(self.k)

    @property
    def _uses_unit_box(self) -> bool:
        """Whether the server method normalizes points; features are then scaled by their known range instead."""
        server_method = self._server_method
        return server_method is not None and server_method.traits.normalization != "none"

    @staticmethod
    def _feature_batch(learned: Learned, devices: Devices) -> Devices:
        """Return the batch at the start of a stage, with features instead of images as points."""
        features = np.ascontiguousarray(learned.features.values)
        return replace(devices, stored=features).at_stage_start(devices.ids != devices.server)


def flatten(values: Floats, width: int) -> Floats:
    """Reshape vectors of q numbers to tables, float64[n, ceil(q / width), width], padded with zeros.

    A mailbox reserves as many rows as the longest and as many columns as the widest table of a stage. So a table of
    parameters should be about as wide as one of centroids.
    """
    n, q = values.shape
    rows = -(-q // width)
    tables = np.zeros((n, rows * width))
    tables[:, :q] = values
    return tables.reshape(n, rows, width)


def unflatten(tables: Floats, q: int) -> Floats:
    """Reshape tables to vectors of q numbers, float64[n, q]: the inverse of `flatten`."""
    n, rows, width = tables.shape
    return tables.reshape(n, rows * width)[:, :q]
