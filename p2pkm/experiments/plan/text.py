"""Text output of a plan."""

from collections.abc import Iterator
from typing import Any, TextIO

from p2pkm.core.text_table import align_columns
from p2pkm.core.units import count, format_bytes

_ROUNDS = {0: "no round", 1: "one round", 2: "two rounds"}  # a pilot has at most two


def write_plan(plan: dict[str, Any], out: TextIO) -> None:
    """Write the plan of `p2pkm.experiments.plan.run.run_plan_command` as text."""
    out.write(
        "\n".join([*_head(plan), *_memory(plan), *_split(plan), *_traffic(plan), *_seconds(plan), *_tail(plan)]) + "\n"
    )
    out.flush()


def _head(plan: dict[str, Any]) -> Iterator[str]:
    options = plan["experiment"]
    yield f"plan      {options['algorithm']} on {options['graph']}, k = {options['clusters']}"
    in_use = "" if plan["links_in_use"] is None else f" ({plan['links_in_use']:,.4g} in use in a round)"
    yield (
        f"size      {count(plan['devices'], 'device')}, {count(plan['links'], 'link')}{in_use}, "
        f"{count(plan['points'], 'point')} with {count(plan['features'], 'feature')}, "
        f"{count(options['rounds'], 'round')}"
    )
    if plan["excess_predicted"] is not None:
        best = plan["excess_strong"]
        yield (
            f"quality   excess of the cost ratio {plan['excess_predicted']:.2g} from sampling noise, labels fixed; "
            f"{best['excess']:.2g} with coupling strong, which is {best['coupling']:g} on this graph"
        )


def _memory(plan: dict[str, Any]) -> Iterator[str]:
    free = plan["memory_free"]
    yield ""
    yield f"memory    free on this machine: {'unknown' if free is None else format_bytes(free)}"
    row = next(row for row in plan["memory"] if row["ranks"] == plan["ranks"])
    for name, label in (("rank0", "rank 0"), ("other", "other ranks")):
        if name == "rank0" or plan["ranks"] > 1:
            parts = {part: size for part, size in row[name].items() if part not in ("held", "peak") and size}
            yield f"  {label}: {format_bytes(row[name]['peak'])} at most"
            yield "    " + ", ".join(f"{part} {format_bytes(size)}" for part, size in parts.items())
    yield "  on      " + "".join(f"{row['ranks']:>12,}" for row in plan["memory"]) + "  ranks"
    for name, label in (("rank0", "rank 0"), ("other", "others")):
        yield f"  {label}  " + "".join(f"{format_bytes(row[name]['peak']):>12}" for row in plan["memory"])


def _traffic(plan: dict[str, Any]) -> Iterator[str]:
    yield ""
    rows = [("stage", "", "messages", "plain bytes", "")]
    for stage in plan["stages"]:
        if not stage["known"]:
            rows.append((stage["name"], "unknown before the run", "", "", ""))
            continue
        totals = ("total", f"{'' if stage['all_rounds'] else '<= '}{count(stage['rounds'], 'round')}")
        for part, label in (("opening", "initial exchange"), ("first", "round 1"), totals):
            volume = stage[part]
            messages, volumes = f"{volume['messages']:,}", f"{volume['bytes']:,} B"
            bound = "about" if stage["assumed"] else "at most"
            messages = messages if volume["exact_messages"] else f"{bound} {messages}"
            volumes = volumes if volume["exact_bytes"] else f"{bound} {volumes}"
            wire = f"about {volume['wire_bytes']:,} B encoded" if volume["encoded"] else ""
            name = stage["name"] if part == "opening" else ""
            rows.append((name, label, messages, volumes, wire))
    for i, line in enumerate(align_columns(rows, left=(0, 1, 4))):
        yield ("          " if i else "messages  ") + line
    assumed = [stage["name"] for stage in plan["stages"] if stage["assumed"]]
    if plan["not_counted"]:
        yield f"  not counted: {plan['not_counted']}"
    elif assumed:
        yield f"  about: {', '.join(assumed)} does not declare its messages (expected_messages), so they may differ"


def _split(plan: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"split     {'ranks':>8}{'devices':>12}{'halo size':>12}{'edge cut':>12}  rank partition"
    for row in plan["split"]:
        yield (
            f"          {row['ranks']:>8,}{row['devices']:>12,}{row['halo_size']:>12,}{row['edge_cut']:>12,}"
            f"  {row['rank_partition']}"
        )


def _seconds(plan: dict[str, Any]) -> Iterator[str]:
    pilot, options = plan["pilot"], plan["experiment"]
    yield ""
    if "reason" in pilot:
        yield f"seconds   not measured: {pilot['reason']}"
        return
    most = "" if options.get("all_rounds") else "<= "
    yield (
        f"seconds   about {_write_seconds(pilot['total'])} for {most}{count(options['rounds'], 'round')}: "
        f"{_write_seconds(pilot['round'])} for each, {_write_seconds(pilot['start'])} for all other stages"
    )
    yield (
        f"  measured with {count(pilot['devices'], 'device')}, {count(pilot['points'], 'point')}, "
        f"{_ROUNDS.get(pilot['rounds'], pilot['rounds'])} on this machine; scaled linearly, for one process"
    )
    yield "  excluding reading of points, central baseline, records, figures and files"


def _write_seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"


def _tail(plan: dict[str, Any]) -> Iterator[str]:
    for refusal in plan["refusals"][1:]:
        yield ""
        yield f"rejected  {refusal}"
