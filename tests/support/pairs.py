"""Runs that cover all valid pairs of method, graph, channel, schedule, initialization and partition.

The list is stored in pairs.txt; python -m tests.support.pairs writes it again.
"""

import random
from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from pathlib import Path

from p2pkm.data.partition import PARTITIONS
from tests.support.methods import METHODS, spell
from tests.support.run_cli import fill, here
from topologies import FAMILIES, TIME_VARYING

LIST = Path(__file__).with_suffix(".txt")
DEVICES = 8
COMMON = (
    "--data", "grid16:points=3", "-k", "3", "--rounds", "2", "--no-baselines", "--out", "none", "--format", "json",
)  # fmt: skip
_KEYS = {"small-world": ":degree=2", "random-regular": ":degree=2", "caveman": ":size=4", "erdos-renyi": ":p=0.6"}
_SIZES = {"karate": 34, "davis": 32, "les-miserables": 77, "florentine": 15, "margulis": 9}
FACTORS = {  # the first value of each is the default
    "method": {name: ("--algorithm", spell(name)) for name in METHODS},
    "graph": {"": ()} | {
        name: ("--graph", name + _KEYS.get(name, ""), "--devices", str(_SIZES.get(name, DEVICES)))
        for name in sorted((FAMILIES.keys() | TIME_VARYING.keys()) - {"file", "gallery"})
    },
    "channel": {
        "": (),
        "loss": ("--faults", "loss=0.2"),
        "delay": ("--faults", "delay=0.3,max_delay=2,stages=all"),
        "dropout": ("--faults", "dropout=0.2,link_failure=0.1"),
        "dropped": ("--faults", "delay=0.2", "--stale-policy", "drop"),
        "flip": ("--byzantine", "1:kind=flip,stages=all"),
        "nan": ("--byzantine", "1:kind=nan"),
        "suppression": ("--min-cluster-size", "2"),
        "noise": ("--noise", "0.1"),
        "integers": ("--quantize", "rice"),
        "sparse": ("--compress", "topk"),
        "virtual time": ("--link-model", "wan"),
    },
    "schedule": {name: ("--schedule", name) if name else () for name in ("", "jacobi", "colored", "async")},
    "init": {name: ("--init", name) if name else () for name in
             ("", "local", "bounding-box", "leader", "d2-sampling", "flooded-summaries", "tree-summaries", "rows")},
    "partition": {name: ("--partition", name) for name in PARTITIONS if name != "column"},
}  # fmt: skip
NAMES = tuple(FACTORS)
Run = tuple[str, ...]  # a value of each factor
Pair = frozenset[tuple[str, str]]  # two factors with a value of each
DEFAULTS: Run = tuple(next(iter(values)) for values in FACTORS.values())


def command_line(run: Run) -> list[str]:
    """Build the arguments of ``p2pkm``."""
    chosen = [word for name, value in zip(NAMES, run, strict=True) for word in FACTORS[name][value]]
    return [*COMMON, *fill(("--devices", str(DEVICES)), chosen)]


@cache
def refusal(run: Run) -> str:
    """Return the error message of a run, "" if it is valid."""
    ending = here(*command_line(run), "--dry-run")
    assert ending.code in {0, 2, 3}, ending
    return ending.err


def pairs_of(run: Run) -> set[Pair]:
    """List the pairs in a run."""
    return {frozenset(pair) for pair in combinations(zip(NAMES, run, strict=True), 2)}


def alone(pair: Pair) -> Run:
    """Build the run with this pair and otherwise default values."""
    return tuple(dict(pair).get(name, value) for name, value in zip(NAMES, DEFAULTS, strict=True))


def read() -> list[Run]:
    """Read the list of runs."""
    return [tuple(line.split(",")) for line in LIST.read_text("utf-8").splitlines()]


def all_pairs() -> dict[Pair, None]:
    """List all pairs of values of two factors, in a fixed order."""
    values = [[(name, value) for value in values] for name, values in FACTORS.items()]
    return {frozenset(pair): None for one, other in combinations(values, 2) for pair in product(one, other)}


def cover() -> Iterator[Run]:
    """Yield runs that cover all valid pairs: a greedy, deterministic choice."""
    rng, left = random.Random(0), all_pairs()
    refused = {pair for pair in left if refusal(alone(pair))}
    left = {pair: None for pair in left if pair not in refused}
    while left:
        pair = next(iter(left))
        tried = [run for run in _complete(pair, left, refused, rng) if not refusal(run)]
        best = max(tried, key=lambda run: len(pairs_of(run) & left.keys()), default=alone(pair))
        yield best
        for found in pairs_of(best):
            left.pop(found, None)


def _complete(pair: Pair, left: dict[Pair, None], refused: set[Pair], rng: random.Random) -> Iterator[Run]:
    """Yield candidate runs with this pair, whose other values add as many new pairs as possible."""
    for _ in range(3):
        chosen = dict(pair)
        for name in rng.sample([name for name in NAMES if name not in chosen], len(NAMES) - len(chosen)):

            def worth(value: str, name: str = name, chosen: dict[str, str] = chosen) -> tuple[int, float]:
                made = [frozenset({(name, value), one}) for one in chosen.items()]
                return (-1 if any(one in refused for one in made) else sum(one in left for one in made)), rng.random()

            chosen[name] = max(FACTORS[name], key=worth)
        yield tuple(chosen[name] for name in NAMES)


if __name__ == "__main__":
    LIST.write_text("".join(",".join(run) + "\n" for run in cover()), "utf-8")
