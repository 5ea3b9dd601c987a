"""Tables and figure of README: two questions, from the rankings of docs/benchmark.py.

``python docs/front_page.py`` draws the figure into the working folder. The tables are written by write_pages.py.
"""

import re
import sys
from pathlib import Path

import benchmark

# Rows of the tables, by the name in the ranking, and what they are called in README.
COMMON = {
    "tracking": "[`tracking`](docs/ref/methods/tracking.md)",
    "treelloyd": "[`treelloyd`](docs/ref/methods/treelloyd.md)",
    "fedlloyd": "[`fedlloyd`](docs/ref/methods/fedlloyd.md)",
    "private": "[`private`](docs/ref/methods/private.md), epsilon 4",
    "central": "k-means on all points at one place",
}
OWN = {
    "gtvmin:coupling=auto": "[`gtvmin:coupling=auto`](docs/ref/methods/gtvmin.md)",
    "ditto": "[`ditto`](docs/ref/methods/ditto.md)",
    "local": "[`local`](docs/ref/methods/local.md), each device alone",
    "gtvmin:coupling=strong": "`gtvmin:coupling=strong`",
    "treelloyd": "`treelloyd`, a common clustering",
}
# Methods of the figure: name in the ranking, label, color (Okabe and Ito), marker.
_TRUST = {"no server": "#0072b2", "server": "#d55e00", "raw points leave": "#cc79a7", "private": "#009e73"}
_BARS = ("tracking", "admm", "consensus", "fedlloyd", "treelloyd", "dwfkm", "fkm", "coreset", "private")
_LINES = (
    ("local", "each device alone", "#999999", "s"),
    ("treelloyd:local_steps=3", "common, then 3 local steps", "#e69f00", "v"),
    ("ditto", "ditto (server)", "#d55e00", "D"),
    ("gtvmin:coupling=auto", "gtvmin:coupling=auto", "#0072b2", "o"),
)
_FAMILIES = {
    "smooth": "smoothly\nalong links", "groups": "in\ngroups", "few": "at few\ndevices",
    "other": "not along\nthe links", "none": "not\nat all",
}  # fmt: skip
_OF_FAMILY = re.compile(r"\| `([^`]+)` \| (.+) \|")


def read_ranking(suite: str) -> dict[str, dict[str, str]]:
    """Read the ranking of a suite: cells by column, by entry."""
    _, *block, _ = benchmark.make_tables()[f"ranking-{suite}"].splitlines()
    head, *lines = (re.split(r"\s{2,}", line[4:].strip()) for line in block)
    return {cells[0]: dict(zip(head, cells, strict=True)) for cells in lines}


def read_families() -> dict[str, list[float]]:
    """Read the test cost over that of a common clustering by entry, one value for each family of tasks."""
    lines = _OF_FAMILY.findall(benchmark.make_tables()["families-personal"])
    return {entry: [float(cell.partition(" / ")[0]) for cell in cells.split(" | ")] for entry, cells in lines}


def make_tables() -> dict[str, str]:
    """Make the two tables of README in Markdown."""
    core, personal = read_ranking("core"), read_ranking("personal")
    common = [
        "| method | trust | excess cost, 95 % interval | runs without result | bytes / raw bytes |",
        "|---|---|---|---|---|",
    ]
    for entry, name in COMMON.items():
        row = core[entry]
        common.append(
            f"| {name} | {row['trust']} | {row['excess %']} % ({row['95 % interval']}) | {row['no result %']} % | "
            f"{row['encoded/raw bytes']} |"
        )
    own = [
        "| method | trust | relative test cost, 95 % interval | ARI over all devices | bytes / raw bytes |",
        "|---|---|---|---|---|",
    ]
    for entry, name in OWN.items():
        row = personal[entry]
        own.append(
            f"| {name} | {row['trust']} | {row['test/common']} ({row['95 % interval']}) | "
            f"{row['over all']} | {row['encoded/raw bytes']} |"
        )
    return {"front-common": "\n".join(common), "front-own": "\n".join(own)}


def draw(path: Path) -> None:
    """Draw both questions side by side."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    core = read_ranking("core")
    bars = sorted(_BARS, key=lambda entry: float(core[entry]["excess %"]))
    for place, entry in enumerate(bars):
        row = core[entry]
        low, high = (float(end.strip("<")) for end in row["95 % interval"].split(" to "))
        color = _TRUST[row["trust"]]
        left.plot([low, high], [place, place], color=color, linewidth=2)
        left.plot(float(row["excess %"]), place, "o", color=color, markersize=7)
    left.set(
        xscale="log",
        xlabel="excess over the best known cost (%), 95 % interval",
        title="One clustering for all devices",
    )
    left.set_yticks(range(len(bars)), bars)
    left.invert_yaxis()
    left.xaxis.set_major_formatter("{x:g}")
    left.grid(axis="x", linewidth=0.4)
    dots = [left.plot([], [], "o", color=color, label=trust)[0] for trust, color in _TRUST.items()]
    left.legend(handles=dots, loc="upper right", frameon=True)

    costs = read_families()
    ticks = range(len(_FAMILIES))
    right.axhline(1.0, color="black", linewidth=1.2, label="common clustering")
    for number, (entry, label, color, marker) in enumerate(_LINES):
        shift = 0.12 * (number - (len(_LINES) - 1) / 2)
        right.plot([tick + shift for tick in ticks], costs[entry], marker, color=color, markersize=7, label=label)
    right.set_xticks(ticks, _FAMILIES.values())
    right.set(xlabel="how the devices differ", ylabel="cost of unseen points / common clustering",
              title="A clustering for each device", ylim=(0.5, 1.5))  # fmt: skip
    right.grid(axis="y", linewidth=0.4)
    right.legend(loc="upper left", frameon=True)
    figure.savefig(path, dpi=110)
    for entry in bars:
        print(entry, core[entry]["excess %"], core[entry]["95 % interval"])
    for entry, *_ in _LINES:
        print(entry, *costs[entry])


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(f"unknown word {sys.argv[1]!r}; expected none")
    draw(Path("two_questions.png"))
