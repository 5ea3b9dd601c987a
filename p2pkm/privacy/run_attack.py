"""Commands that attack and compare with the claim: gossip of noisy values, and runs of the method `private`."""

import math
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import parse
from p2pkm.core.validation import check_integer, check_positive
from p2pkm.experiments.graphs.graph_report import build_graph, check_figure_path, save_figure_file

if TYPE_CHECKING:
    from p2pkm.privacy.private_attack import Evidence

# Devices, at most, for attacks on gossip: the view of a receiver is a dense matrix.
_MOST = 2000
# Canaries of an audit, and guesses about them.
_CANARIES, _GUESSES = 1000, 200
# Trials of an attack on gossip, least number and default; and those of an attack on `private`, which are runs.
_FEWEST_TRIALS, _TRIALS = 100, 20_000
_FEWEST_RUNS, _RUNS = 4, 50
# Default number of clusters of `private`.
_CLUSTERS = 16
_LARGEST_MU = 1000.0
# Title of the progress line.
_NAME = "attack"


class AttackQuery(NamedTuple):
    """Options of an attack.

    Attributes
    ----------
    graph : str
    devices : int or None
        None for 16.
    seed : int
    trials : int or None
        None for 20,000 of gossip, and 50 of `private`, whose trials are whole runs.
    delta : float
    out : str or None
        File for the figure.
    """

    graph: str
    devices: int | None = None
    seed: int = 0
    trials: int | None = None
    delta: float = 1e-6
    out: str | None = None


def attack_gossip(query: AttackQuery, gossips: int, mu: float, receiver: int) -> dict[str, Any]:
    """Attack gossip of noisy values: at each distance from the receiver, the device with the largest leak.

    Parameters
    ----------
    query : AttackQuery
    gossips : int
        Number of turns of the average.
    mu : float
        Guarantee of the noise that each device adds to its value, against a receiver of that value.
    receiver : int

    Returns
    -------
    dict
        For `explain`.

    Raises
    ------
    P2PKMError
        If the graph or an option is invalid.
    """
    from p2pkm.network.graph import Topology
    from p2pkm.privacy import attacks
    from p2pkm.privacy.pair_leaks import pair_leaks

    count = _check(query, _FEWEST_TRIALS, _TRIALS)
    check_positive(mu, "mu", most=_LARGEST_MU)
    spec, graph, _ = build_graph(query.graph, query.devices, query.seed)
    topology = Topology.from_graph(graph)
    if not 2 <= topology.n <= _MOST or topology.varying is not None:
        raise ExperimentError(
            f"attack gossip requires a static graph of 2 to {_MOST:,} devices; got {spec} of {topology.n:,}. Use for "
            "example --graph ring --devices 16"
        )
    if not 0 <= check_integer(receiver, 0, "receiver") < topology.n:
        raise ExperimentError(f"receiver is {receiver}; expected a device from 0 to {topology.n - 1}")
    leaks = pair_leaks(topology, gossips, receivers=[receiver])
    view, distance = attacks.gossip_view(topology, receiver, gossips), topology.layers(np.array([receiver]))
    rows = []
    for hops in range(1, int(distance.max()) + 1):
        at_distance = np.flatnonzero(distance == hops)
        device = int(at_distance[np.argmax(leaks.leak[0, at_distance])])
        claimed = mu * float(np.sqrt(leaks.leak[0, device]))
        trials = attacks.attack_gossip(view, device, mu, count, query.seed + hops)
        attack = attacks.judge(trials, claimed, query.delta)
        solved = float(leaks.solved[0, at_distance].mean())
        rows.append({"distance": hops, "device": device, "solved": solved, **asdict(attack), "holds": attack.holds})
    rng = np.random.default_rng(query.seed)
    largest_mu = mu * np.sqrt(max(leaks.leak[0, row["device"]] for row in rows)) if rows else 0.0
    included = rng.random(_CANARIES) < 0.5
    scores = rng.standard_normal(_CANARIES) + largest_mu * included
    audited = attacks.audit(scores, included, _GUESSES, query.delta)
    facts = {"what": "gossip", "graph": str(spec), "gossips": gossips, "receiver": receiver, "mu": mu}
    return _finish(facts, rows, {"audit": asdict(audited)}, query)


def attack_private(query: AttackQuery, algorithm: str, clusters: int = _CLUSTERS, features: int = 2) -> dict[str, Any]:
    """Attack real runs of `private` with and without a point, see `p2pkm.privacy.private_attack`.

    The attackers are the curious devices, and all devices except one.

    Parameters
    ----------
    query : AttackQuery
    algorithm : str
        Spec of the method, such as ``private:epsilon=1,radius=30``.
    clusters, features : int

    Returns
    -------
    dict
        For `explain`.

    Raises
    ------
    P2PKMError
        If the method is not `private`, or the method, the graph or an option is invalid.
    """
    from contextlib import closing

    from p2pkm.core.protocols import PointCount, RunOutline
    from p2pkm.engine.conflicts import OF_GRAPHS, Combination, refuse
    from p2pkm.experiments.progress_line import ProgressLine
    from p2pkm.methods.peer.private import Private
    from p2pkm.network.graph import Topology
    from p2pkm.privacy.private_attack import attack_runs, choose_canaries

    trials = _check(query, _FEWEST_RUNS, _RUNS)
    chosen = parse(algorithm, {"private": Private}, "algorithm to attack")
    method = Private(clusters, **chosen.options)
    method = replace(method, delta=chosen.options.get("delta", query.delta))
    if missing := method.traits.needs_parameters:
        raise ExperimentError(f"private requires {missing}. Use, for example, private:epsilon=1,radius=30")
    spec, graph, _ = build_graph(query.graph, query.devices, query.seed)
    topology = Topology.from_graph(graph)
    refuse(OF_GRAPHS, Combination(method, topology=topology))
    method.check(RunOutline(topology), PointCount(topology.n, 1, features))
    canaries = choose_canaries(method, topology, features, query.seed)
    with closing(ProgressLine(_NAME, 2 * trials, "run")) as line:
        result = attack_runs(
            method, topology, canaries, trials, query.seed,
            lambda number: line({"stage": _NAME, "round": number, "ratio_mean": None}),
        )  # fmt: skip
    rows = [_judge(evidence, method.delta) for evidence in result.evidence]
    checks = {
        "noise of runs, releases and devices": _choose_finding(
            "independent", "predictable", holds=all(row["is_independent"] for row in rows)
        ),
        "commands and states": _choose_finding(
            "functions of released totals",
            f"depend on points: {', '.join(result.dependent)}",
            holds=not result.dependent,
        ),
    }
    # Two devices have no masked messages that could be tested: the message of one is the total of all hidden devices.
    if result.words.total:
        checks["masked messages"] = _choose_finding("uniform", "not uniform", holds=result.words.are_uniform)
    facts = {"what": "private", "graph": str(spec), "algorithm": str(chosen), "devices": topology.n, "mu": method.mu,
             "points": len(canaries.without.points), "trials": trials,
             "unit": "device" if method.relation == "device" else "point"}  # fmt: skip
    return _finish(facts, rows, {"checks": checks}, query)


class _Check(NamedTuple):
    """Finding of a check, and whether the claim holds."""

    finding: str
    holds: bool


def _choose_finding(good: str, bad: str, *, holds: bool) -> _Check:
    return _Check(good if holds else bad, holds)


def _judge(evidence: "Evidence", delta: float) -> dict[str, Any]:
    """Compare the evidence against a coalition with its claim."""
    from scipy.special import stdtrit

    from p2pkm.privacy.attacks import bound_epsilon, judge
    from p2pkm.privacy.noise_evidence import ERROR

    coalition, noise, trials = evidence
    quiet = noise.find_quiet_group()
    # Noise that can be predicted protects nothing, whatever its size.
    is_independent = noise.is_independent
    measured = noise.measure_group(quiet)
    point = judge(trials, coalition.mu, delta)
    names = Counter(name.kind for name in noise.sums)
    releases = [
        {"release": name.kind + f" {name.number + 1}" * (names[name.kind] > 1), **_bounded(part._asdict())}
        for name, part in noise.measure_releases().items()
    ]
    # A quantile of Student's distribution: few runs show their own spread inaccurately.
    slack = float(stdtrit(2 * point.trials - 2, 1.0 - ERROR)) * point.mu_error
    holds_mu = point.mu_measured <= coalition.mu + slack
    holds_point = holds_mu and bound_epsilon(trials, delta, 1.0 - ERROR) <= point.epsilon_claimed
    row = {
        "against": coalition.name, "hidden": coalition.hidden, **measured._asdict(),
        "epsilon_claimed": point.epsilon_claimed, "epsilon_found": point.epsilon_found, "trials": point.trials,
        "point": _bounded({"mu_measured": point.mu_measured, "mu_error": point.mu_error, "holds": holds_point}),
        "quiet_device": quiet, "is_independent": is_independent, "releases": releases,
    }  # fmt: skip
    if not is_independent:
        row |= {"mu_measured": math.inf, "mu_error": 0.0}
    parts = (measured.holds, quiet is None, is_independent, holds_point, *(release["holds"] for release in releases))
    return _bounded(row) | {"holds": all(parts)}


def _bounded(row: dict[str, Any]) -> dict[str, Any]:
    """Replace an unbounded mu, which JSON cannot express, by None."""
    unbounded = not math.isfinite(row["mu_measured"])
    return row | {"mu_measured": None, "mu_error": 0.0} if unbounded else row


def _check(query: AttackQuery, fewest: int, trials: int) -> int:
    """Validate the options that all attacks share, and return the number of trials."""
    check_figure_path(query.out)
    if not 0.0 < query.delta < 1.0:
        raise ExperimentError(f"delta is {query.delta!r}; expected a number between 0 and 1, for example 1e-6")
    return trials if query.trials is None else check_integer(query.trials, fewest, "trials")


def _finish(
    facts: dict[str, Any], rows: list[dict[str, Any]], more: dict[str, Any], query: AttackQuery
) -> dict[str, Any]:
    """Assemble the result of an attack, and save its figure."""
    checks = {name: check._asdict() for name, check in more.pop("checks", {}).items()}
    holds = all(part["holds"] for part in (*rows, *checks.values()))
    result = {**facts, "rows": rows, **more, **({"checks": checks} if checks else {}), "holds": holds}
    if query.out is not None:
        from p2pkm.viz import plot_attack

        result["figure"] = str(save_figure_file(lambda: plot_attack(result), Path(query.out)))
    return result


def explain(result: dict[str, Any]) -> str:
    """Format the result of an attack as text."""
    lines = _explain_gossip(result) if result["what"] == "gossip" else _explain_private(result)
    return "\n".join([*lines, *([f"drawn: {result['figure']}"] if "figure" in result else [])])


def _explain_gossip(result: dict[str, Any]) -> list[str]:
    audited = result["audit"]
    head = f"{'distance':>8} {'device':>7} {'solved':>7}  {_HEAD}"
    about = f"gossip of noisy values on {result['graph']}, {result['gossips']} gossips, receiver {result['receiver']}"
    rows = [
        f"{row['distance']:8} {row['device']:7} {row['solved']:7.2f}  {_write_mu(row)}  {_write_epsilon(row)}"
        f"{_mark(row)}"
        for row in result["rows"]
    ]
    return [
        about, "", head, *rows, "",
        f"one run with {audited['canaries']} canaries, {audited['correct']} of {audited['guesses']} guesses correct: "
        f"eps at least {audited['epsilon_found']:.2f};",
        f"this number of guesses can never show more than {audited['ceiling']:.2f}",
        "solved: share of the devices at this distance whose values the receiver computes exactly;",
        "these numbers hold for one average and do not add up over several averages",
    ]  # fmt: skip


def _explain_private(result: dict[str, Any]) -> list[str]:
    label = f"one {result['unit']}"
    lines = [
        f"runs of {result['algorithm']} on {result['graph']}, {result['points']:,} points: {result['trials']} with one "
        f"{result['unit']}, {result['trials']} without", "", f"{'against':>10} {'hidden':>7}  {'release':<14}  {_HEAD}",
    ]  # fmt: skip
    for number, row in enumerate(result["rows"]):
        first, blank = f"{row['against']:>10} {row['hidden']:7}", " " * 18
        parts = row["releases"] if not number else [part for part in row["releases"] if not part["holds"]]
        lines += [f"{blank}  {part['release']:<14}  {_write_mu(part)}{_mark(part)}" for part in parts]
        point = row["point"] | {"mu_claimed": row["mu_claimed"]}
        lines += [
            f"{first}  {'all releases':<14}  {_write_mu(row)}{_mark(row)}",
            f"{blank}  {label:<14}  {_write_mu(point)}  {_write_epsilon(row)}{_mark(point)}",
        ]
        if row["quiet_device"] is not None:
            lines.append(f"{blank}  device {row['quiet_device']} adds too little noise")
    lines += ["", *(f"{name}: {check['finding']}{_mark(check)}" for name, check in result["checks"].items())]
    return [
        *lines, "releases: mu from the measured noise and the largest change by a canary;",
        f"{label}: mu from the likelihood ratio test of runs with and without it; +-: standard error",
    ]  # fmt: skip


_HEAD = f"{'mu claimed':>10} {'measured':>16}  {'eps claimed':>11} {'at least':>8}"


def _write_mu(row: dict[str, Any]) -> str:
    is_bounded = row["mu_measured"] is not None
    measured = f"{row['mu_measured']:.3f} +- {row['mu_error']:.3f}" if is_bounded else "unbounded"
    return f"{row['mu_claimed']:10.3f} {measured:>16}"


def _write_epsilon(row: dict[str, Any]) -> str:
    return f"{row['epsilon_claimed']:11.3f} {row['epsilon_found']:8.3f}"


def _mark(row: dict[str, Any]) -> str:
    return "" if row["holds"] else "  EXCEEDED"
