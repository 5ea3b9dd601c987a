"""Report of the pairwise leaks of a graph by distance: text, JSON and figure."""

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

# Number of devices, unless the graph or the user sets it.
_DEFAULT_DEVICES = 16
# Characters in a line of text.
_WIDTH = 100
# Digits of the id of a device, at most.
_DIGITS = 6
NOTE = (
    "These numbers hold for one average and do not add up over the steps of a run: the next step starts from the local "
    "centroids of the devices, which contain information that the receiver has not seen. So over L steps only "
    "mu = sqrt(L) D/s holds for every pair. If all devices continue from public rows only (--public), mu of L steps is "
    "the root of the sum of squares."
)


class LeakQuery(NamedTuple):
    """Options of a report; see `p2pkm.pair_leaks`.

    Attributes
    ----------
    graph : str
    devices : int or None
        None for the number of nodes of the graph if it is fixed, otherwise 16.
    seed, gossips : int
    method : str
    receivers, public : str or None
        Ids of devices, such as ``0,3-5``; None for all receivers, and for no public rows.
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
    """Compute the leaks on a graph, and summarize them by distance.

    Parameters
    ----------
    query : LeakQuery
    out : str or None
        File for a figure.

    Returns
    -------
    dict
        * ``graph``, ``devices``, ``gossips``, ``method``.
        * ``receivers``: their number.
        * ``by_distance``: for each number of hops (None without a path) the number of ``pairs``, mean and largest
          ``leak``, mean and largest ``mu`` in units of D/s, and the number of ``solved`` pairs.
        * ``rank``: smallest, mean and largest.
        * ``uncertified``: number of such receivers.
        * ``note``, ``figure``.

    Raises
    ------
    P2PKMError
        If the graph or an option is invalid, or the file cannot be written.
    """
    from p2pkm.privacy.pair_leaks import pair_leaks

    check_figure_path(out)
    receivers, public = read_devices(query.receivers, "--receivers"), read_devices(query.public, "--public")
    kinds = families(query.graph)
    spec = complete(parse(query.graph, kinds, "graph"), kinds, query.seed)
    topology = build_topology(spec, query.devices, _DEFAULT_DEVICES)
    print_file_summary(topology.file_summary)
    leaks = pair_leaks(
        topology, query.gossips, query.method, receivers, public or (), faults=query.faults,
        stale_policy=query.stale_policy, seed=query.seed,
    )  # fmt: skip
    hops = np.array([topology.layers(int(v)) for v in leaks.receivers])
    report = {
        "graph": str(spec), "devices": topology.n, "gossips": query.gossips, "method": query.method,
        "receivers": len(leaks.receivers), "by_distance": _summarize_by_distance(leaks, hops),
        "rank": {"least": int(leaks.rank.min()), "mean": float(leaks.rank.mean()), "most": int(leaks.rank.max())},
        "uncertified": int(np.sum(~leaks.certified)), "note": NOTE, "figure": None,
    }  # fmt: skip
    if out is not None:
        report["figure"] = str(_draw(report, leaks, hops, Path(out), topology.names))
    return report


def tabulate_leaks(report: dict[str, Any]) -> str:
    """Format the result of `report_leaks` as text."""
    lines = [
        f"{report['graph']}, {count(report['devices'], 'device')}: one average, {report['method']}, "
        f"{count(report['gossips'], 'gossip')}",
        "",
        "  hops        pairs   leak: mean    largest     mu: mean    largest   solved exactly",
    ]
    for row in report["by_distance"]:
        hops = "no path" if row["distance"] is None else row["distance"]
        leak, mu = (f"{row[f'{key}_mean']:>12.4f} {row[f'{key}_max']:>10.4f}" for key in ("leak", "mu"))
        lines.append(f"  {hops!s:7} {row['pairs']:>9,} {leak} {mu} {row['solved']:>16,}")
    rank, n = report["rank"], report["devices"]
    lines += [
        "",
        f"  independent rows that a device knows: {rank['mean']:.4g} of {n} on average, {rank['least']} to "
        f"{rank['most']}",
        "  leak: share of what the noisy rows of a device itself would tell; mu: in units of D/s, sensitivity over",
        "  noise; solved exactly: without noise the receiver knows the rows of the other device",
    ]
    if report["uncertified"]:
        lines.append(
            f"  {count(report['uncertified'], 'receiver')} not certified: rounding hides rows, so their leak is taken "
            "as 1 for all in reach"
        )
    lines += ["", *wrap(report["note"], _WIDTH)]
    return "\n".join(lines + ([f"drawn: {report['figure']}"] if report["figure"] else []))


def read_devices(text: str | None, option: str) -> list[int] | None:
    """Read a list of device ids such as ``0,3-5``; None for None.

    Raises
    ------
    ExperimentError
        If the text is not such a list.
    """
    if text is None:
        return None
    ids: list[int] = []
    for part in text.split(","):
        id_range = read_range(part.strip(), _DIGITS)
        if id_range is None or len(ids) >= 10**_DIGITS:
            raise ExperimentError(f"{option} is {text!r}; expected numbers of devices, such as 0,3-5")
        ids += id_range
    return ids


def _summarize_by_distance(leaks: "PairLeaks", hops: "Integers") -> list[dict[str, Any]]:
    """Summarize the leaks at each distance, pairs without a path last; hops: int64[r, n], -1 without a path."""
    distances = sorted(set(np.unique(hops).tolist()) - {0}, key=lambda distance: (distance < 0, distance))
    rows = []
    for distance in distances:
        leak = leaks.leak[hops == distance]
        mu = np.sqrt(leak)
        rows.append({
            "distance": distance if distance > 0 else None,
            "pairs": len(leak),
            "leak_mean": float(leak.mean()),
            "leak_max": float(leak.max()),
            "mu_mean": float(mu.mean()),
            "mu_max": float(mu.max()),
            "solved": int(leaks.solved[hops == distance].sum()),
        })
    return rows


def _draw(
    report: dict[str, Any], leaks: "PairLeaks", hops: "Integers", path: Path, names: tuple[str, ...] | None
) -> Path:
    from p2pkm.viz.figures.leaks import plot_leaks
    from p2pkm.viz.names import name_graph

    title = f"{name_graph(report['graph'])}, {count(report['gossips'], 'gossip')}"
    return save_figure_file(lambda: plot_leaks(leaks.leak, leaks.receivers, hops, title, names=names), path)
