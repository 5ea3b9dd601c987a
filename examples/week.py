"""A week of a thousand phones: which method follows points that change, while phones come and go with the time of day?

Covers
    A fault trace and a data stream made in Python, the time of a modeled network, methods with and without a server.

Scenario
    Phones take part when they are charged and idle, mostly at night, in three time zones: four times as many at night
    as by day. Every hour is one round: each phone that takes part acts once. A phone holds five points on average; each
    is replaced once a day on average. On Saturday at midnight habits change: two of eight clusters move. The server
    asks a tenth of the phones, or all. ``--devices 100`` is a small version.
"""

# %% The phones
import argparse
import json
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


def write_absences(path, devices, hours, seed):
    """Write when each phone is unavailable, as a fault trace.

    A phone that does not take part joins with a probability that depends on its local time, and takes part for about
    four hours. Bonawitz et al. (2019) report that about four times as many phones take part at night as by day.
    """
    rng = np.random.default_rng(seed)
    zones = rng.integers(-1, 2, devices)
    online = rng.random(devices) < 0.3
    lines = [{"kind": "trace", "devices": devices, "stages": "method"}]
    since = np.zeros(devices, int)
    for hour in range(1, hours + 1):
        night = 0.5 + 0.5 * np.cos(2 * np.pi * (hour + zones - 3) / 24)  # 1 at three o'clock
        change = np.where(online, rng.random(devices) < 0.25, rng.random(devices) < 0.03 + 0.35 * night**2)
        joining = change & ~online
        lines += [{"kind": "away", "round": int(since[i]), "device": int(i), "rounds": int(hour - since[i])}
                  for i in np.flatnonzero(joining) if hour > since[i]]  # fmt: skip
        since[change & online] = hour
        online ^= change
    lines += [{"kind": "away", "round": int(since[i]), "device": int(i), "rounds": hours + 1 - int(since[i])}
              for i in np.flatnonzero(~online)]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def count_present(path, devices, hours):
    """Return the number of phones that take part in each hour."""
    present = np.full(hours + 1, devices)
    for line in map(json.loads, path.read_text().splitlines()[1:]):
        present[line["round"] : line["round"] + line["rounds"]] -= 1
    return present


def play(name, devices, hours, absences):
    """Return the excess over central k-means in each hour, and bytes and seconds of the busiest device."""
    points, labels = p2pkm.blobs(clusters=CLUSTERS, points=devices * POINTS // CLUSTERS, features=2, seed=0)
    owner = p2pkm.partition.dirichlet(labels, devices, alpha=1.0, seed=0)
    shards = p2pkm.Shards.deal(points, owner, devices=devices, labels=labels)
    is_peer = name in PEER_METHODS
    method = PEER_METHODS[name] if is_peer else p2pkm.DWFKM(CLUSTERS)
    graph = topologies.small_world(devices, degree=6, rewire=0.1, seed=0) if is_peer else None
    share = None if is_peer else SERVER_METHODS[name]
    stream = p2pkm.DataStream(kind="jump", share=1 / 24, at=SATURDAY)
    # Phones that the server has not asked have no centroids yet.
    warnings.simplefilter("ignore", ConvergenceWarning)
    result = p2pkm.simulate(
        method, graph, shards, rounds=hours, seed=0, all_rounds=True, faults=str(absences), stream=stream,
        link_model="edge", client_share=share, progress=False,
    )  # fmt: skip
    records = [record for record in result.rounds if record["stage"] == result.rounds[-1]["stage"]]
    hour = [record["round"] for record in records]
    excess = [np.nan if record["ratio_mean"] is None else record["ratio_mean"] - 1 for record in records]
    return hour, excess, result.summary["wire_bytes"], result.summary["bytes_busiest"]


# %% A week
def main():
    """Play the week with all methods and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--hours", type=int, default=7 * 24)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    names = [*PEER_METHODS, *SERVER_METHODS]
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(given.jobs) as pool:
        absences = Path(folder, "absences.jsonl")
        write_absences(absences, given.devices, given.hours, seed=0)
        present = count_present(absences, given.devices, given.hours)
        runs = [pool.submit(play, name, given.devices, given.hours, absences) for name in names]
        found = {name: run.result() for name, run in zip(names, runs, strict=True)}
    figure, (quality, phones) = plt.subplots(
        2, 1, figsize=(9, 6), sharex=True, layout="constrained", height_ratios=(3, 1)
    )
    print(
        f"{'method':36} {'mean excess':>12} {'Monday-Friday':>14} {'weekend':>8} {'MB encoded':>11} {'MB busiest':>11}"
    )
    for (name, (hour, excess, size, busiest)), color in zip(found.items(), mpl.colormaps["tab10"].colors, strict=False):
        hour, excess = np.array(hour), np.array(excess)
        parts = [np.nanmean(excess), *(np.nanmean(excess[part]) if part.any() else np.nan
                                       for part in (hour < SATURDAY, hour >= SATURDAY))]  # fmt: skip
        print(f"{name:36} {parts[0]:12.4f} {parts[1]:14.4f} {parts[2]:8.4f} {size / 1e6:11.2f} {busiest / 1e6:11.3f}")
        line = "--" if name in SERVER_METHODS else "-"
        quality.plot(hour, 100 * excess, line, color=color, label=name, linewidth=1.4)
    quality.set_yscale("log")
    quality.set_ylabel("cost above central k-means (%)")
    quality.set_title("Points that change, and phones that come and go", loc="left")
    figure.legend(loc="outside lower center", fontsize=9, ncols=4)
    phones.plot(present, color="gray")
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
