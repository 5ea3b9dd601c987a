"""Make an experiment that fails as small as possible: fewest options, devices, rounds, clusters and points."""

from collections.abc import Iterator
from pathlib import Path

from tests.swarm.checks import find_faults
from tests.swarm.experiments import Experiment

Options = dict[str, str]


def shrink(experiment: Experiment, check: str, folder: Path) -> Experiment:
    """Return the smallest experiment found that fails the same check."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(experiment):
            if any(name == check for name, _ in find_faults(candidate, folder, check)[1]):
                experiment, smaller = candidate, True
                break
    return experiment


def _candidates(experiment: Experiment) -> Iterator[Experiment]:
    """Yield what is a step smaller, the largest steps first."""
    for smaller in (_without, _fewer, _simpler):
        yield from (experiment._replace(options=options) for options in smaller(experiment.options))


def _without(options: Options) -> Iterator[Options]:
    for name in options:
        if name not in {"devices", "clusters", "rounds", "data"}:
            yield {key: value for key, value in options.items() if key != name}


def _fewer(options: Options) -> Iterator[Options]:
    for name, least in (("rounds", 0), ("devices", 1), ("clusters", 1)):
        value = int(options[name]) if options[name].isdecimal() else least
        for fewer in dict.fromkeys((least, value // 2, value - 1)):
            if least <= fewer < value:
                yield options | {name: str(fewer)}


def _simpler(options: Options) -> Iterator[Options]:
    """Yield simpler data, and specs with a part less."""
    if options["data"].startswith("@"):
        yield options | {"data": "grid16:points=1"}
    for name in ("faults", "byzantine", "stream", "quantize", "algorithm"):
        parts = options.get(name, "").split(",")
        for i in range(name != "faults", len(parts) if len(parts) > 1 else 0):
            yield options | {name: ",".join(parts[:i] + parts[i + 1 :])}
