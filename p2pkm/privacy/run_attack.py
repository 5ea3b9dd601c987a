"""Attacks on noisy sums, beside what is claimed: for gossip of values with noise of their own, and for `private`."""

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
    from p2pkm.methods.peer.private import Private
    from p2pkm.privacy.attacks import Audit, NoisySum

_MOST = 2000  # devices on which gossip is attacked: the view of a receiver is a dense matrix
_CANARIES, _GUESSES, _CLUSTERS, _LARGEST_MU = 1000, 200, 16, 1000.0
_TITLES = {"gossip": "gossip of noisy values", "private": "sums of private"}


class AttackQuery(NamedTuple):
    """What to attack.

    Attributes
    ----------
    graph : str
    devices : int or None
        None: 16.
    seed, trials : int
    delta : float
    out : str or None
        File of the figure.
    """

    graph: str
    devices: int | None = None
    seed: int = 0
    trials: int = 20_000
    delta: float = 1e-6
    out: str | None = None


def attack_gossip(query: AttackQuery, gossips: int, mu: float, receiver: int) -> dict[str, Any]:
    """Attack an average of values, to each of which its device has added noise that gives mu by itself.

    For every distance from the receiver the device is attacked that it learns most about.

    Raises
    ------
    P2PKMError
        If the graph or an option cannot be used.
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
            f"attack gossip takes graphs that stay, of 2 to {_MOST:,} devices; got {spec} of {topology.n:,}"
        )
    if not 0 <= check_integer(receiver, 0, "receiver") < topology.n:
        raise ExperimentError(f"receiver is {receiver}; expected a device from 0 to {topology.n - 1}")
    known = pair_leaks(topology, gossips, receivers=[receiver])
    view, distance = attacks.gossip_view(topology, receiver, gossips), topology.layers(np.array([receiver]))
    rows = []
    for hops in range(1, int(distance.max()) + 1):
        there = np.flatnonzero(distance == hops)
        device = int(there[np.argmax(known.leak[0, there])])
        claimed = mu * float(np.sqrt(known.leak[0, device]))
        found = attacks.judge(
            attacks.attack_gossip(view, device, mu, query.trials, query.seed + hops), claimed, query.delta
        )
        rows.append({"distance": hops, "device": device, "solved": float(known.solved[0, there].mean()),
                     **asdict(found), "holds": found.holds})  # fmt: skip
    rng = np.random.default_rng(query.seed)
    nearest = mu * np.sqrt(max(known.leak[0, row["device"]] for row in rows)) if rows else 0.0
    included = rng.random(_CANARIES) < 0.5
    scores = rng.standard_normal(_CANARIES) + nearest * included
    audited = attacks.audit(scores, included, _GUESSES, query.delta)
    facts = {"what": "gossip", "graph": str(spec), "gossips": gossips, "receiver": receiver, "mu": mu}
    return _finish(facts, rows, audited, query)


def attack_private(query: AttackQuery, algorithm: str, clusters: int = _CLUSTERS, features: int = 2) -> dict[str, Any]:
    """Attack the sums of `private` with the noise that it draws: first the curious devices, then all but one.

    The point that changes tables most is attacked in every sum of a run together.

    Raises
    ------
    P2PKMError
        If the method is not `private`, or it, the graph or an option cannot be used.
    """
    from p2pkm.core.protocols import PointCount, RunOutline
    from p2pkm.methods.init.pipelines import check_links
    from p2pkm.methods.peer.private import Private
    from p2pkm.network.graph import Topology
    from p2pkm.privacy import attacks

    _check(query)
    chosen = parse(algorithm, {"private": Private}, "algorithm to attack")
    method = Private(clusters, **chosen.options)
    method = replace(method, delta=chosen.options.get("delta", query.delta))
    if missing := method.traits.needs_parameters:
        raise ExperimentError(f"private needs {missing}; say private:epsilon=...,radius=...")
    spec, graph, _ = build_graph(query.graph, query.devices, query.seed)
    topology = Topology.from_graph(graph)
    check_links(method, topology)
    method.check(RunOutline(topology), PointCount(topology.n, 1, features))
    n = topology.n
    sums = noisy_sums(method, features, n)
    masked, rows = method.trust == "masks", []
    hidden = n - method.curious if masked else 1
    for who, left in (("curious", hidden), ("all others", 1)) if masked else ((method.trust, 1),):
        trials = attacks.attack_sums(sums, left, query.trials, query.seed)
        claimed = method.mu * float(np.sqrt(hidden / left))
        found = attacks.judge(trials, claimed, method.delta)
        rows.append({"against": who, "hidden": left, **asdict(found), "holds": found.holds})
    facts = {"what": "private", "graph": str(spec), "algorithm": str(chosen), "devices": n, "mu": method.mu}
    return _finish(facts, rows, _audit_seeds(method, sums[1], hidden, query.seed), query)


def noisy_sums(method: "Private", features: int, n: int) -> "list[NoisySum]":
    """Return the sums of a run with the noise of a device, and the largest change that a point makes.

    One for another (relation=exchange): in two rows, or from one side of a row to the other.
    """
    from p2pkm.methods.building_blocks.secure_sums import SumName
    from p2pkm.privacy.attacks import NoisySum

    found = []
    for number in range(1, method.sums + 1):
        shape = method.shape_of(number, method.radius or 1.0, features)
        change = np.zeros(shape.width, np.int64)
        change[0] = np.rint(shape.clip_radius / shape.grain.unit)
        change[-1] = int(shape.point_units)
        if method.relation == "exchange":
            apart, across = np.concatenate((change, -change)), 2 * change
            across[-1] = 0
            change = max(apart, across, key=lambda one: float(np.linalg.norm(one)))
        sd = method.noise_of(number, shape, n)[0] / shape.grain.unit
        found.append(NoisySum(SumName(method.name, number), change, sd))
    return found


@single_thread()
def _audit_seeds(method: "Private", seeds: "NoisySum", hidden: int, seed: int) -> "Audit":
    """Put a canary into each cell with probability 1/2, in one sum of seeds, and guess from the totals."""
    from p2pkm.methods.building_blocks.secure_sums import draw_noise
    from p2pkm.privacy.attacks import audit

    rng, rows = np.random.default_rng(seed), method.shape_of(2, 1.0, 2).rows
    included = rng.random(rows) < 0.5
    keys = rng.integers(0, 2**64, hidden, dtype=np.uint64)
    totals = draw_noise(keys, seeds.name, seeds.sd, (rows, len(seeds.change))).sum(axis=0)
    totals += included[:, None] * seeds.change
    return audit(totals @ seeds.change.astype(np.float64), included, min(_GUESSES, rows // 2), method.delta)


def _check(query: AttackQuery) -> None:
    check_figure_path(query.out)
    check_integer(query.trials, 100, "trials")
    if not 0.0 < query.delta < 1.0:
        raise ExperimentError(f"delta is {query.delta!r}; expected a number between 0 and 1, such as 1e-6")


def _finish(facts: dict[str, Any], rows: list[dict[str, Any]], audited: "Audit", query: AttackQuery) -> dict[str, Any]:
    found = {**facts, "rows": rows, "audit": asdict(audited), "holds": all(row["holds"] for row in rows)}
    if query.out is not None:
        from p2pkm.viz import plot_attack

        found["figure"] = str(save_figure_file(lambda: plot_attack(found), Path(query.out)))
    return found


def explain(found: dict[str, Any]) -> str:
    """Return what was found as text."""
    gossip, one = found["what"] == "gossip", found["audit"]
    about = f"{found['gossips']} gossips, receiver {found['receiver']}" if gossip else found["algorithm"]
    head = f"{'distance':>8} {'device':>7} {'solved':>7}" if gossip else f"{'against':>12} {'hidden':>7}"
    head += f"  {'mu claimed':>10} {'measured':>16}  {'eps claimed':>11} {'at least':>8}"
    lines = [f"{_TITLES[found['what']]} on {found['graph']}, {about}", "", head, *map(_write_row, found["rows"]), ""]
    lines += [
        f"one run with {one['canaries']} canaries, {one['correct']} of {one['guesses']} guesses right: eps at least "
        f"{one['epsilon_found']:.2f};",
        f"so many guesses can never show more than {one['ceiling']:.2f}",
    ]
    if gossip:
        lines += ["solved: share of the devices at this distance whose values the receiver computes exactly;",
                  "these figures are of one average and do not add up over steps"]  # fmt: skip
    return "\n".join([*lines, *([f"drawn: {found['figure']}"] if "figure" in found else [])])


def _write_row(row: dict[str, Any]) -> str:
    if "distance" in row:
        first = f"{row['distance']:8} {row['device']:7} {row['solved']:7.2f}"
    else:
        first = f"{row['against']:>12} {row['hidden']:7}"
    measured = f"{row['mu_measured']:.3f} +- {row['mu_error']:.3f}"
    figures = f"{row['mu_claimed']:10.3f} {measured:>16}  {row['epsilon_claimed']:11.3f} {row['epsilon_found']:8.3f}"
    return f"{first}  {figures}" + ("" if row["holds"] else "  EXCEEDED")
