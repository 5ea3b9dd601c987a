"""FKM by fluke's clients, server and channel, a round as its `CentralizedFL.run` has it, without progress bars.

Run by `tests.benchmarks.peers.fkm`.
"""

# mypy: ignore-errors
# What it imports is in an environment of its own.

import sys

import numpy as np
from fluke.client import Client
from fluke.server import Server

from tests.benchmarks.peers.fkm_twin import Task, play, step


class Stepper(Client):
    """A client whose training is a Lloyd step."""

    def receive_model(self):
        self.model = self.channel.receive(self.index, "server", msg_type="model").payload

    def fit(self, override_local_epochs=0):
        self.model = step(self.train_set, self.model)
        return 0.0


def main() -> None:
    """Play the rounds."""
    task = Task.read(sys.argv[1])
    clients = [Stepper(i, np.asarray(points), None, None, None) for i, points in enumerate(task.points)]
    server = Server(None, None, clients)
    for client in clients:
        client.set_channel(server.channel)

    def ask(model, t):
        server.model = model
        server.broadcast_model(clients)
        for client in clients:
            client.local_update(t)
        return list(server.receive_client_models(clients, state_dict=False))

    play(task, ask, ("fluke-fl", "torch", "numpy"))


if __name__ == "__main__":
    main()
