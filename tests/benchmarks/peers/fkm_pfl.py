"""FKM by pfl's simulated backend, which adds up what its users send. Run by `tests.benchmarks.peers.fkm`."""

# mypy: ignore-errors
# What it imports is in an environment of its own.

import sys
from itertools import cycle

import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import FederatedAlgorithm
from pfl.common_types import Population
from pfl.context import CentralContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import AlgorithmHyperParams, ModelHyperParams
from pfl.internal.ops import numpy_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.metrics import Metrics
from pfl.stats import TrainingStatistics

from tests.benchmarks.peers.fkm_twin import Task, play, step


class Tables(TrainingStatistics):
    """Rows of users, which are not added up but put one after another: the server of FKM needs them all."""

    def __init__(self, tables):
        self.tables = tables

    def __add__(self, other):
        self.tables += other.tables
        return self

    def __repr__(self):
        return f"{len(self.tables)} tables"

    @property
    def num_parameters(self):
        return sum(table.size for table in self.tables)

    def get_weights(self):
        return np.zeros(0), self.tables

    def from_weights(self, metadata, weights):
        return Tables(list(weights))


class FKM(FederatedAlgorithm):
    """What a user does; the rounds are played by `play`."""

    def simulate_one_user(self, model, user_dataset, central_context):
        return Tables([step(user_dataset.raw_data[0], model)]), Metrics()

    def get_next_central_contexts(self, *arguments):
        raise NotImplementedError

    def process_aggregated_statistics(self, *arguments):
        raise NotImplementedError


def main() -> None:
    """Play the rounds."""
    set_framework_module(numpy_ops)
    task = Task.read(sys.argv[1])
    users = cycle(range(len(task.points)))
    data = FederatedDataset(lambda i: Dataset((np.asarray(task.points[i]),), user_id=str(i)), lambda: next(users))
    backend = SimulatedBackend(data, data)

    def ask(model, t):
        context = CentralContext(t, False, len(task.points), Population.TRAIN, AlgorithmHyperParams(),
                                 ModelHyperParams(), seed=t)  # fmt: skip
        found, _ = backend.gather_results(model=model, training_algorithm=FKM(), central_context=context)
        return found.tables

    play(task, ask, ("pfl", "numpy"))


if __name__ == "__main__":
    main()
