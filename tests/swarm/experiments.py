"""Experiments drawn from a seed: a few options of everything that the command line offers, and small data."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from p2pkm.data.partition import PARTITIONS
from p2pkm.methods.registry import METHODS
from tests.support.methods import spell
from topologies import FAMILIES, TIME_VARYING

_KEYS = {"small-world": ":degree=2", "random-regular": ":degree=2", "caveman": ":size=4", "erdos-renyi": ":p=0.6"}
_WHOLE = {"karate", "davis", "les-miserables", "florentine", "margulis", "file", "gallery"}  # with a size of their own
_FORMATS = ("csv", "tsv", "npy", "npz", "json")
_KINDS = ("clusters", "clusters", "clusters", "grid", "equal", "few", "far", "tiny", "line")


_NEEDS = {"stale-policy": ("faults", "loss=0.3"), "deadline": ("link-model", "wan"), "k-max": ("clusters", "auto")}
_PARAMETERS = {
    "gtvmin": ("star_term=false", "matching=optimal", "normalize_losses=true", "safeguard=true", "update=as-printed",
               "swaps=true"),
    "treelloyd": ("search=breathing", "groups=auto", "groups=2", "tol=0", "local_steps=3"),
    "fedlloyd": ("search=breathing", "tol=0", "local_steps=3"),
    "ditto": ("pull=0", "pull=5", "local_steps=1"),
    "dwfkm": ("local_steps=1", "client_n_init=2", "tol=0.1"),
    "consensus": ("gossips=1", "tol=0.1"), "pushsum": ("gossips=2", "counters=true", "counters=false"),
    "tracking": ("gossips=1", "counters=true", "counters=false"),
    "private": ("curious=2", "trust=server", "relation=replace", "center=3", "delta=1e-4"),
    "feddp": ("steps=0", "server_points=3", "relation=replace", "center=3"),
    "admm": ("eta=0.5", "eta=50"), "gossip": ("share=0.5", "share=1"), "dgc": ("rho=2", "steps=1", "step=0.1"),
    "gossip-sum": ("sends=3",), "epidemic": ("cycles=2",), "coreset": ("size=9", "spread=tree", "n_init=2"),
    "fkm": ("seeding=lloyd", "seeding=random", "client_n_init=3", "server_seeding=weighted", "keep_empty=true",
            "weighted=false", "local_steps=3", "min_count=1"),
    "kfed": ("local_k=2", "seeding=greedy", "device=first", "finish=converge", "labels=induced"),
    "fkmeanscb": ("local_k=2", "epsilon=1", "client_n_init=2", "server_n_init=2"),
    "feca": ("variant=theoretical", "prune=false", "pair=keep", "local_k=2", "seeding=random", "local_steps=2"),
    "ffcm1": ("server_n_init=2",), "ffcm2": ("server_n_init=2",), "mavg": ("client_n_init=3",),
    "mufc": ("local_k=2", "local_lloyd=true", "server_n_init=2"), "central": ("n_init=2",), "cdkm": ("n_init=2",),
    "local": ("n_init=1",),
}  # fmt: skip
_OF_GTVMIN = {"robust", "coupling", "alpha", "relaxation", "groups", "local-steps", "schedule"}


class Experiment(NamedTuple):
    """Options of the command line without their dashes (a flag has no value), and the seed of everything else.

    The value ``@csv,kind=far,m=30,d=2`` of `data` is a file that is written for the experiment.
    """

    seed: int
    options: dict[str, str]

    def words(self, folder: Path) -> list[str]:
        """Return the words of the command line; writes the data of the experiment into the folder."""
        words: list[str] = []
        for name, value in self.options.items():
            if value.startswith("@"):
                value = str(write_data(value, self.seed, folder))
            words += [f"--{name}", value] if value else [f"--{name}"]
        return words

    def text(self) -> str:
        """Return the experiment in one word for the shell."""
        return json.dumps({"draw": self.seed, **self.options}, separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> "Experiment":
        """Return the experiment of such a text."""
        given = json.loads(text)
        return cls(given.pop("draw"), given)


def draw(seed: int) -> Experiment:
    """Return the experiment of a seed; about half of them are refused."""
    rng = Random(seed)
    n = rng.choice((1, 2, 3, 4, 5, 6, 8, 9, 12, 16))
    options = {"devices": str(n), "clusters": str(rng.choice((1, 2, 3, 3, 4, 5))), "rounds": str(rng.randint(0, 9)),
               "seed": str(rng.randint(0, 10**6)), "data": _data(rng)}  # fmt: skip
    if rng.random() < 0.8:
        options["algorithm"] = _method(rng)
    if rng.random() < 0.6:
        name = rng.choice(sorted((FAMILIES.keys() | TIME_VARYING.keys()) - _WHOLE))
        options["graph"] = name + _KEYS.get(name, "")
    if rng.random() < 0.6 and "device-column" not in options["data"]:
        options["partition"] = _partition(rng)
    rest = list(_optional(rng))
    options |= dict(rng.sample(rest, rng.choice((0, 1, 1, 2, 2, 3, 4, 6))))
    if rng.random() < 0.8:  # most experiments shall run
        _complete(options, rng)
    return Experiment(seed, options)


def _complete(options: dict[str, str], rng: Random) -> None:
    """Add what an option needs."""
    for name, (needed, value) in _NEEDS.items():
        if name in options:
            options[needed] = options[needed] if needed in options and needed != "clusters" else value
    if options["data"].endswith("untidy=1"):  # a column of words, and fields without a value
        options |= {rng.choice(("encode", "drop")): "ward", "missing": rng.choice(("drop", "mean", "median"))}
    if _OF_GTVMIN & options.keys() and not options.get("algorithm", "gtvmin").startswith("gtvmin"):
        options["algorithm"] = "gtvmin"


def _data(rng: Random) -> str:
    if rng.random() < 0.4:
        return f"grid16:points={rng.randint(1, 8)}"
    kind, form = rng.choice(_KINDS), rng.choice(_FORMATS)
    text = f"@{form},kind={kind},m={rng.choice((1, 5, 17, 40, 90))},d={rng.choice((1, 2, 2, 3, 7))}"
    return text + ",untidy=1" * (form in {"csv", "tsv"} and rng.random() < 0.5)


def _method(rng: Random) -> str:
    """Return a method, half of the time with up to two parameters of its own."""
    name = rng.choice(sorted(METHODS))
    text, known = spell(name), _PARAMETERS.get(name, ())
    given = {one.partition("=")[0]: one for one in rng.sample(known, min(len(known), rng.choice((0, 0, 1, 2))))}
    return text + (":,"[":" in text] if given else "") + ",".join(given.values())


def _partition(rng: Random) -> str:
    name = rng.choice(sorted(set(PARTITIONS) - {"column"}))
    keys = {
        "dirichlet": f":alpha={rng.choice((0.05, 0.3, 3))},by={rng.choice(('class', 'device'))}",
        "beta": f":beta={rng.choice((0.1, 1))}", "by-label": f":labels={rng.randint(1, 3)}",
        "quantity": f":alpha={rng.choice((0.1, 1))}",
    }  # fmt: skip
    return name + keys.get(name, "") * rng.randint(0, 1)


def _optional(rng: Random) -> Iterator[tuple[str, str]]:
    """Yield one value of every option that an experiment may do without."""
    yield "schedule", rng.choice(("jacobi", "colored", "async"))
    yield "init", _init(rng)
    yield "faults", _faults(rng)
    yield "stale-policy", rng.choice(("drop", "keep:age=1", "keep:age=3"))
    yield "deadline", rng.choice(("1e-3", "0.08", "0.2", "100"))
    yield "client-share", rng.choice(("0.1", "0.5", "0.6:by=size", "1"))
    yield (
        "byzantine",
        (
            f"{rng.randint(1, 2)}:kind={rng.choice(('random', 'flip', 'drift', 'nan', 'collude'))},"
            f"place={rng.choice(('random', 'central', 'peripheral'))},stages={rng.choice(('method', 'all'))}"
        ),
    )
    yield "robust", rng.choice(("clip", "trim", "saturate", "median"))
    yield "min-cluster-size", str(rng.randint(1, 6))
    yield "noise", rng.choice(("0.01", "0.5"))
    yield "quantize", rng.choice(("rice", "int8", f"rice:bits={rng.randint(1, 20)}", "int8:bits=4,threshold=3"))
    yield "compress", f"{rng.choice(('topk', 'randomk'))}:share={rng.choice((0.05, 0.3, 0.5, 1))}"
    yield (
        "stream",
        (
            f"drawn:kind={rng.choice(('none', 'slow', 'jump', 'birth', 'turn'))},share={rng.choice((0, 0.1, 1))},"
            f"at={rng.randint(1, 4)}"
        ),
    )
    yield "link-model", rng.choice(("lan", "wan:latency=0.05", "edge", "lora", "wan:speed=1e6,bandwidth=1e5"))
    yield "scale", rng.choice(("standard", "minmax"))
    yield "dtype", "float32"
    yield "coupling", rng.choice(("0", "0.1", "10", "300", "auto", "strong", "bayes", "links"))
    yield "alpha", rng.choice(("0", "0.5", "20"))
    yield "relaxation", rng.choice(("0.5", "1", "1.5", "1.9", "auto"))
    yield "local-steps", str(rng.randint(1, 4))
    yield "tol", rng.choice(("0", "0.001", "0.5"))
    yield "groups", ""
    yield "all-rounds", ""
    yield "no-baselines", ""
    yield "silhouette", ""
    yield "allow-disconnected", ""
    yield "record-every", str(rng.randint(1, 5))
    yield "rank-partition", rng.choice(("blocks", "auto"))
    yield "require-converged", ""
    yield "k-max", str(rng.randint(1, 6))
    yield "clusters", "auto"


def _init(rng: Random) -> str:
    return rng.choice((
        "local", "bounding-box", "leader", "d2-sampling", "d2-sampling:greedy=true,draw=points", "flooded-summaries",
        "flooded-summaries:hops=1", "flooded-summaries:candidates=3", "tree-summaries", "tree-summaries:candidates=3",
        "rows", "rows:lean=true", "rows:least=2", "global", "global:candidates=2",
    ))  # fmt: skip


def _faults(rng: Random) -> str:
    kinds = {
        "loss": rng.choice(("0.1", "0.5", "1")), "loss_length": "3", "delay": rng.choice(("0.1", "0.6")),
        "max_delay": str(rng.randint(1, 4)), "link_failure": "0.2", "link_downtime": str(rng.randint(1, 4)),
        "dropout": rng.choice(("0.05", "0.3")), "dropout_length": str(rng.randint(1, 4)), "late_join": "0.4",
        "join_by": str(rng.randint(1, 5)), "straggler": "0.3", "straggler_length": str(rng.randint(1, 3)),
        "server": "0.3", "partition": "1-3", "stages": rng.choice(("method", "all")),
    }  # fmt: skip
    chosen = rng.sample(sorted(kinds), rng.randint(1, 4))
    return ",".join(f"{name}={kinds[name]}" for name in chosen)


def write_data(text: str, seed: int, folder: Path) -> Path:
    """Write the file that such a text describes, and return its path."""
    form, *keys = text[1:].split(",")
    given = dict(key.split("=") for key in keys)
    points, labels = make_points(given["kind"], int(given["m"]), int(given["d"]), seed)
    path = folder / f"points.{form}"
    if form == "npy":
        np.save(path, points)
    elif form == "npz":
        np.savez(path, points=points, labels=labels)
    elif form == "json":
        users = [f"user {i}" for i in range(1 + len(points) // 9)]
        shares = np.array_split(np.arange(len(points)), len(users))
        data = {user: {"x": points[own].tolist()} for user, own in zip(users, shares, strict=True)}
        counts = [len(own) for own in shares]
        path.write_text(json.dumps({"users": users, "num_samples": counts, "user_data": data}), "utf-8")
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter="," if form == "csv" else "\t")
            rows = [[repr(float(x)) for x in row] for row in points]
            names = [f"x{j}" for j in range(points.shape[1])]
            if "untidy" in given:
                rng = Random(seed)
                rows = [["" if rng.random() < 0.1 else field for field in [*row, rng.choice("abc")]] for row in rows]
                names.append("ward")
            writer.writerows([names, *rows])
    return path


def make_points(kind: str, m: int, d: int, seed: int) -> tuple["np.ndarray", "np.ndarray"]:
    """Return points float64[m, d] of a kind, and their classes int64[m]."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, m)
    points = 5.0 * rng.normal(size=(3, d))[labels] + rng.normal(size=(m, d))
    if kind == "grid":
        points = rng.integers(0, 3, (m, d)).astype(float)
    elif kind == "equal":
        points = np.full((m, d), 2.5)
    elif kind == "few":
        points = np.array([[0.0], [1.0]])[labels % 2] * np.ones(d)
    elif kind == "far":
        points = 1e3 + 1e-3 * rng.integers(0, 3, (m, d))
    elif kind == "tiny":
        points *= 1e-150
    elif kind == "line":
        points = np.arange(m)[:, None] * np.eye(1, d)
    return points, labels
