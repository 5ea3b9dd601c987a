"""Privacy budget of several runs of the method `private` on the same points.

Every run is a release with its own noise. Releases that are mu_i-GDP are together mu-GDP with mu the root of the sum of
the mu_i^2, even if later runs were chosen after looking at earlier ones (`p2pkm.methods.building_blocks.gdp`).

Runs for different relations have no common guarantee for `add`: a run for `replace` says nothing about the number of
points. For `replace` they have one. Replacing a point is removing one and adding one, so a run that is mu-GDP for `add`
is 2 mu-GDP for `replace` (Dong, Roth, Su: Gaussian Differential Privacy, 2022, Theorem 2). In the same way a run that
is mu-GDP for `device` is 2 mu-GDP for `add` and `replace`: all points of the device are removed, and then added with
one point more, less, or replaced. Runs for points have no guarantee for `device`.
"""

import os
import reprlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.text_table import align_columns
from p2pkm.core.units import count
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.run_secret import SEEDED
from p2pkm.experiments.config import parse_method
from p2pkm.methods.building_blocks.gdp import compose, epsilon_of
from p2pkm.methods.peer.private import Private
from p2pkm.methods.registry import with_guarantee
from p2pkm.methods.server.feddp import FedDPKMeans
from p2pkm.metrics.closing_rows import describe_adversary, describe_publication, describe_unit
from p2pkm.metrics.result import Result
from p2pkm.storage.load import read_summary
from p2pkm.storage.run_status import describe_missing_results, list_runs, read_manifest, require_single_run, run_status
from p2pkm.storage.toml import read_toml

# Kinds of trust and relations, from the strongest guarantee to the weakest.
_TRUST = ("none", "masks", "server")
_RELATIONS = ("device", "add", "replace")


@dataclass(frozen=True)
class Release:
    """Run of `private` that counts in a privacy budget.

    Attributes
    ----------
    run : str
        Run folder, or the number of a result in memory.
    epsilon, delta : float
        Guarantee of this run alone.
    mu : float
        Parameter mu of Gaussian differential privacy of this run alone.
    relation, trust : str
    curious : int
        Number of colluding devices that the guarantee tolerates, with masks.
    is_complete : bool
        Whether the run sent all of its sums. Otherwise some are missing, and the run counts in full.
    """

    run: str
    epsilon: float
    delta: float
    mu: float
    relation: str
    trust: str
    curious: int
    is_complete: bool


@dataclass(frozen=True, repr=False)
class PrivacyBudget:
    """Privacy loss of several runs together, from `privacy_budget`; printed, it is a table.

    Attributes
    ----------
    releases : tuple of Release
        The runs, each once.
    epsilon, delta, mu : float
        Guarantee of all runs together.
    relation : str
        Relation of this guarantee: the weakest one of the runs.
    trust : str
        Trust of this guarantee: the weakest one of the runs.
    curious : int
        Number of colluding devices that this guarantee tolerates, with masks.
    notes : tuple of str
        Runs that were given twice, runs that did not complete, and differences between the runs.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=40, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(120, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.Private(3, epsilon=1, radius=50), topologies.ring(3), shards)
    >>> print(p2pkm.privacy_budget([result, result]))
    run       epsilon  delta      mu  relation  trust
    result 1        1  1e-06  0.2367  add       masks, curious=1
    total           1  1e-06  0.2367  add       masks, curious=1
    All runs together hold for each point, against any 1 curious device.
    May be published: centroids; not the number of points, cost ratio, ARI, labels, figures or run folder.
    Note: result 2 is the same run as result 1 and counts once.
    """

    releases: tuple[Release, ...]
    epsilon: float
    delta: float
    mu: float
    relation: str
    trust: str
    curious: int
    notes: tuple[str, ...]

    @property
    def published(self) -> str:
        """Parts of the results of all runs that may be published."""
        strongest = min((release.relation for release in self.releases), key=_RELATIONS.index)
        return "; ".join(describe_publication(strongest))

    def to_dict(self) -> dict[str, Any]:
        """Return all values as lists, texts and numbers."""
        return asdict(self) | {
            "releases": [asdict(release) for release in self.releases],
            "notes": list(self.notes),
            "published": self.published,
        }

    def __repr__(self) -> str:
        return f"PrivacyBudget({count(len(self.releases), 'release')}, epsilon={self.epsilon:.4g}, mu={self.mu:.4g})"

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("run", "epsilon", "delta", "mu", "relation", "trust")]
        rows += [_write_row(release.run, release) for release in self.releases]
        rows.append(_write_row("total", self))
        lines = align_columns(rows, left=(0, 4, 5))
        against = describe_adversary(self.trust, self.curious)
        lines += [
            f"All runs together hold for {describe_unit(self.relation)}, against {against}.",
            f"May be published: {self.published}.",
            *(f"Note: {note}." for note in self.notes),
        ]
        return "\n".join(line.rstrip() for line in lines)


def privacy_budget(runs: "Iterable[Result | str | Path]", delta: float | None = None) -> PrivacyBudget:
    """Add up the privacy loss of runs of `private` and `feddp` on the same points.

    Parameters
    ----------
    runs : iterable of Result, str or Path
        Results, run folders, and folders of several runs, such as those of ``--seeds``. A run that is given twice, or
        as a copy, counts once.
    delta : float, optional
        Delta of the total; default: the largest one of the runs.

    Returns
    -------
    PrivacyBudget

    Raises
    ------
    DataError
        If a folder is not a run folder, or a run has no guarantee: it is of another method, or has seeded noise.
    ExperimentError
        If no run is given, or delta is not between 0 and 1.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=40, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(120, 3), labels=y)
    >>> method = p2pkm.Private(3, epsilon=1, radius=50)
    >>> results = [p2pkm.simulate(method, topologies.ring(3), shards, seed=seed) for seed in range(4)]
    >>> one, four = p2pkm.privacy_budget(results[:1]), p2pkm.privacy_budget(results)
    >>> round(four.mu / one.mu, 6), round(one.epsilon, 2), round(four.epsilon, 2)
    (2.0, 1.0, 2.12)
    """
    if isinstance(delta, str | Path | Result):
        raise ExperimentError(f"delta is {delta!r}; expected a number between 0 and 1. Use one list for several runs")
    if isinstance(runs, str | Path | Result):
        runs = [runs]
    by_identity: dict[Any, Release] = {}
    notes: list[str] = []
    for identity, release in _read_all(runs):
        if identity in by_identity:
            first = by_identity[identity].run
            copied = "was given twice" if release.run == first else f"is the same run as {first}"
            notes.append(f"{release.run} {copied} and counts once")
        else:
            by_identity[identity] = release
    releases = tuple(by_identity.values())
    if not releases:
        raise ExperimentError(
            f"runs is empty; expected at least one result or run folder of {' or '.join(with_guarantee())}"
        )
    delta = max(release.delta for release in releases) if delta is None else delta
    relation = max((release.relation for release in releases), key=_RELATIONS.index)
    mu = compose(*(release.mu * (1 + (release.relation != relation)) for release in releases))
    trust = max((release.trust for release in releases), key=_TRUST.index)
    curious = min((release.curious for release in releases if release.trust == "masks"), default=0)
    notes += _compare(releases, relation, trust)
    return PrivacyBudget(releases, epsilon_of(mu, delta), float(delta), mu, relation, trust, curious, tuple(notes))


def _write_row(name: str, values: Release | PrivacyBudget) -> tuple[str, ...]:
    trust = f"masks, curious={values.curious}" if values.trust == "masks" else values.trust
    return name, f"{values.epsilon:.4g}", f"{values.delta:g}", f"{values.mu:.4g}", values.relation, trust


def _compare(releases: tuple[Release, ...], relation: str, trust: str) -> list[str]:
    """List notes on runs that did not complete, and on differences between runs."""
    notes = [
        f"{release.run} did not complete; which sums were sent is not recorded, so that it counts in full"
        for release in releases
        if not release.is_complete
    ]
    doubled = [release.run for release in releases if release.relation != relation]
    if doubled:
        notes.append(
            f"the relations differ; the total holds for the weakest one, {relation}, for which mu of runs with "
            f"another relation counts twice: {', '.join(doubled)}"
        )
    if len({(release.trust, release.curious) for release in releases}) > 1:
        notes.append(f"the adversaries differ; the total holds against the weakest one, that of trust={trust}")
    return notes


def _read_all(runs: "Iterable[Result | str | Path]") -> list[tuple[Any, Release]]:
    """Read the identity and the guarantee of every run."""
    releases = []
    for number, run in enumerate(runs, 1):
        if isinstance(run, Result):
            releases.append(_read_result(f"result {number}", run))
        elif isinstance(run, str | os.PathLike):
            releases += [_read_folder(folder) for folder in list_runs(Path(run))]
        else:
            raise ExperimentError(f"run {number} is {reprlib.repr(run)}; expected a Result or the path of a run folder")
    return releases


def _read_result(name: str, result: Result) -> tuple[Any, Release]:
    release = _from_summary(name, result.summary)
    return (result.summary["chain_sha256"] if release.is_complete else id(result)), release


def _read_folder(folder: Path) -> tuple[Any, Release]:
    """Read a run folder; a run without results counts by its options.

    Different runs have different noise, so that the hash chain of the centroids identifies a complete run. It may be
    that of no sum at all for another run, which its manifest identifies, with times, host and command.
    """
    require_single_run(folder)
    manifest = read_manifest(folder)
    if (folder / "summary.json").is_file():
        summary = read_summary(folder)
        release = _from_summary(str(folder), summary)
        if release.is_complete and "chain_sha256" in summary:
            return summary["chain_sha256"], release
    elif run_status(folder) and (folder / "config.toml").is_file():
        release = _from_options(folder)
    else:
        raise DataError(f"{folder} {describe_missing_results(folder)}")
    return repr(sorted(manifest.items())) if manifest else str(folder.resolve()), release


def _from_summary(name: str, summary: dict[str, Any]) -> Release:
    if summary.get("mu") is None or summary.get("noise_seed") is not None:
        raise _reject(name, summary.get("algorithm"), summary.get("noise_seed"))
    held = summary.get("server_points")
    if held:
        raise _reject_server_points(name, held)
    try:
        epsilon, delta, mu = (float(summary[key]) for key in ("epsilon", "delta", "mu"))
        is_complete = summary["termination"] == "converged"
        relation, trust, curious = summary["relation"], summary["trust"], int(summary["curious"])
        release = Release(name, epsilon, delta, mu, relation, trust, curious, is_complete)
        is_known = release.mu >= 0 and release.relation in _RELATIONS and release.trust in _TRUST
        is_known &= held is not None or summary["algorithm"] != FedDPKMeans.name
    except (KeyError, TypeError, ValueError):
        is_known = False
    if not is_known:
        raise DataError(
            f"the guarantee in the summary of {name} is incomplete or unknown; it is damaged or from another version. "
            "Restore a copy"
        )
    return release


def _from_options(folder: Path) -> Release:
    config = str(folder / "config.toml")
    experiment = RunOptions.from_mapping(read_toml(config), config)
    method = parse_method(experiment).build(experiment.draft_k)
    if not isinstance(method, Private | FedDPKMeans) or method.noise_seed is not None:
        raise _reject(str(folder), method.name, method.traits.noise_seed)
    if isinstance(method, FedDPKMeans) and method.server_points:
        raise _reject_server_points(str(folder), method.server_points)
    epsilon = epsilon_of(method.mu, method.delta)
    guarantee = (epsilon, method.delta, method.mu, method.relation, method.trust, method.curious)
    return Release(str(folder), *guarantee, is_complete=False)


def _reject_server_points(name: str, number: Any) -> DataError:
    """Return the error for a run whose server holds points."""
    return DataError(
        f"{name} has points at the server, which no guarantee protects (server_points={number}). Expected runs without "
        "server_points"
    )


def _reject(name: str, algorithm: Any, noise_seed: Any) -> DataError:
    """Return the error for a run without a privacy guarantee."""
    reason = f"it is a run of {algorithm}. Expected runs of {' or '.join(with_guarantee())}"
    if noise_seed is not None:
        reason = f"{SEEDED} (noise_seed={noise_seed}). Expected runs without noise_seed"
    return DataError(f"{name} has no privacy guarantee that could be added up: {reason}")
