"""Pairwise leaks of a graph by distance: as text, as JSON, and as a picture."""

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.core.errors import ExperimentError
from p2pkm.core.plugins import families
from p2pkm.core.spec import complete, parse, read_range
from p2pkm.core.units import count
from p2pkm.experiments.config import build_topology
from p2pkm.experiments.console import print_file_summary
from p2pkm.experiments.graphs.graph_report import check_figure_path, save_figure_file

if TYPE_CHECKING:
    from p2pkm.core.batch import Integers
    from p2pkm.privacy.pair_leaks import PairLeaks

_USUAL, _WIDTH = 16, 100  # devices; letters in a line
_DIGITS = 6  # of a device's number
NOTE = (
    "These figures hold for one average and do not add up over the steps of a run: devices go on from their own "
    "centroids, which carry what a receiver has not seen, so over L steps only mu = sqrt(L) D/s holds for every pair; "
    "they add up, as root of the sum of squares, where all go on from public rows alone (--public)."
)


class LeakQuery(NamedTuple):
    """Which leaks to compute; see `p2pkm.pair_leaks`.

    Attributes
    ----------
    graph : str
    devices : int or None
        None: 16, or what the graph itself says.
    seed, gossips : int
    method : str
    receivers, public : str or None
        Numbers of devices, such as ``0,3-5``; None: all receivers, no public rows.
    faults, stale_policy : str or None
    """

    graph: str
    devices: int | None = None
    seed: int = 0
    gossips: int = 10
    method: str = "consensus"
    receivers: str | None = None
    public: str | None = None
    faults: str | None = None
    stale_policy: str | None = None


def report_leaks(query: LeakQuery, out: str | None) -> dict[str, Any]:
    """Compute the leaks on a graph and sum them up by distance; draw them into a file, if there is one.

    Returns
    -------
    dict
        `graph`, `devices`, `gossips`, `method`, `receivers` (their number); `by_distance`: for each number of hops
        (None: no path) `pairs`, the mean and the largest `leak`, the mean and the largest `mu` in units of D/s, and
        how many pairs are `solved`; `rank`: smallest, mean and largest; `uncertified` receivers; `note`; `figure`.

    Raises
    ------
    P2PKMError
        If the graph or an option cannot be used, or the file not be written.
    """
    from p2pkm.privacy.pair_leaks import pair_leaks

    check_figure_path(out)
    receivers, public = read_devices(query.receivers, "--receivers"), read_devices(query.public, "--public")
    kinds = families(query.graph)
    spec = complete(parse(query.graph, kinds, "graph"), kinds, query.seed)
    topology = build_topology(spec, query.devices, _USUAL)
    print_file_summary(topology.file_summary)
    leaks = pair_leaks(
        topology, query.gossips, query.method, receivers, public or (), faults=query.faults,
        stale_policy=query.stale_policy, seed=query.seed,
    )  # fmt: skip
    far = np.array([topology.layers(int(v)) for v in leaks.receivers])
    found = {
        "graph": str(spec), "devices": topology.n, "gossips": query.gossips, "method": query.method,
        "receivers": len(leaks.receivers), "by_distance": _sum_up(leaks, far),
        "rank": {"least": int(leaks.rank.min()), "mean": float(leaks.rank.mean()), "most": int(leaks.rank.max())},
        "uncertified": int(np.sum(~leaks.certified)), "note": NOTE, "figure": None,
    }  # fmt: skip
    if out is not None:
        found["figure"] = str(_draw(found, leaks, far, Path(out)))
    return found


def tabulate_leaks(found: dict[str, Any]) -> str:
    """Return what `report_leaks` found as text."""
    lines = [
        f"{found['graph']}, {count(found['devices'], 'device')}: one average, {found['method']}, "
        f"{count(found['gossips'], 'gossip')}",
        "",
        "  hops        pairs   leak: mean    largest     mu: mean    largest   solved exactly",
    ]
    for one in found["by_distance"]:
        hops = "no path" if one["distance"] is None else one["distance"]
        leak, mu = (f"{one[f'{key}_mean']:>12.4f} {one[f'{key}_max']:>10.4f}" for key in ("leak", "mu"))
        lines.append(f"  {hops!s:7} {one['pairs']:>9,} {leak} {mu} {one['solved']:>16,}")
    rank, n = found["rank"], found["devices"]
    lines += [
        "",
        f"  independent rows that a device knows: {rank['mean']:.4g} of {n} on average, {rank['least']} to "
        f"{rank['most']}",
        "  leak: share of what the noisy rows of a device itself would tell; mu: in units of D/s, sensitivity over",
        "  noise; solved exactly: without noise the receiver knows the rows of the other device",
    ]
    if found["uncertified"]:
        lines.append(
            f"  {count(found['uncertified'], 'receiver')} not certified: rounding hides rows, so their leak is taken "
            "as 1 for all in reach"
        )
    lines += ["", *wrap(found["note"], _WIDTH)]
    return "\n".join(lines + ([f"drawn: {found['figure']}"] if found["figure"] else []))


def read_devices(text: str | None, option: str) -> list[int] | None:
    """Read a list of devices such as ``0,3-5``."""
    if text is None:
        return None
    found: list[int] = []
    for word in text.split(","):
        part = read_range(word.strip(), _DIGITS)
        if part is None or len(found) >= 10**_DIGITS:
            raise ExperimentError(f"{option} is {text!r}; expected numbers of devices, such as 0,3-5")
        found += part
    return found


def _sum_up(leaks: "PairLeaks", far: "Integers") -> list[dict[str, Any]]:
    """Return the figures of every distance, those without a path last."""
    order = sorted(set(np.unique(far).tolist()) - {0}, key=lambda hops: (hops < 0, hops))
    found = []
    for hops in order:
        leak = leaks.leak[far == hops]
        mu = np.sqrt(leak)
        found.append({
            "distance": hops if hops > 0 else None, "pairs": len(leak),
            "leak_mean": float(leak.mean()), "leak_max": float(leak.max()),
            "mu_mean": float(mu.mean()), "mu_max": float(mu.max()), "solved": int(leaks.solved[far == hops].sum()),
        })  # fmt: skip
    return found


def _draw(found: dict[str, Any], leaks: "PairLeaks", far: "Integers", path: Path) -> Path:
    from p2pkm.viz.figures.leaks import plot_leaks

    title = f"{found['graph']}, {count(found['gossips'], 'gossip')}"
    return save_figure_file(lambda: plot_leaks(leaks.leak, leaks.receivers, far, title), path)
