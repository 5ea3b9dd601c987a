"""DeepFeCA (Xu et al. 2024): features and clusters learned together, by federated averaging and a one-shot method."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.expected_messages import ByRound, Known, tables
from p2pkm.core.messages import DenseMessages, Inbox, pack
from p2pkm.core.protocols import Work
from p2pkm.core.traits import MethodTraits
from p2pkm.deep.method import TRAITS, DeepMethod, DeepState, flatten, unflatten

_TRAIN, _AVERAGE, _REPORT, _CLUSTER, _TAKE = range(5)  # the turns of a round; the first one begins with the last two


@dataclass(frozen=True)
class DeepFeCA(DeepMethod):
    r"""Cluster what a network makes of the images, train it to tell the clusters apart, average, and so on.

    Every point is an image, its numbers row by row and the channels last, best in [0, 1]. All draw the same parameters
    theta. Client m has features z_n = f(x_n; theta) of its images; Algorithm 6 with its slips put right::

        client m:  report of the server method on its z_n                   (FeCA: centroids and radii)
        hub:       C <- aggregate
        client m:  y_n <- nearest row of C to z_n
        client m:  theta_m <- `epochs` epochs of stochastic gradient descent from theta
        hub:       theta <- sum_m |D_m| theta_m / sum_m |D_m|

    and so on from the top; after the last round there is one more report and aggregation, so that labels and C belong
    to the last theta. The loss is the mean over two random views v and all images of
    CE(softmax(f(v(x_n)) W^T / tau), y_n), with the rows of W those of C at unit length, an absent one without a logit.
    The learning rate falls to 0 along a cosine; momentum starts at 0 in every round. A client without images counts
    nothing, one without a centroid does not train.

    Message: up the report of the server method and once per round `|D_m|` with theta_m, P + 1 numbers as a table of
    `features` columns, filled up with zeros; down C and theta likewise. Parameters are float32, but count 8 bytes
    each, like all numbers. In n clients T rounds are 4 n T + 2 n messages. With ``server="none"`` reports and C are
    empty tables.

    Guarantee: with ``epochs=0`` or ``rate=0`` theta stays, and C is the server method's on the first features. The same
    bits for any number of ranks, on one machine with the same versions: each device's training is a function of its
    own images and streams, and XLA works on one thread; not across processors.

    Privacy: no guarantee; the hub sees the parameters of every single client before and after its training, from whose
    difference images can be reconstructed (gradient inversion), and the report of the server method; all clients see
    theta and C. Suppression of small clusters would hide nothing of it and is refused.

    Result: all that is measured is about features: `centroids` are in their space, costs, ratios and scores compare
    with central k-means on the last features, and `learned` has parameters, features and the labels of every round.

    Parameters
    ----------
    k : int
        Number of clusters, and of prototypes.
    server : str or server method
        Who clusters: feca, mavg, ffcm1, ffcm2, kfed, fkmeanscb, mufc, fkm (one round of each, which with fkm goes on
        from the last C, while all others begin anew), central (all features go to the hub: an upper bound) or none
        (every client clusters alone: a lower bound); in scripts also a server method with parameters of its own, such
        as ``KFED(10, local_k=20)``.
    network : str or pair of functions
        linear (the images themselves, by a matrix that starts as the identity: for tests), mlp (128 and 64 units), conv
        (three 3 x 3 convolutions of 16, 32 and 64 channels with group norm) or resnet18 (group norm, 3 x 3 stem); in
        scripts also ``(init(key, shape), apply(params, images))``, see `p2pkm.deep.networks`.
    shape : str, optional
        Of an image, such as 28x28 or 32x32x3; default: as in the file (.npz of images), else a square of one channel.
    features : int
        D, what the head gives: linear, ReLU, linear, to unit length.
    classifier : {"prototypes", "centered", "linear"}
        W is C (DeepCluster-v2); C without the mean of its rows, which tells clusters apart although all features point
        the same way (ours); or a linear layer drawn anew in every round, trained and thrown away (as printed).
    temperature : float
        tau.
    epochs, batch : int
        Of a client in a round.
    rate, momentum, decay : float
        Of the descent.
    views : bool
        Whether images are shifted, turned, scaled, lit and blurred with noise at random, else seen as they are.
    horizon : int, optional
        Rounds in which the learning rate falls to 0; default: those of the run.

    Raises
    ------
    ExperimentError
        If a parameter is out of range, JAX is not installed, or the network does not return [n, D].
    DataError
        If points are no images of this shape.
    TrainingError
        During a run, if a loss is not finite any more; the last checkpoint is kept.

    References
    ----------
    J. Xu, H.-Y. Chen, W.-L. Chao, Y. Zhang, "Jigsaw game: federated clustering", TMLR 2024: section 5, Algorithm 6. M.
    Caron, P. Bojanowski, A. Joulin, M. Douze, "Deep clustering for unsupervised learning of visual features", ECCV
    2018. M. Caron et al., "Unsupervised learning of visual features by contrasting cluster assignments", NeurIPS 2020:
    DeepCluster-v2.

    Examples
    --------
    >>> import p2pkm
    >>> method = p2pkm.DeepFeCA(3, network="linear", shape="16x16", features=8)  # a run needs the extra deep
    >>> method.k, method.name
    (3, 'deepfeca')
    """

    name: ClassVar[str] = "deepfeca"
    schedule: ClassVar[str] = "deep-star"
    traits: ClassVar[MethodTraits] = replace(TRAITS, needs_hub=True)

    def flops(self, work: Work) -> Integers:
        """Return the operations of a turn: a third of a client's round; the hub adds up what it receives."""
        return self.count_flops(work) // 3 + 2 * work.rows * self.features

    def expected_messages(self, known: Known) -> ByRound:
        """Return reports at the opening, centroids and parameters in every round."""
        n, learner = known.clients, self.learner(known.features)
        _, report, answer = self.expected_report(known, learner.width)
        height = [-(-numbers // learner.width) for numbers in (learner.parameters + 1, learner.parameters)]
        turns = sum((tables(n, rows, learner.width) for rows in height), report) + answer
        return ByRound(report, answer + turns, turns)

    def initial_state(self, devices: Devices, start: Any) -> DeepState:
        """Draw the parameters, and let the clients prepare their first report."""
        learned = self.begin(devices)
        n, width = len(devices), learned.features.values.shape[1]
        nothing = np.full((n, self.k, width), np.inf)
        return DeepState(nothing, np.zeros(n, np.bool_), learned, *self.report(learned, nothing, devices))

    def message(self, state: DeepState, devices: Devices) -> DenseMessages:
        """Send what is due."""
        return DenseMessages(state.values, np.where(devices.active_devices, state.rows, -1), ragged=True)

    def update(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Train, average, report, cluster or label: whose turn it is."""
        turn = (devices.turn + (_CLUSTER if devices.round == 1 else 0)) % 5
        return (self._train, self._average, self._report, self._cluster, self._take)[turn](state, inbox, devices)

    def _train(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Let the clients train, and send the parameters with their number of images."""
        learned = self.train(state.derived, state.centroids, devices)
        row = np.column_stack((devices.sizes, learned.theta)).astype(np.float64)
        return self._sends(state._replace(derived=learned), flatten(row, state.centroids.shape[2]))

    def _average(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Let the hub average the parameters, and send them."""
        theta = state.derived.theta.copy()
        for i in np.flatnonzero(devices.active_devices):
            rows = _read(inbox, slice(*devices.indptr[i : i + 2]), state, theta.shape[1] + 1)
            total = np.cumsum(rows[:, 0])[-1]
            if total > 0.0:
                theta[i] = np.cumsum(rows[:, :1] * rows[:, 1:], axis=0)[-1] / total
        learned = state.derived._replace(theta=theta)
        return self._sends(state._replace(derived=learned), flatten(theta.astype(np.float64), state.centroids.shape[2]))

    def _report(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Let the clients take over the parameters, and report of their features."""
        theta, acts = state.derived.theta.copy(), devices.active_devices
        theta[acts] = _read(inbox, devices.indptr[:-1][acts], state, theta.shape[1])
        learned = self.embed(state.derived._replace(theta=theta), devices)
        return self._sends(state._replace(derived=learned), *self.report(learned, state.centroids, devices))

    def _cluster(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Let the hub cluster what was reported, and send the centroids."""
        centroids, width = state.centroids.copy(), state.values.shape[2]
        for i in np.flatnonzero(devices.active_devices):
            edges = range(devices.indptr[i], devices.indptr[i + 1])
            reports = [inbox.tables_of(e, inbox.rows_of(e), width) for e in edges]
            centroids[i] = self.aggregate(reports, state.derived, devices)
        return self._sends(state._replace(centroids=centroids), *pack(centroids))

    def _take(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Let the clients take over the centroids, and label their images."""
        centroids, acts = state.centroids.copy(), devices.active_devices
        if self.alone:
            centroids[acts] = self.cluster_alone(state.derived, devices)[acts]
        else:
            edges = devices.indptr[:-1][acts]
            real = np.arange(self.k) < inbox.rows_of(edges)[:, None]
            received = inbox.tables_of(edges, self.k, centroids.shape[2])
            centroids[acts] = np.where(real[:, :, None], received, np.inf)
        learned = self.label(state.derived, centroids, devices)
        quiet = np.zeros((len(devices), 1, centroids.shape[2]))
        return self._sends(state._replace(centroids=centroids, derived=learned), quiet, np.full(len(devices), -1))

    @staticmethod
    def _sends(state: DeepState, values: Floats, rows: Integers | None = None) -> DeepState:
        """Return the state with what is sent next; rows: all that there are."""
        return state._replace(values=values, rows=np.full(len(values), values.shape[1]) if rows is None else rows)


def _read(inbox: Inbox, edges: Any, state: DeepState, q: int) -> Floats:
    """Read rows of q numbers that came as tables, float64[b, q]."""
    width = state.centroids.shape[2]
    return unflatten(inbox.tables_of(edges, -(-q // width), width), q)
