"""A plan in words."""

from collections.abc import Iterator
from typing import Any, TextIO

from p2pkm.core.units import count, write_size


def show(found: dict[str, Any], out: TextIO) -> None:
    """Print what `p2pkm.experiments.plan.run.lead_plan` found."""
    out.write(
        "\n".join([*_head(found), *_memory(found), *_traffic(found), *_seconds(found), *_virtual(found), *_tail(found)])
        + "\n"
    )
    out.flush()


def _head(found: dict[str, Any]) -> Iterator[str]:
    told = found["experiment"]
    yield f"plan      {told['algorithm']} on {told['graph']}, k = {told['clusters']}"
    used = "" if found["links_in_use"] is None else f" ({found['links_in_use']:,.4g} in use in a round)"
    yield (
        f"size      {count(found['devices'], 'device')}, {count(found['links'], 'link')}{used}, "
        f"{count(found['points'], 'point')} with {count(found['features'], 'feature')}, "
        f"{count(told['rounds'], 'round')}"
    )
    if found["excess_predicted"] is not None:
        best = found["excess_auto"]
        yield (
            f"quality   cost ratio {found['excess_predicted']:.2g} above 1 from noise of the devices' points alone, "
            f"with labels fixed; {best['excess']:.2g} with coupling auto, {best['coupling']:g} here"
        )


def _memory(found: dict[str, Any]) -> Iterator[str]:
    free = found["memory_free"]
    yield ""
    yield f"memory    {'free here: not known' if free is None else write_size(free) + ' free here'}"
    row = next(row for row in found["memory"] if row["ranks"] == found["ranks"])
    for name, label in (("rank0", "rank 0"), ("other", "other ranks")):
        if name == "rank0" or found["ranks"] > 1:
            parts = {part: size for part, size in row[name].items() if part not in ("held", "peak") and size}
            yield f"  {label}: {write_size(row[name]['peak'])} at most"
            yield "    " + ", ".join(f"{part} {write_size(size)}" for part, size in parts.items())
    yield "  on      " + "".join(f"{row['ranks']:>12,}" for row in found["memory"]) + "  ranks"
    for name, label in (("rank0", "rank 0"), ("other", "others")):
        yield f"  {label}  " + "".join(f"{write_size(row[name]['peak']):>12}" for row in found["memory"])


def _traffic(found: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"messages  {'stage':<18}{'':<18}{'messages':>22}{'bytes':>28}"
    for stage in found["stages"]:
        if not stage["known"]:
            yield f"          {stage['name']:<18}not known before the run"
            continue
        totals = ("total", f"{'' if stage['all_rounds'] else '<= '}{count(stage['rounds'], 'round')}")
        for part, label in (("opening", "opening"), ("first", "round 1"), totals):
            volume = stage[part]
            messages, volumes = f"{volume['messages']:,}", f"{volume['bytes']:,} B"
            messages = messages if volume["exact_messages"] else f"at most {messages}"
            volumes = volumes if volume["exact_bytes"] else f"at most {volumes}"
            wire = f"  about {volume['wire_bytes']:,} B on the wire" if volume["encoded"] else ""
            name = stage["name"] if part == "opening" else ""
            yield f"          {name:<18}{label:<18}{messages:>22}{volumes:>28}{wire}"


def _seconds(found: dict[str, Any]) -> Iterator[str]:
    link = found["link"]
    yield ""
    yield (
        f"seconds   per round, a core for every rank; a message takes {1e6 * link['latency']:.3g} us, "
        f"{write_size(link['bandwidth'])}/s ({link['source']})"
    )
    yield f"  {'ranks':>8}{'seconds':>12}{'faster':>9}{'edge cut':>14}{'halo size':>12}  rank partition"
    first = found["strong"][0]["seconds"]
    for row in found["strong"]:
        speedup = first / row["seconds"] if row["seconds"] else 1.0
        yield (
            f"  {row['ranks']:>8,}{row['seconds']:>12.4g}{speedup:>8.1f}x{row['edge_cut']:>14,}{row['halo_size']:>12,}"
            f"  {row['rank_partition']}"
        )
    for row in found["weak"]:
        yield f"  {row['ranks']:>8,}{row['seconds']:>12.4g}  with {count(row['devices'], 'device')}"
    for row in found["measured"]:
        yield (
            f"  measured on {row['ranks']}: {row['seconds']:.4g} s, predicted {row['predicted']:.4g} s, "
            f"off by {100 * row['error']:+.0f} %"
        )


def _virtual(found: dict[str, Any]) -> Iterator[str]:
    told = found["virtual"]
    if told is None:
        return
    yield ""
    yield f"virtual   seconds, estimated on the link model {told['net']}"
    if not told["known"]:
        yield "  not known before the run"
        return
    labels = {"opening": "until the first round", "first": "round 1", "round": "a later round, on average",
              "total": f"<= {count(told['rounds'], 'round')}, all in all"}  # fmt: skip
    for name, label in labels.items():
        kind = told["kind"][name]
        yield f"  {label:<30}{'' if kind == 'exact' else kind:>8} {told[name]:.6g} s"
    if "about" in told["kind"].values():
        yield "  about: as if all devices had equally many points, or as in the rounds before"


def _tail(found: dict[str, Any]) -> Iterator[str]:
    for refusal in found["refusals"][1:]:
        yield ""
        yield f"refused   {refusal}"
    if found["figures"]:
        yield ""
        yield f"figures   {' '.join(found['figures'])}"
