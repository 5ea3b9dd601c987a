"""FKM by NVFlare's simulator: a controller that broadcasts the centroids, an executor that answers with a table.

Its k-means recipe is another algorithm (k-means by small batches), so this is the smallest workflow of our own. A
client is a process; where more clients than `_THREADS` are asked for, each of its tasks is one. Run by
`tests.benchmarks.peers.fkm`.
"""

# mypy: ignore-errors
# What it imports is in an environment of its own.

import sys
import tempfile
from pathlib import Path

import numpy as np
from nvflare.apis.controller_spec import Task as Job
from nvflare.apis.executor import Executor
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.job_config.api import FedJob
from nvflare.private.fed.app.simulator.simulator_runner import SimulatorRunner

from tests.benchmarks.peers import fkm_nvflare  # by its name also where this is `__main__`: clients import it
from tests.benchmarks.peers.fkm_twin import Task, play, step

_THREADS = 40  # clients at once, 80 MB each


class Stepper(Executor):
    """Takes a step from the centroids that arrive."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        points = np.load(f"{self.folder}/points.npy", mmap_mode="r")[int(fl_ctx.get_identity_name().split("-")[1]) - 1]
        answer = Shareable()
        answer["table"] = step(np.asarray(points), shareable["model"])
        return answer


class Rounds(Controller):
    """Plays the rounds."""

    def control_flow(self, abort_signal, fl_ctx):
        task = Task.read(sys.argv[1])  # the server is a fork of the program
        n = len(task.points)

        def ask(model, t):
            found = {}

            def keep(client_task, fl_ctx):
                found[client_task.client.name] = client_task.result["table"]

            sent = Shareable()
            sent["model"] = model
            self.broadcast_and_wait(Job("train", sent, result_received_cb=keep), fl_ctx, min_responses=n,
                                    abort_signal=abort_signal)  # fmt: skip
            return [found[f"site-{i + 1}"] for i in range(n)]

        play(task, ask, ("nvflare", "numpy"))

    def start_controller(self, fl_ctx):
        pass

    stop_controller = start_controller

    def process_result_of_unknown_task(self, client, task_name, client_task_id, result, fl_ctx):
        pass


def main() -> None:
    """Run the job."""
    folder, n = sys.argv[1], int(sys.argv[2])
    job = FedJob("fkm", min_clients=n)
    job.to_server(fkm_nvflare.Rounds())
    job.to_clients(fkm_nvflare.Stepper(folder))
    with tempfile.TemporaryDirectory() as place:
        job.export_job(place)
        SimulatorRunner(f"{place}/fkm", str(Path(place) / "work"), n_clients=n, threads=min(n, _THREADS),
                        max_clients=n).run()  # fmt: skip


if __name__ == "__main__":
    main()
