"""FKM by Flower's simulation: a NumPy client, its rounds over the grid. Run by `tests.benchmarks.peers.fkm`."""

# mypy: ignore-errors
# What it imports is in an environment of its own.

import sys
import time

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from tests.benchmarks.peers.fkm_twin import Task, play, step

_PATH = sys.argv[1]
client, server = ClientApp(), ServerApp()


@client.train()
def train(message, context):
    """Take a step from the centroids in the message."""
    (model,) = message.content["model"].to_numpy_ndarrays()
    number = int(context.node_config["partition-id"])
    points = np.load(f"{_PATH}/points.npy", mmap_mode="r")  # `Task` reads the words of the program, not of Ray's worker
    table = step(np.asarray(points[number]), model)
    record = ArrayRecord.from_numpy_ndarrays([table, np.array([number])])
    return Message(RecordDict({"model": record}), reply_to=message)


@server.main()
def main(grid: Grid, context):
    """Play the rounds."""
    task = Task.read(_PATH)
    while len(nodes := list(grid.get_node_ids())) < len(task.points):
        time.sleep(0.1)

    def ask(model, t):
        sent = [
            Message(RecordDict({"model": ArrayRecord.from_numpy_ndarrays([model])}), node, "train", group_id=str(t))
            for node in nodes
        ]
        found = {}
        for reply in grid.send_and_receive(sent):
            table, number = reply.content["model"].to_numpy_ndarrays()
            found[int(number[0])] = table
        return [found[number] for number in range(len(nodes))]

    play(task, ask, ("flwr", "ray", "numpy"))


if __name__ == "__main__":
    run_simulation(server, client, num_supernodes=len(Task.read(_PATH).points),
                   backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})  # fmt: skip
