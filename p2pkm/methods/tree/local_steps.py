"""Local steps after a common clustering: every device fits the common centroids to its own points."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, NoMessages
from p2pkm.core.messages import DenseMessages, Inbox, no_messages
from p2pkm.core.protocols import MethodBase, Objective
from p2pkm.core.states import optional
from p2pkm.core.traits import MessageContent, MethodTraits


class LocalStepsState(NamedTuple):
    """State of a batch. Checkpoints do not hold it: the stage is repeated from the last checkpoint of the method.

    Attributes
    ----------
    centroids, previous : float64[n, k, d]
        Centroids of each device after the last step and before it.
    converged : bool[n]
    common : float64[n, k, d]
        Common centroids, from which the steps started.
    group : int64[n] or None
        Group of each device; None without groups.
    """

    centroids: Floats
    previous: Floats
    converged: Mask
    common: Floats
    group: Integers | None


class PulledObjective(Objective):
    """Local losses, plus `pull` times the squared distances to the common centroids.

    Parameters
    ----------
    pull : float
        Weight of a common centroid, in points of mean weight.
    """

    def __init__(self, pull: float) -> None:
        self.pull = pull

    def add_terms(self, state: LocalStepsState, devices: Devices) -> Floats:
        """Compute the penalty of each device, float64[n]."""
        is_present = np.isfinite(state.common)
        moves = np.subtract(state.centroids, state.common, out=np.zeros_like(state.common), where=is_present)
        n, k, d = moves.shape  # n may be 0: a rank without devices
        squares = np.square(moves).reshape(n, k * d)
        return self.pull * devices.unit * np.cumsum(squares, axis=1)[:, -1]


@dataclass(frozen=True)
class LocalSteps(MethodBase):
    """Lloyd steps of every device on its local points from the common centroids, which may pull its own.

    Attributes
    ----------
    k : int
        Number of clusters.
    steps : int
        Largest number of steps.
    pull : float
        Weight of a common centroid, in points of mean weight; 0: none.

    Notes
    -----
    **Objective.** ``sum_i L_i(v_i) + pull sum_ic |v_ic - w_c|^2`` with the common centroids w.

    **Update.** Device i assigns its points to the nearest of its centroids v_i, at first w; n_ic of them belong to c.
    For fixed labels the objective has the minimum::

        v_ic = (sum of these points + pull w_c) / (n_ic + pull)

    Without a pull a centroid without points does not move. A device whose labels do not change has converged.

    **Messages.** None.
    """

    name: ClassVar[str] = "local-steps"
    schedule: ClassVar[str] = "jacobi"
    traits: ClassVar[MethodTraits] = MethodTraits(message_content=MessageContent.OTHER)
    k: int
    steps: int
    pull: float

    @property
    def objective(self) -> Objective:
        """Objective of the stage, see Notes."""
        return PulledObjective(self.pull) if self.pull else Objective()

    def expected_messages(self, known: Known) -> NoMessages:
        """Expect no messages."""
        return NoMessages()

    def initial_state(self, devices: Devices, start: Any) -> LocalStepsState:
        """Take all steps: a stage without messages has no rounds."""
        common: Floats = start.centroids
        previous = centroids = common
        _, labels = devices.kernels.losses(*devices.kernel_inputs, centroids)
        converged = np.zeros(len(devices), np.bool_)
        for _ in range(self.steps):
            previous, centroids = centroids, self._step(devices, labels, centroids, common)
            before, (_, labels) = labels, devices.kernels.losses(*devices.kernel_inputs, centroids)
            # A step with the same labels changes no bit, so other devices of the batch may take more steps.
            owner = np.repeat(np.arange(len(devices)), devices.sizes)
            converged = np.bincount(owner[labels != before], minlength=len(devices)) == 0
            if converged.all():
                break
        return LocalStepsState(centroids, previous, converged, common, optional(start, "group"))

    def _step(self, devices: Devices, labels: Integers, centroids: Floats, common: Floats) -> Floats:
        """Minimize the objective for fixed labels, float64[n, k, d]."""
        pull = self.pull * devices.unit
        # Deviations from the common centroids, because sums of points far from the origin lose digits.
        origin = np.where(np.isfinite(common), common, 0.0)
        _, weights, moves, _ = devices.kernels.cluster_moments(*devices.kernel_inputs, labels, origin)
        masses = weights[:, :, None] + pull
        return np.where(masses > 0.0, common + moves / np.where(masses > 0.0, masses, 1.0), centroids)

    def message(self, state: LocalStepsState, devices: Devices) -> DenseMessages:
        """Send nothing."""
        return no_messages(len(devices), 1, devices.d)

    def update(self, state: LocalStepsState, inbox: Inbox, devices: Devices) -> LocalStepsState:
        """Return the state unchanged: all steps have been taken."""
        return state
