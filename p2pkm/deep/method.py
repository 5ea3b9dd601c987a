"""What deep clustering with a server and without one have in common: parameters, features, labels, training."""

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
from p2pkm.core.traits import MethodTraits
from p2pkm.core.validation import check_choice, check_integer, check_positive
from p2pkm.deep.networks import Network, check_network
from p2pkm.deep.training import Session, Trainer, find_shape, make_learner, parse_shape, require_jax
from p2pkm.methods.registry import find

_STARTS = 20  # of k-means on the own features alone
_LOW, _SPAN = -1.0, 2.0  # of features of unit length, for server methods that work in units of all points
_SERVERS = ("feca", "mavg", "ffcm1", "ffcm2", "kfed", "fkmeanscb", "mufc", "fkm", "central")


@register("deep:learned")
class Learned(NamedTuple):
    """What a batch has learned.

    Attributes
    ----------
    theta : float32[n, P]
        Parameters of every device.
    features : RaggedArray
        float64[m, D], what is clustered, of every image under the parameters that the device then had.
    labels : RaggedArray
        int64[m, t], the pseudo-labels of every image by each clustering so far, -1: none.
    """

    theta: NDArray[np.float32]
    features: RaggedArray
    labels: RaggedArray

    @property
    def clusterings(self) -> int:
        """Return how many there have been."""
        return self.labels.values.shape[1]


@register("deep")
class DeepState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, D]
        In the space of the features: what each device labels by; at a hub what it last sent.
    converged : bool[n]
        Never.
    derived : Learned
    values, rows : float64[n, r, w], int64[n]
        What each device sends next; rows -1: nothing.
    """

    centroids: Floats
    converged: Mask
    derived: Learned
    values: Floats
    rows: Integers


TRAITS = MethodTraits(
    derives_features=True,
    no_suppression="sends the parameters of a network, which every image has changed",
    no_quantization="sends the parameters of a network, which a grid for centroids does not fit",
    no_weights="trains on images that all count the same",
    no_measuring="clusters features that it learns itself, not the images",
    needs_reliable_links="takes turns of training and clustering, in which every message must arrive",
    needs_static_links="takes turns of training and clustering over the same links",
)


def check_jax() -> None:
    """Reject a run without JAX, or in a fork of a process that has loaded it."""
    if find_spec("jax") is None or is_inherited("jax"):
        require_jax()


@dataclass(frozen=True)
class DeepMethod(MethodBase):
    """The parameters of deep clustering; `p2pkm.deep.deepfeca` documents them."""

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
        """Refuse what is out of range."""
        check_integer(self.k, 1, "clusters")
        if isinstance(self.server, str):
            check_choice(self.server, (*_SERVERS, "none"), "server")
        elif not isinstance(self.server, ServerMethodBase):
            raise ExperimentError(
                f"server is {self.server!r}; expected one of {', '.join(_SERVERS)}, none, or a server method such as "
                f"KFED({self.k})"
            )
        elif vars(self.server).get("k", self.k) != self.k:
            raise ExperimentError(f"server is {self.server!r}; expected {self.k} clusters, as many as here")
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
        """Fill in the shape of the images, and a learning rate that falls to 0 in as many rounds as the run has."""
        found = self.for_images(run.image)
        return found if run.rounds is None or found.horizon else found.replaced(horizon=max(run.rounds, 1))

    def for_images(self, shape: tuple[int, ...] | None) -> "DeepMethod":
        """Return the method with the shape of the images, unless one is given."""
        return self if shape is None or self.shape is not None else self.replaced(shape="x".join(map(str, shape)))

    def check(self, run: RunOutline, points: PointCount) -> None:
        """Reject a run without JAX or in a fork of a process that has loaded it, and points that are not images."""
        check_jax()
        method = self.for_images(run.image)
        find_shape(method.shape, points.d)
        if (played := method._played) is not None:
            played.check(run, points._replace(d=method.learner(points.d).width))

    def learner(self, d: int) -> Trainer:
        """Return the network and its training for images of d numbers."""
        require_jax()
        return make_learner(
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
        """Return the learning rate of a round: rate / 2 (1 + cos(pi (t - 1) / T)) in round t of T, and 0 afterwards."""
        passed = min((round - 1) / (self.horizon or self.default_rounds), 1.0)
        return 0.5 * self.rate * (1.0 + cos(pi * passed))

    def count_flops(self, work: Work) -> Integers:
        """Return the operations of every device in a whole round, int64[n], without clustering: views cost nothing."""
        each = self.learner(work.d).flops
        return np.asarray(work.sizes * each * (6 * self.epochs + 1), np.int64)  # two views, gradient: twice as much

    def expected_report(self, known: Known, width: int) -> tuple[Reports, MessageVolume, MessageVolume]:
        """Return the reports of all devices, what they are together, and centroids for each device."""
        n, played = known.clients, self._played
        sent = None if played is None else played.expected_messages(known._replace(features=width))
        if not isinstance(sent, Reports):
            return Reports(0, width, True, True), MessageVolume(n, 0), MessageVolume(n, 0)
        answer = tables(n, self.k, width, full=sent.answered)
        return sent, MessageVolume(n, 8 * sent.rows * sent.columns, True, sent.exact), answer

    def begin(self, devices: Devices) -> Learned:
        """Return what a batch starts from: the parameters that all draw alike, and no label."""
        learner = self.learner(devices.d)
        theta = np.tile(learner.init(devices.shared_key), (len(devices), 1))
        features = RaggedArray(np.zeros((len(devices.stored), learner.width)), devices.sizes)
        labels = RaggedArray(np.zeros((len(devices.stored), 0), np.int64), devices.sizes)
        return self.embed(Learned(theta, features, labels), devices)

    def embed(self, learned: Learned, devices: Devices) -> Learned:
        """Return the same with the features of all images under the parameters of their devices.

        Raises
        ------
        TrainingError
            If they are not finite.
        """
        learner, values = self.learner(devices.d), learned.features.values.copy()
        for i in np.flatnonzero(devices.sizes):
            own = slice(devices.offsets[i], devices.offsets[i + 1])
            _, values[own] = learner.embed(learned.theta[i], devices.table(i)[0])
            if not np.isfinite(values[own]).all():
                raise TrainingError(
                    f"the features of device {devices.ids[i]} are not finite in round {devices.round}; check the "
                    f"network on one image, take a rate below {self.rate:g}, or pixels between 0 and 1; the last "
                    "checkpoint is kept"
                )
        return learned._replace(features=learned.features._replace(values=values))

    def label(self, learned: Learned, centroids: Floats, devices: Devices) -> Learned:
        """Return the same with the labels of all images by the nearest row of their device's centroids."""
        looked = self._look(learned, devices)
        _, labels = looked.kernels.losses(*looked.kernel_inputs, centroids)
        values = np.column_stack((learned.labels.values, labels))
        return learned._replace(labels=learned.labels._replace(values=values))

    def train(self, learned: Learned, centroids: Floats, devices: Devices) -> Learned:
        """Return the same with the parameters of all active devices after their epochs.

        Raises
        ------
        TrainingError
            If the loss of a device is not finite.
        """
        learner, theta = self.learner(devices.d), learned.theta.copy()
        session = Session(0, devices.round, self.epochs, self.rate_in(devices.round))
        known = devices.active_devices & (centroids[:, :, 0] < np.inf).any(axis=1)
        for i in np.flatnonzero(known & (devices.sizes > 0)):
            labels = learned.labels.values[devices.offsets[i] : devices.offsets[i + 1], -1]
            theta[i], loss = learner.train(
                theta[i], devices.table(i)[0], labels, centroids[i], session._replace(key=int(devices.keys[i]))
            )
            if not (np.isfinite(loss) and np.isfinite(theta[i]).all()):
                raise TrainingError(
                    f"training diverged in round {devices.round} at device {devices.ids[i]}: the loss is {loss:g}. "
                    f"Take a rate below {self.rate:g}, or pixels between 0 and 1; the last checkpoint is kept"
                )
        return learned._replace(theta=theta)

    def report(self, learned: Learned, centroids: Floats, devices: Devices) -> tuple[Floats, Integers]:
        """Return what every device sends of its features, float64[n, r, w], and how many rows, int64[n].

        A method that follows its points (fkm) goes on from the last centroids; the others begin anew.
        """
        clients, played, model = self._look(learned, devices), self._played, np.full_like(centroids, np.inf)
        if played is None:  # empty tables keep the turns in step
            return np.zeros((len(devices), 1, 1)), np.zeros(len(devices), np.int64)
        if played.traits.follows_points:
            clients = clients.at_turn(learned.clusterings, 0, clients.active_devices)
            model = centroids if learned.clusterings else model
        if self._framed:
            clients, model = replace(clients, stored=(clients.stored - _LOW) / _SPAN), (model - _LOW) / _SPAN
        found = played.report(clients, model)
        return found.values, found.rows

    def aggregate(self, tables: list[Floats], learned: Learned, devices: Devices) -> Floats:
        """Return the centroids that the server makes of all reports, float64[k, D]; absent rows are +inf."""
        hub, played = self._look(learned, devices), self._played
        centroids = np.full((self.k, hub.d), np.inf)
        if played is not None:
            if played.traits.follows_points:
                hub = hub.at_turn(learned.clusterings + 1, 0, hub.active_devices)
            found = played.aggregate(hub, tables, centroids)
            centroids[: len(found)] = found * _SPAN + _LOW if self._framed else found
        return centroids

    def cluster_alone(self, learned: Learned, devices: Devices) -> Floats:
        """Return the centroids of a k-means of every device on its own features, float64[n, k, D]."""
        found, _, _ = self._look(learned, devices).kmeans(self.k, Stream.CLIENT, starts=_STARTS)
        return found

    @property
    def alone(self) -> bool:
        """Return whether every device clusters alone."""
        return self.server == "none"

    @property
    def _played(self) -> Any:
        """Return the server method that clusters the features, None: there is none."""
        if not isinstance(self.server, str):
            return self.server
        return None if self.alone else find(self.server)(self.k)

    @property
    def _framed(self) -> bool:
        played = self._played
        return played is not None and played.traits.normalization != "none"

    @staticmethod
    def _look(learned: Learned, devices: Devices) -> Devices:
        """Return the batch at the start of a stage, with features in the place of images."""
        features = np.ascontiguousarray(learned.features.values)
        return replace(devices, stored=features).at_stage_start(devices.ids != devices.server)


def flatten(values: Floats, width: int) -> Floats:
    """Return rows of q numbers as tables, float64[n, ceil(q / width), width], filled up with zeros.

    A mailbox has room for the highest and for the widest table of a stage at once: so a table of parameters is about
    as wide as one of centroids.
    """
    n, q = values.shape
    rows = -(-q // width)
    tables = np.zeros((n, rows * width))
    tables[:, :q] = values
    return tables.reshape(n, rows, width)


def unflatten(tables: Floats, q: int) -> Floats:
    """Return rows of q numbers of their tables."""
    n, rows, width = tables.shape
    return tables.reshape(n, rows * width)[:, :q]
