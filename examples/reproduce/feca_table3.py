"""Xu et al., table 3: deep clustering in a federation, DeepFeCA against other server methods in its place.

The paper trains a ResNet-18 on CIFAR and Tiny-ImageNet for 150 rounds, which is out of reach of a processor. Here the
same algorithm learns small networks on generated shapes and on scikit-learn's digits, with the controls that the paper
does not have, so a verdict is one on these images and refutes nothing about others. Your own images: --images FILE.npz
in --data-dir, with the arrays images ([n, height, width, channels], uint8) and labels; we then compare nothing.

Needs the extra `deep`. Count 20 seconds of a processor for each system, split and seed. Every finished run is a line of
feca_table3_DATA.jsonl in --out: the same command again goes on from there; --splits and --systems choose what to run.
"""

import json
from pathlib import Path
from typing import Any

from paper import Row, claim, need, options, save, show

import p2pkm
import topologies
from p2pkm.viz import plot_accuracy

SPLITS = {"IID": "iid", "0.3, by class": "dirichlet:alpha=0.3", "0.1, by class": "dirichlet:alpha=0.1"}
SHAPES = "shapes:points=200,side=16,noise=0.05,contrast=0.8"  # chosen on the pooled form
SERVERS = {"DeepFeCA": "feca", "M-Avg": "mavg", "k-FED": "kfed", "FFCM v1": "ffcm1", "FFCM v2": "ffcm2"}
CONTROLS = ("raw pixels", "PCA", "untrained body", "none", "central", "pooled")
ALONE = {"raw pixels", "PCA", "untrained body", "pooled"}  # the same for every split
METHOD: dict[str, Any] = {"rate": 0.02, "epochs": 5}
BETTER = METHOD | {"batch": 4, "classifier": "centered"}  # what docs/howto/deep-clustering.md found to help
GRAPHS = {"ring": topologies.ring(10), "small world": topologies.small_world(10, degree=4),
          "complete": topologies.complete(10)}  # fmt: skip
SYSTEMS: dict[str, Any] = {
    **{label: p2pkm.DeepFeCA(30, server=server, **METHOD) for label, server in SERVERS.items()},
    "gossip, ring": (p2pkm.DeepGossip(30, gossips=1, **METHOD), GRAPHS["ring"]),
    "DeepFeCA, centered": p2pkm.DeepFeCA(30, **BETTER),
    **{f"tree, {name}, centered": (p2pkm.DeepGossip(30, **BETTER), graph) for name, graph in GRAPHS.items()},
    "gossip, ring, centered": (p2pkm.DeepGossip(30, gossips=4, **BETTER), GRAPHS["ring"]),
}
PAPER = {  # CIFAR-10, linear evaluation in per cent: IID, 0.3, 0.1
    "M-Avg": (53.6, 48.2, 45.1), "FFCM v1": (44.6, 48.5, 45.5), "FFCM v2": (47.7, 50.1, 49.1),
    "k-FED": (46.8, 50.0, 47.1), "DeepFeCA": (55.3, 63.7, 59.9), "pooled": (80.9, 80.9, 80.9),
}  # fmt: skip


def main() -> None:
    """Run, print the tables and draw."""
    chosen = options(
        __doc__, 10,
        images={"metavar": "NAME", "help": "your own images: an .npz file in --data-dir"},
        only={"choices": ("shapes", "digits"), "help": "one of our data sets alone"},
        rounds={"type": int, "default": 10, "help": "rounds (10)"},
        points={"type": int, "default": 200, "help": "images of each shape (200)"},
        splits={"choices": SPLITS, "default": list(SPLITS), "nargs": "+", "help": "splits (all)"},
        systems={"choices": [*SYSTEMS, *CONTROLS], "default": [*SYSTEMS, *CONTROLS], "nargs": "+",
                 "help": "systems and controls (all)"},
    )  # fmt: skip
    if chosen.images:
        sets: dict[str, Any] = {"images": str(need(chosen.data_dir, chosen.images))}
    else:
        pixels, classes = p2pkm.digits()
        keep = len(pixels) if chosen.points >= 200 else 10 * chosen.points
        sets = {"shapes": SHAPES.replace("=200", f"={chosen.points}"), "digits": (pixels[:keep] / 16, classes[:keep])}
        sets = {name: data for name, data in sets.items() if chosen.only in (None, name)}
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name, data in sets.items():
        tables = {split: _run(chosen, data, split, chosen.out / f"feca_table3_{name}.jsonl") for split in chosen.splits}
        for split, found in tables.items():
            print(f"\n{name}, {split}, {chosen.runs} runs, means (sd)\n{found}")
        if not chosen.images:
            _judge(name, tables)
        for against in ("bytes", "bytes_busiest"):
            drawn = plot_accuracy(tables.get("0.3, by class", found), against=against).figure
            save(drawn, chosen.out, f"feca_table3_{name}_{against}")


def _run(chosen: Any, data: Any, split: str, path: Path) -> p2pkm.DeepTable:
    """Return the table of a split; rows are kept in a file as they come, and those that it has are not run again."""
    settings = [data if isinstance(data, str) else len(data[1]), chosen.rounds]
    lines = map(json.loads, path.read_text().splitlines() if path.exists() else ())
    known = [line["row"] for line in lines if line["settings"] == settings
             and (line["split"] == split or line["row"]["name"] in ALONE)]  # fmt: skip

    def tell(row: dict[str, Any]) -> None:
        with path.open("a") as file:
            file.write(json.dumps({"settings": settings, "split": split, "row": row}) + "\n")

    return p2pkm.deep_table(
        {name: one for name, one in SYSTEMS.items() if name in chosen.systems} or {"DeepFeCA": SYSTEMS["DeepFeCA"]},
        data, partition=SPLITS[split], rounds=chosen.rounds, seeds=chosen.seeds,
        controls=[name for name in CONTROLS if name in chosen.systems], known=known, tell=tell,
    )  # fmt: skip


def _judge(name: str, tables: dict[str, Any]) -> None:
    """Print the paper's values of CIFAR-10 beside ours, and whether what it says in words is so on these images."""
    rows: list[Row] = []
    for split, found in tables.items():
        for label, printed in PAPER.items():
            values = [row["accuracy"] for row in found.rows if row["name"] == label]
            if values:
                rows.append(Row(f"{split}, {label}", printed[list(SPLITS).index(split)] / 100, values))
    notes = []
    if all({*SERVERS, "pooled"} <= set(found.names) for found in tables.values()):
        federated = [label for label in SERVERS if label != "DeepFeCA"]
        notes = [
            claim(f"on {name}: all images in one place beat every federated line",
                  all(found.mean("pooled") > max(map(found.mean, SERVERS)) for found in tables.values())),
            claim(f"on {name}: DeepFeCA is the best of the federated lines",
                  all(found.mean("DeepFeCA") >= max(map(found.mean, federated)) for found in tables.values())),
        ]  # fmt: skip
    feca = {split: found.mean("DeepFeCA") for split, found in tables.items() if "DeepFeCA" in found.names}
    if len(feca) == len(SPLITS):
        notes.append(claim(f"on {name}: label skew does not hurt DeepFeCA (we take: by at most 0.02)",
                           min(feca.values()) > feca["IID"] - 0.02))  # fmt: skip
    if rows:
        show(f"Table 3 on {name}", rows, notes, source="CIFAR-10")


if __name__ == "__main__":
    main()
