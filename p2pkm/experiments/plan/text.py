"""A plan in words."""

from collections.abc import Iterator
from typing import Any, TextIO

from p2pkm.core.units import count, write_size

_ROUNDS = {0: "no round", 1: "one round", 2: "two rounds"}


def show(found: dict[str, Any], out: TextIO) -> None:
    """Print what `p2pkm.experiments.plan.run.run_plan_command` found."""
    out.write(
        "\n".join([*_head(found), *_memory(found), *_split(found), *_traffic(found), *_seconds(found), *_tail(found)])
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


def _split(found: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"split     {'ranks':>8}{'devices':>12}{'halo size':>12}{'edge cut':>12}  rank partition"
    for row in found["split"]:
        yield (
            f"          {row['ranks']:>8,}{row['devices']:>12,}{row['halo_size']:>12,}{row['edge_cut']:>12,}"
            f"  {row['rank_partition']}"
        )


def _seconds(found: dict[str, Any]) -> Iterator[str]:
    pilot, told = found["pilot"], found["experiment"]
    yield ""
    if "reason" in pilot:
        yield f"seconds   not measured: {pilot['reason']}"
        return
    most = "" if told.get("all_rounds") else "<= "
    yield (
        f"seconds   about {_write_seconds(pilot['total'])} for {most}{count(told['rounds'], 'round')}: "
        f"{_write_seconds(pilot['round'])} for each, {_write_seconds(pilot['start'])} for all other stages"
    )
    yield (
        f"  measured with {count(pilot['devices'], 'device')}, {count(pilot['points'], 'point')}, "
        f"{_ROUNDS.get(pilot['rounds'], pilot['rounds'])} here; scaled linearly; for one process"
    )
    yield "  without reading points, central baseline, records, figures and files"


def _write_seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"


def _tail(found: dict[str, Any]) -> Iterator[str]:
    for refusal in found["refusals"][1:]:
        yield ""
        yield f"refused   {refusal}"
