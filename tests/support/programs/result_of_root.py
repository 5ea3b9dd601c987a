"""Run each case twice on all ranks, with the result on all ranks and on rank 0 only; print a line of JSON per rank."""

import json
import os
from dataclasses import fields, is_dataclass
from unittest.mock import patch

import numpy as np

import p2pkm
import topologies
from p2pkm.engine.run_job import play, report, report_to_root
from p2pkm.network.world import connect

TIMES = {"wall_seconds", "compile_seconds"}
OTHER = p2pkm.blobs(clusters=2, points=20, seed=1)
CASES = {
    "labels": (p2pkm.GTVMin(2), {}),
    "scaled": (p2pkm.GTVMin(2), {"scale": "standard", "silhouette": True}),
    "groups": (p2pkm.GTVMin(2, groups=True), {}),
    "server": (p2pkm.FKM(2), {}),
}


def is_same(one, other):
    """Compare results field by field, all but seconds."""
    if isinstance(one, dict):
        names = {*one, *other} - TIMES
        return all(is_same(one.get(name), other.get(name)) for name in names)
    if is_dataclass(one):
        return all(is_same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return one == other or one != one


def main():
    world = connect()
    points, labels = OTHER
    shards = p2pkm.Shards.deal(points, p2pkm.partition.iid(len(points), 5, seed=0), labels=labels)
    for name, (method, options) in CASES.items():
        outcomes = []

        def report_twice(outcome, outcomes=outcomes):
            whole, only = report(outcome), report_to_root(play(outcome.dealt, outcome.observers))
            outcomes.append("none" if only is None else "same" if is_same(whole, only) else "different")
            return whole

        graph = None if name == "server" else topologies.ring(5)
        with patch("p2pkm.experiments.simulate.report", report_twice):
            p2pkm.simulate(method, graph, shards, rounds=3, **options)
        line = json.dumps({"ranks": world.size, "rank": world.rank, "name": name, "outcomes": outcomes})
        os.write(1, f"{line}\n".encode())  # in one piece: several ranks write at the same time


if __name__ == "__main__":
    main()
