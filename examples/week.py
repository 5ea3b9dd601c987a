"""A week of a thousand phones: which method follows points that change, while phones come and go with the time of day?

Covers
    A generated fault trace in seconds, a data stream, the time of a modeled network, methods with and without a server.

Scenario
    Phones take part when they are charged and idle, mostly at night, in three time zones: four times as many at night
    as by day. A round begins every hour, and each phone that is online then acts once. A phone holds five points on
    average; each is replaced once a day on average. On Saturday at midnight habits change: two of eight clusters move.
    The server asks a tenth of the phones, or all. ``--devices 100`` is a small version. Three worlds with other seeds
    tell how much the numbers depend on them; the figure shows the first.
"""

# %% The phones
import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

import p2pkm
import topologies

CLUSTERS, POINTS = 8, 5
SATURDAY = 5 * 24
INIT = "tree-summaries"  # the default floods summaries where messages may be lost: 1 GB for a thousand phones
PEER_METHODS = {
    "GTVMin": p2pkm.GTVMin(CLUSTERS, init=INIT, coupling=10, schedule="jacobi"),
    "consensus": p2pkm.ConsensusLloyd(CLUSTERS, init=INIT, gossips=1),
    "push-sum": p2pkm.PushSumLloyd(CLUSTERS, init=INIT, gossips=1),
    "tracking": p2pkm.TrackingLloyd(CLUSTERS, init=INIT, gossips=1),
    "gossip": p2pkm.GossipMatching(CLUSTERS, init=INIT),
    "gossip-sum": p2pkm.GossipSum(CLUSTERS, init=INIT),
}
SERVER_METHODS = {"DWF k-means, all phones": None, "DWF k-means, a tenth of the phones": 0.1}


def write_trace(path, devices, hours, seed):
    """Write when each phone is online, and its speeds, in seconds; the command is ``p2pkm faults phones:...``.

    Four times as many phones are online at night as by day (Bonawitz et al. 2019), for about four hours at a stretch;
    speeds have heavy tails (Lai et al. 2022). A round begins an hour after the one before.
    """
    world = f"phones:days={hours / 24},zones=3"
    words = ["faults", world, "--graph", "ring", "--devices", str(devices), "--seed", str(seed), "--out", str(path)]
    subprocess.run([sys.executable, "-m", "p2pkm", *words], check=True, capture_output=True)


def count_online(path, devices, hours):
    """Return the number of phones that are online in each hour."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    is_online, lines = np.ones(devices, bool), [line for line in lines if "online" in line]
    online = []
    for hour in range(hours + 1):
        while lines and lines[0]["seconds"] <= 3600 * hour:
            line = lines.pop(0)
            is_online[line["device"]] = line["online"]
        online.append(int(is_online.sum()))
    return online


def play(name, devices, hours, trace, seed):
    """Return the excess over central k-means in each hour, bytes of all devices, and bytes of the busiest one."""
    points, labels = p2pkm.blobs(clusters=CLUSTERS, points=devices * POINTS // CLUSTERS, features=2, seed=seed)
    owner = p2pkm.partition.dirichlet(labels, devices, alpha=1.0, seed=seed)
    shards = p2pkm.Shards.deal(points, owner, devices=devices, labels=labels)
    is_peer = name in PEER_METHODS
    method = PEER_METHODS[name] if is_peer else p2pkm.DWFKM(CLUSTERS)
    graph = topologies.small_world(devices, degree=6, rewire=0.1, seed=seed) if is_peer else None
    share = None if is_peer else SERVER_METHODS[name]
    stream = p2pkm.DataStream(kind="jump", share=1 / 24, at=SATURDAY)
    # Phones that the server has not asked have no centroids yet.
    warnings.simplefilter("ignore", ConvergenceWarning)
    result = p2pkm.simulate(
        method, graph, shards, rounds=hours, seed=seed, all_rounds=True, faults=str(trace), stream=stream,
        link_model="edge", client_share=share, progress=False,
    )  # fmt: skip
    records = [record for record in result.rounds if record["stage"] == result.rounds[-1]["stage"]]
    excess = [np.nan if record["ratio_mean"] is None else record["ratio_mean"] - 1 for record in records]
    return excess, result.summary["wire_bytes"], result.summary["bytes_busiest"]


def show(name, runs):
    """Print the means over the runs of a method, and the lowest and highest mean excess."""
    excess = np.array([run[0] for run in runs])
    means = [np.nanmean(part) if part.size else np.nan for part in (excess, excess[:, :SATURDAY], excess[:, SATURDAY:])]
    of_runs = np.nanmean(excess, axis=1)
    size, busiest = np.mean([run[1:] for run in runs], axis=0) / 1e6
    print(f"{name:36} {means[0]:8.4f} {of_runs.min():8.4f} to {of_runs.max():6.4f} {means[1]:11.4f} {means[2]:8.4f} "
          f"{size:10.2f} {busiest:10.3f}")  # fmt: skip


# %% A week
def main():
    """Play the week with all methods and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--hours", type=int, default=7 * 24)
    parser.add_argument("--seeds", type=int, default=3, help="worlds with other points, graphs and phones")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    names = [*PEER_METHODS, *SERVER_METHODS]
    size = given.devices, given.hours
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(given.jobs) as pool:
        traces = [Path(folder, f"phones-{seed}.jsonl") for seed in range(given.seeds)]
        for seed, trace in enumerate(traces):
            write_trace(trace, *size, seed)
        online = count_online(traces[0], *size)
        started = {name: [pool.submit(play, name, *size, trace, seed) for seed, trace in enumerate(traces)]
                   for name in names}  # fmt: skip
        found = {name: [run.result() for run in runs] for name, runs in started.items()}
    figure, (quality, phones) = plt.subplots(
        2, 1, figsize=(9, 6), sharex=True, layout="constrained", height_ratios=(3, 1)
    )
    print(f"{'method':36} {'excess':>8} {'of the seeds':>18} {'Mon to Fri':>11} {'weekend':>8} {'MB encoded':>10} "
          f"{'MB busiest':>10}")  # fmt: skip
    for (name, runs), color in zip(found.items(), mpl.colormaps["tab10"].colors, strict=False):
        show(name, runs)
        line = "--" if name in SERVER_METHODS else "-"
        quality.plot(100 * np.array(runs[0][0]), line, color=color, label=name, linewidth=1.4)
    quality.set_yscale("log")
    quality.set_ylabel("cost above central k-means (%)")
    quality.set_title("Points that change, and phones that come and go", loc="left")
    figure.legend(loc="outside lower center", fontsize=9, ncols=4)
    phones.plot(online, color="gray")
    phones.set_ylabel("phones online")
    phones.set_ylim(0, None)
    days = range(0, given.hours + 1, 24)
    phones.set_xticks(days, [("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[day // 24 % 7] for day in days])
    for axes in (quality, phones):
        axes.grid(alpha=0.3)
        axes.axvline(SATURDAY, color="black", linewidth=0.8, linestyle=":")
    figure.savefig("week.png", dpi=120)


if __name__ == "__main__":
    main()
