"""DeepFeCA (Xu et al. 2024): federated averaging of a network, and one-shot clustering of its features."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.card import Card
from p2pkm.core.expected_messages import ByRound, Known, tables
from p2pkm.core.messages import DenseMessages, Inbox, pack
from p2pkm.core.protocols import Work
from p2pkm.core.traits import MethodTraits
from p2pkm.deep.method import TRAITS, DeepMethod, DeepState, flatten, unflatten

# Turns of a round. Round 1 begins with the last two of them, on the reports of the initial exchange.
_TRAIN, _AVERAGE, _REPORT, _CLUSTER, _LABEL = range(5)


@dataclass(frozen=True)
class DeepFeCA(DeepMethod):
    r"""Federated deep clustering: a network and clusters of its features, learned with a server (DeepFeCA).

    Rounds alternate between clustering of the features by a one-shot server method, training of the network on the
    cluster labels [2]_, and averaging of its parameters. Every point is an image.

    Parameters
    ----------
    k : int
        Number of clusters, and of prototypes.
    server : str or server method, default="feca"
        Method that clusters the features: feca, mavg, ffcm1, ffcm2, kfed, fkmeanscb, mufc, fkm, central (an upper
        bound) or none (every client clusters alone: a lower bound). In scripts also an object,
        ``KFED(10, local_k=20)``.
    network : str or pair of functions, default="conv"
        In scripts also ``(init(key, shape), apply(params, images))``, see `p2pkm.deep.networks`.

        * "linear": a matrix, initially the identity; for tests.
        * "mlp": 128 and 64 units.
        * "conv": three 3 x 3 convolutions with 16, 32 and 64 channels and group norm.
        * "resnet18": with group norm and a 3 x 3 stem.
    shape : str, optional
        Shape of an image, such as 28x28 or 32x32x3. Default: as in the file (.npz), otherwise a square of one channel.
    features : int, default=32
        Number D of features. The head of the network is linear, ReLU, linear, normalized to unit length.
    classifier : {"prototypes", "centered", "linear"}, default="prototypes"
        Rows of W in the loss.

        * "prototypes": C (DeepCluster-v2 [3]_).
        * "centered": C minus the mean of its rows, which separates clusters even if all features are similar (ours).
        * "linear": a linear layer, drawn in every round and discarded (as printed).
    temperature : float, default=0.1
        tau.
    epochs, batch : int, default=5, 32
        Epochs of a client in a round, and images in a batch.
    rate, momentum, decay : float, default=0.02, 0.9, 1e-6
        Learning rate, momentum and weight decay of the gradient descent.
    views : bool, default=True
        Whether images are augmented at random (shift, rotation, scale, brightness, noise).
    horizon : int, optional
        Rounds in which the learning rate falls to 0; default: those of the run.

    Raises
    ------
    ExperimentError
        If a parameter is out of range, JAX is not installed, or the network does not return [n, D].
    DataError
        If the points are not images of this shape.
    TrainingError
        During a run, if a loss is not finite. The last checkpoint remains.

    See Also
    --------
    DeepGossip
        The same on any graph, without a server.

    Notes
    -----
    **Update.** All clients start with the same parameters theta. Client m has features z_n = f(x_n; theta) of its
    images. One round of Algorithm 6 of [1]_, with corrections::

        client m:  report of the server method on its z_n                   (FeCA: centroids and radii)
        server:    C <- aggregate
        client m:  y_n <- nearest row of C to z_n
        client m:  theta_m <- `epochs` epochs of stochastic gradient descent from theta
        server:    theta <- sum_m |D_m| theta_m / sum_m |D_m|

    One more report and aggregation ends the run. The loss is the mean over two random views v and all images of
    CE(softmax(f(v(x_n)) W^T / tau), y_n), with the rows of C at unit length in W. The learning rate falls to 0 along a
    cosine, and momentum starts at 0 in every round.

    **Messages.** Up: the report of the server method, and once per round `|D_m|` and theta_m, P + 1 numbers as a table
    of `features` columns. Down: C, and theta likewise. Parameters are float32, but count 8 bytes each.

    **Convergence.** Not guaranteed. Results are bit-identical for any number of ranks on one machine.

    **Privacy.** No guarantee. The server receives the report of the server method, and the parameters of every client
    after its training, from which images can be reconstructed (gradient inversion).

    **Result.** Centroids, costs and scores refer to the features. `Result.learned` contains parameters, features and
    the labels of every round.

    References
    ----------
    .. [1] J. Xu, H.-Y. Chen, W.-L. Chao, Y. Zhang, "Jigsaw game: federated clustering", TMLR 2024: section 5,
       Algorithm 6.
    .. [2] M. Caron, P. Bojanowski, A. Joulin, M. Douze, "Deep clustering for unsupervised learning of visual features",
       ECCV 2018.
    .. [3] M. Caron et al., "Unsupervised learning of visual features by contrasting cluster assignments", NeurIPS 2020:
       DeepCluster-v2.

    Examples
    --------
    >>> import p2pkm
    >>> method = p2pkm.DeepFeCA(3, network="linear", shape="16x16", features=8)  # a run needs the extra deep
    >>> method.k, method.name
    (3, 'deepfeca')
    """

    card = Card(
        "deepfeca",
        family="deep",
        sends="network weights",
        points="none",
        line="learned features and clusters, with a server",
    )
    name: ClassVar[str] = card.name
    schedule: ClassVar[str] = "deep-star"
    traits: ClassVar[MethodTraits] = replace(TRAITS, needs_hub=True)

    def flops(self, work: Work) -> Integers:
        """Count the operations of a turn: a third of a client's round, for its three turns; the server adds up rows."""
        return self.count_flops(work) // 3 + 2 * work.rows * self.features

    def expected_messages(self, known: Known) -> ByRound:
        """Predict the messages: reports in the initial exchange; reports, centroids and parameters in every round."""
        n, learner = known.clients, self.learner(known.features)
        _, report, answer = self.expected_report(known, learner.width)
        height = [-(-numbers // learner.width) for numbers in (learner.parameters + 1, learner.parameters)]
        turns = sum((tables(n, rows, learner.width) for rows in height), report) + answer
        return ByRound(report, answer + turns, turns)

    def initial_state(self, devices: Devices, start: Any) -> DeepState:
        """Draw the parameters, and prepare the first reports of the clients."""
        learned = self.begin(devices)
        n, width = len(devices), learned.features.values.shape[1]
        absent = np.full((n, self.k, width), np.inf)
        return DeepState(absent, np.zeros(n, np.bool_), learned, *self.report(learned, absent, devices))

    def message(self, state: DeepState, devices: Devices) -> DenseMessages:
        """Send the prepared tables of the active devices."""
        return DenseMessages(state.values, np.where(devices.active_devices, state.rows, -1), ragged=True)

    def update(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Train, average, report, cluster or label, depending on the turn."""
        turn = (devices.turn + (_CLUSTER if devices.round == 1 else 0)) % 5
        steps = self._train, self._average, self._report, self._cluster, self._receive_centroids
        return steps[turn](state, inbox, devices)

    def _train(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Train at the clients, and prepare their parameters and numbers of images."""
        learned = self.train(state.derived, state.centroids, devices)
        row = np.column_stack((devices.sizes, learned.theta)).astype(np.float64)
        return self._prepare(state._replace(derived=learned), flatten(row, state.centroids.shape[2]))

    def _average(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Average the parameters at the server."""
        theta = state.derived.theta.copy()
        for i in np.flatnonzero(devices.active_devices):
            rows = _read(inbox, slice(*devices.indptr[i : i + 2]), state, theta.shape[1] + 1)
            total = np.cumsum(rows[:, 0])[-1]
            if total > 0.0:
                theta[i] = np.cumsum(rows[:, :1] * rows[:, 1:], axis=0)[-1] / total
        learned = state.derived._replace(theta=theta)
        table = flatten(theta.astype(np.float64), state.centroids.shape[2])
        return self._prepare(state._replace(derived=learned), table)

    def _report(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Store the received parameters at the clients, and prepare reports of their features."""
        theta, active = state.derived.theta.copy(), devices.active_devices
        theta[active] = _read(inbox, devices.indptr[:-1][active], state, theta.shape[1])
        learned = self.embed(state.derived._replace(theta=theta), devices)
        return self._prepare(state._replace(derived=learned), *self.report(learned, state.centroids, devices))

    def _cluster(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Cluster the reports at the server."""
        centroids, width = state.centroids.copy(), state.values.shape[2]
        for i in np.flatnonzero(devices.active_devices):
            edges = range(devices.indptr[i], devices.indptr[i + 1])
            reports = [inbox.tables_of(e, inbox.rows_of(e), width) for e in edges]
            centroids[i] = self.aggregate(reports, state.derived, devices)
        return self._prepare(state._replace(centroids=centroids), *pack(centroids))

    def _receive_centroids(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Store the received centroids at the clients, and label their images; nothing is sent in this turn."""
        centroids, active = state.centroids.copy(), devices.active_devices
        if self.is_local_only:
            centroids[active] = self.cluster_locally(state.derived, devices)[active]
        else:
            edges = devices.indptr[:-1][active]
            is_row = np.arange(self.k) < inbox.rows_of(edges)[:, None]
            received = inbox.tables_of(edges, self.k, centroids.shape[2])
            centroids[active] = np.where(is_row[:, :, None], received, np.inf)
        learned = self.label(state.derived, centroids, devices)
        state = state._replace(centroids=centroids, derived=learned)
        no_table = np.zeros((len(devices), 1, centroids.shape[2]))
        return self._prepare(state, no_table, np.full(len(devices), -1))

    @staticmethod
    def _prepare(state: DeepState, values: Floats, rows: Integers | None = None) -> DeepState:
        """Return the state with the tables that are sent next, of the given numbers of rows (default: all)."""
        return state._replace(values=values, rows=np.full(len(values), values.shape[1]) if rows is None else rows)


def _read(inbox: Inbox, edges: Any, state: DeepState, q: int) -> Floats:
    """Read vectors of q numbers that were received as tables, float64[b, q]."""
    width = state.centroids.shape[2]
    return unflatten(inbox.tables_of(edges, -(-q // width), width), q)
