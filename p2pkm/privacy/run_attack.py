"""Commands that attack noisy sums and compare with the claim: gossip of noisy values, and the method `private`."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import parse
from p2pkm.core.validation import check_integer, check_positive
from p2pkm.experiments.graphs.graph_report import build_graph, check_figure_path, save_figure_file
from topologies.single_thread import single_thread

if TYPE_CHECKING:
    from p2pkm.core.batch import Integers
    from p2pkm.methods.building_blocks.private_releases import Release
    from p2pkm.methods.peer.private import Private
    from p2pkm.privacy.attacks import Audit, NoisySum

# Devices, at most, for attacks on gossip: the view of a receiver is a dense matrix.
_MOST = 2000
# Canaries of an audit, and guesses about them.
_CANARIES, _GUESSES = 1000, 200
# Default number of clusters of `private`.
_CLUSTERS = 16
_LARGEST_MU = 1000.0
_TITLES = {"gossip": "gossip of noisy values", "private": "sums of private"}


class AttackQuery(NamedTuple):
    """Options of an attack.

    Attributes
    ----------
    graph : str
    devices : int or None
        None for 16.
    seed, trials : int
    delta : float
    out : str or None
        File for the figure.
    """

    graph: str
    devices: int | None = None
    seed: int = 0
    trials: int = 20_000
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

    _check(query)
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
        trials = attacks.attack_gossip(view, device, mu, query.trials, query.seed + hops)
        attack = attacks.judge(trials, claimed, query.delta)
        solved = float(leaks.solved[0, at_distance].mean())
        rows.append({"distance": hops, "device": device, "solved": solved, **asdict(attack), "holds": attack.holds})
    rng = np.random.default_rng(query.seed)
    largest_mu = mu * np.sqrt(max(leaks.leak[0, row["device"]] for row in rows)) if rows else 0.0
    included = rng.random(_CANARIES) < 0.5
    scores = rng.standard_normal(_CANARIES) + largest_mu * included
    audited = attacks.audit(scores, included, _GUESSES, query.delta)
    facts = {"what": "gossip", "graph": str(spec), "gossips": gossips, "receiver": receiver, "mu": mu}
    return _finish(facts, rows, audited, query)


def attack_private(query: AttackQuery, algorithm: str, clusters: int = _CLUSTERS, features: int = 2) -> dict[str, Any]:
    """Attack the sums of `private` with the noise that it draws, by the curious devices and by all devices except one.

    All sums of a run are attacked together, for the point that changes their tables most.

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
    from p2pkm.core.protocols import PointCount, RunOutline
    from p2pkm.methods.building_blocks.private_releases import Kind
    from p2pkm.methods.init.pipelines import check_links
    from p2pkm.methods.peer.private import Private
    from p2pkm.network.graph import Topology
    from p2pkm.privacy import attacks

    _check(query)
    chosen = parse(algorithm, {"private": Private}, "algorithm to attack")
    method = Private(clusters, **chosen.options)
    method = replace(method, delta=chosen.options.get("delta", query.delta))
    if missing := method.traits.needs_parameters:
        raise ExperimentError(f"private requires {missing}. Use, for example, private:epsilon=1,radius=30")
    spec, graph, _ = build_graph(query.graph, query.devices, query.seed)
    topology = Topology.from_graph(graph)
    check_links(method, topology)
    method.check(RunOutline(topology), PointCount(topology.n, 1, features))
    n = topology.n
    sums = noisy_sums(method, features, n)
    plan = method.plan(n, features)
    cells = sums[list(plan.shares).index(Kind.CELLS)]
    masked, rows = method.trust == "masks", []
    hidden = n - method.curious if masked else 1
    # With masks, the claim holds against the curious devices. If all others collude, less noise protects a device.
    for attacker, honest in (("curious", hidden), ("all others", 1)) if masked else ((method.trust, 1),):
        trials = attacks.attack_sums(sums, honest, query.trials, query.seed)
        claimed = method.mu * float(np.sqrt(hidden / honest))
        attack = attacks.judge(trials, claimed, method.delta)
        rows.append({"against": attacker, "hidden": honest, **asdict(attack), "holds": attack.holds})
    facts = {"what": "private", "graph": str(spec), "algorithm": str(chosen), "devices": n, "mu": method.mu}
    return _finish(facts, rows, _audit_seeds(method, cells, hidden, query.seed), query)


def noisy_sums(method: "Private", features: int, n: int) -> "list[NoisySum]":
    """List the sums of a run, with one step in all dimensions, the noise of one device, and the largest change."""
    from p2pkm.methods.building_blocks.private_plan import LEAST_CELLS
    from p2pkm.methods.building_blocks.secure_sums import SumName
    from p2pkm.privacy.attacks import NoisySum

    plan, sums = method.plan(n, features), []
    for number, known in enumerate(plan.outline(LEAST_CELLS, 1)[:-1], 1):
        release = plan.release(known)
        sd = method.noise_of(release, 1.0, n, features)[0] / release.grain.unit
        sums.append(NoisySum(SumName(method.name, number), _largest_change(release, method.relation), sd))
    return sums


def _largest_change(release: "Release", relation: str) -> "Integers":
    """Compute the numbers by which a point changes a table most, in units.

    A device changes it like `points` equal points. If one point replaces another, the change is the larger one of two
    cases: the points are in different rows, or at opposite sides of one row. Second moments change in the
    entries of the diagonal.
    """
    from p2pkm.methods.building_blocks.private_releases import Kind

    if relation == "device":
        point = _largest_change(release, "add")
        length = float(np.linalg.norm(point)) * release.grain.unit
        return np.trunc(point * (release.limit / length)).astype(np.int64)
    if release.kind == Kind.MOMENTS:
        square = int(np.rint(release.clip_radius / np.sqrt(release.grain.unit))) ** 2
        return np.array([square] if relation == "add" else [square, -square])
    change = np.zeros(release.width, np.int64)
    change[0] = np.rint(release.clip_radius / release.grain.unit)
    change[-1] = int(release.point_units)
    if relation == "add":
        return change
    one_row, two_rows = 2 * change, np.concatenate((change, -change))
    # The count of a row does not change.
    one_row[-1] = 0
    return max([one_row, two_rows] if release.rows > 1 else [one_row], key=np.linalg.norm)


@single_thread()
def _audit_seeds(method: "Private", seeds: "NoisySum", hidden: int, seed: int) -> "Audit":
    """Audit the sum over cells of the initialization: each cell contains a canary with probability 1/2."""
    from p2pkm.methods.building_blocks.private_plan import LEAST_CELLS
    from p2pkm.methods.building_blocks.secure_sums import draw_noise
    from p2pkm.privacy.attacks import audit

    rng, rows = np.random.default_rng(seed), LEAST_CELLS * method.k
    included = rng.random(rows) < 0.5
    keys = rng.integers(0, 2**64, hidden, dtype=np.uint64)
    totals = draw_noise(keys, seeds.name, seeds.sd, (rows, len(seeds.change))).sum(axis=0)
    totals += included[:, None] * seeds.change
    return audit(totals @ seeds.change.astype(np.float64), included, min(_GUESSES, rows // 2), method.delta)


def _check(query: AttackQuery) -> None:
    check_figure_path(query.out)
    check_integer(query.trials, 100, "trials")
    if not 0.0 < query.delta < 1.0:
        raise ExperimentError(f"delta is {query.delta!r}; expected a number between 0 and 1, for example 1e-6")


def _finish(facts: dict[str, Any], rows: list[dict[str, Any]], audited: "Audit", query: AttackQuery) -> dict[str, Any]:
    """Assemble the result of an attack, and save its figure."""
    result = {**facts, "rows": rows, "audit": asdict(audited), "holds": all(row["holds"] for row in rows)}
    if query.out is not None:
        from p2pkm.viz import plot_attack

        result["figure"] = str(save_figure_file(lambda: plot_attack(result), Path(query.out)))
    return result


def explain(result: dict[str, Any]) -> str:
    """Format the result of an attack as text."""
    gossip, audited = result["what"] == "gossip", result["audit"]
    about = f"{result['gossips']} gossips, receiver {result['receiver']}" if gossip else result["algorithm"]
    head = f"{'distance':>8} {'device':>7} {'solved':>7}" if gossip else f"{'against':>12} {'hidden':>7}"
    head += f"  {'mu claimed':>10} {'measured':>16}  {'eps claimed':>11} {'at least':>8}"
    title = f"{_TITLES[result['what']]} on {result['graph']}, {about}"
    lines = [title, "", head, *map(_write_row, result["rows"]), ""]
    lines += [
        f"one run with {audited['canaries']} canaries, {audited['correct']} of {audited['guesses']} guesses correct: "
        f"eps at least {audited['epsilon_found']:.2f};",
        f"this number of guesses can never show more than {audited['ceiling']:.2f}",
    ]
    if gossip:
        lines += [
            "solved: share of the devices at this distance whose values the receiver computes exactly;",
            "these numbers hold for one average and do not add up over steps",
        ]
    return "\n".join([*lines, *([f"drawn: {result['figure']}"] if "figure" in result else [])])


def _write_row(row: dict[str, Any]) -> str:
    if "distance" in row:
        first = f"{row['distance']:8} {row['device']:7} {row['solved']:7.2f}"
    else:
        first = f"{row['against']:>12} {row['hidden']:7}"
    measured = f"{row['mu_measured']:.3f} +- {row['mu_error']:.3f}"
    figures = f"{row['mu_claimed']:10.3f} {measured:>16}  {row['epsilon_claimed']:11.3f} {row['epsilon_found']:8.3f}"
    return f"{first}  {figures}" + ("" if row["holds"] else "  EXCEEDED")
