"""Comparison of two versions of p2pkm: ``python -P tests/support/same_results.py OLD_PYTHON NEW_PYTHON [options]``.

Both interpreters have p2pkm installed, each its own version. The old one draws random experiments (`tests.swarm`), both
run them in folders of the same relative paths, and everything that a user could see is compared: exit codes, standard
output and error, and every stored file. Left out are times, lines of progress, figures, and the names of program and
machine. Ends with 1 if anything differs.

Kinds of experiments, ``--kind``:

* run: a command, then ``plan`` with the same options, ``verify`` and ``predict`` on its folder.
* resume: a folder as a kill at a drawn checkpoint of the old version would leave it, resumed by both.
* study: ``sweep`` with a drawn study file, ``compare``, and ``resume`` of both folders without their last rows.
* script: ``simulate``, ``P2PKMeans``, ``study`` and ``compare`` with objects of Python.

``--ranks N`` runs the new version under ``mpirun -n N``; facts about ranks are then not compared.
"""

import argparse
import contextlib
import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

KINDS = ("run", "resume", "study", "script")
_TIMES = re.compile(
    r"seconds(?!_to_|_lan|_wan|_lora|_edge)|_at$|^(folder|out|mpi|threads|host|pid|version|python|libraries|command|cwd|start|end|time|fingerprint|sha256|program|rate)$"
)
_RANKS = re.compile(r"^(ranks|rank_partition|edge_cut|halo_size|load_imbalance|load_imbalance_devices|jobs)$")
_SKIPPED = re.compile(r"\.(png|pdf|svg|parquet|html|gif)$|checksums\.sha256$|\.lock$|\.npz\.part$|/checkpoint")
_FINGERPRINT = re.compile(r"/[0-9a-f]{32}\.json$")
_TEXT_TIMES = (
    (re.compile(r"\d+(\.\d+)?(e-?\d+)? ?(s|ms|min|h)\b"), "T s"),
    (re.compile(r"^.*(measuring|compil|drawing|\d+ of \d+: |rank partition| round \d+.*ratio).*$", re.MULTILINE), ""),
    (re.compile(r"\b\d+ process(es)?|\b\d+ ranks?\b"), "P"),
    (re.compile(r"[ \t]+"), " "),
)


def normalize_text(text: str) -> str:
    """Replace times, the number of processes and widths of columns."""
    text = text.replace(os.getcwd(), ".")
    for pattern, replacement in _TEXT_TIMES:
        text = pattern.sub(replacement, text)
    return text.strip()


def normalize(value: Any) -> Any:
    """Remove times and facts about program and machine from a JSON value."""
    if isinstance(value, dict):
        return {key: normalize(entry) for key, entry in value.items() if not _TIMES.search(str(key))}
    if isinstance(value, list):
        return [normalize(entry) for entry in value]
    if isinstance(value, float) and value != value:
        return "nan"
    if isinstance(value, str):
        return normalize_text(value)
    return value


def digest_array(array: Any) -> str:
    """Digest type, shape and content of an array."""
    array = np.asarray(array)
    if array.dtype == object or array.dtype.kind in "UT":
        return repr(array.tolist())[:2000]
    content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    return f"{array.dtype.str}{array.shape} {content}"


def read_file(path: Path) -> Any:
    """Read what is compared of a stored file."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {name: digest_array(arrays[name]) for name in arrays.files}
    if path.suffix == ".npy":
        return digest_array(np.load(path))
    text = path.read_text("utf-8", errors="replace")
    if path.suffix == ".json":
        return normalize(json.loads(text))
    if path.suffix == ".jsonl":
        return [normalize(json.loads(line)) for line in text.splitlines()]
    if path.suffix == ".csv":
        rows = list(csv.reader(io.StringIO(text)))
        kept = [at for at, name in enumerate(rows[0] if rows else []) if not _TIMES.search(name)]
        return [[row[at] for at in kept if at < len(row)] for row in rows]
    return normalize_text(text)


def read_folder(folder: Path) -> dict[str, Any]:
    """Read all files below a folder that are compared, by relative path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not _SKIPPED.search("/" + name):
            try:
                content = read_file(path)
            except Exception as error:
                content = f"unreadable: {error!r}"
            if _FINGERPRINT.search(name):
                # The name depends on the version.
                found.setdefault("rows", []).append(content)
            else:
                found[name] = content
    if "rows" in found:
        found["rows"].sort(key=lambda row: json.dumps(row, sort_keys=True))
    return found


def call(*words: Any) -> dict[str, Any]:
    """Run a command in this process."""
    from p2pkm.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code: Any = main([str(word) for word in words])
        except BaseException as error:
            code = f"{error!r} {traceback.format_exc()[-300:]}"
    return {"words": [str(word) for word in words], "code": code, "out": normalize_text(out.getvalue()),
            "err": normalize_text(err.getvalue())}  # fmt: skip


# Kinds of experiments. Each runs in an empty working folder and returns what is compared.


def run_single(experiment: Any, ranks: int) -> dict[str, Any]:
    """Run an experiment of the command line, and in one process everything that follows a run."""
    words = experiment.words(Path("."))
    found: dict[str, Any] = {"run": call(*words, "--out", "out", "--no-plot", "--format", "table")}
    if ranks == 1:
        found["plan"] = call("plan", *words)
    if ranks == 1 and found["run"]["code"] == 0:
        found["verify"] = call("verify", "out")
        if "@" in experiment.options.get("data", ""):
            data = words[words.index("--data") + 1]
            found["predict"] = call("predict", "out", data)
    found["files"] = read_folder(Path("out"))
    return found


def make_killed(experiment: Any) -> dict[str, Any]:
    """Keep a copy of a run folder at a drawn checkpoint; returns the outcome of the uninterrupted run."""
    from p2pkm.storage import checkpoint

    put, count, chosen = checkpoint.CheckpointWriter.put, iter(range(1, 10**9)), Random(experiment.seed).randint(1, 12)

    def copying(self: Any, outline: Any, arrays: Any) -> None:
        put(self, outline, arrays)
        if next(count) <= chosen:
            shutil.rmtree("killed", ignore_errors=True)
            shutil.copytree("out", "killed")

    checkpoint.CheckpointWriter.put = copying  # type: ignore[method-assign]
    try:
        words = experiment.words(Path("."))
        return call(*words, "--out", "out", "--no-plot", "--checkpoint-every", "1")
    finally:
        checkpoint.CheckpointWriter.put = put  # type: ignore[method-assign]


def run_resume(experiment: Any, killed: Path) -> dict[str, Any]:
    """Resume the folder that the old version left."""
    experiment.words(Path("."))  # writes the data
    if not (killed / "killed").exists():
        return {"killed": False}
    shutil.copytree(killed / "killed", "killed")
    found = {"resume": call("resume", "killed")}
    return found | {"files": read_folder(Path("killed"))}


_OF_STUDIES = {"encode", "drop", "missing", "scale", "dtype", "min-cluster-size", "noise", "faults", "record-every",
               "silhouette", "no-baselines", "all-rounds", "link-model", "stream"}  # fmt: skip


def draw_study(experiment: Any) -> dict[str, Any]:
    """Draw the options and the axes of a study from an experiment."""
    rng = Random(experiment.seed)
    options = {name: experiment.options[name] for name in ("data", "partition") if name in experiment.options}
    # With more options, hardly any combination of methods is accepted.
    further = sorted(experiment.options.keys() & _OF_STUDIES)
    options |= {name: experiment.options[name] for name in further[: rng.randint(0, 2)]}
    options["clusters"] = str(rng.randint(1, 4))
    options["devices"] = str(rng.choice((3, 4, 6)))
    options["rounds"] = str(rng.randint(1, 4))
    methods = ["gtvmin", "treelloyd", "consensus", "fkm", "kfed", "gtvmin:coupling=3", "central", "local"]
    own = options.pop("algorithm", "gtvmin")
    return {"options": options, "algorithm": [own, *rng.sample(methods, 2)],
            "graph": ["ring", rng.choice(("star", "path", "complete", "grid"))], "seeds": "0-1"}  # fmt: skip


def run_study(experiment: Any) -> dict[str, Any]:
    """Run a sweep, a comparison, and both again without their last rows."""
    import tomli_w

    drawn = draw_study(experiment)
    words = experiment._replace(options=drawn["options"]).words(Path("."))
    values: dict[str, Any] = {}
    position = 0
    while position < len(words):
        name, has_value = words[position][2:], position + 1 < len(words) and not words[position + 1].startswith("--")
        values[name.replace("-", "_")] = words[position + 1] if has_value else True
        position += 1 + has_value
    for name in ("devices", "rounds", "min_cluster_size", "local_steps", "record_every", "k_max"):
        if name in values:
            values[name] = int(values[name])
    for name in ("noise", "tol", "alpha"):
        if name in values:
            values[name] = float(values[name])
    study = values | {"seeds": drawn["seeds"], "grid": {"algorithm": drawn["algorithm"], "graph": drawn["graph"]}}
    Path("study.toml").write_text(tomli_w.dumps(study))
    found: dict[str, Any] = {"sweep": call("sweep", "study.toml", "--out", "swept", "--no-plot")}
    found["compare"] = call("compare", *_comparison_words(drawn, words))
    for name in ("swept", "compared"):
        found[f"files of {name}"] = read_folder(Path(name)) if Path(name).exists() else {}
        # As a kill in the middle would leave the folder.
        finished = sorted(Path(name, "runs").glob("*.json"), key=lambda path: path.read_text()[:2000])
        for path in [*finished[::2], *Path(name).glob("*.jsonl")]:
            path.unlink()
        if finished:
            found[f"resume {name}"] = call("resume", name)
            found[f"files of resumed {name}"] = read_folder(Path(name))
    return found


def _comparison_words(drawn: dict[str, Any], words: list[str]) -> list[str]:
    """Write the command line of a comparison."""
    named = ["--algorithm", ",".join(drawn["algorithm"]), "--graph", ",".join(drawn["graph"]), "--seeds", "0-1",
             "--out", "compared", "--no-plot"]  # fmt: skip
    kept = list(words)
    if "--graph" in kept:
        at = kept.index("--graph")
        del kept[at : at + 2]
    return [*named, *kept]


_SIMULATE = {"faults": str, "byzantine": str, "min-cluster-size": int, "noise": float, "quantize": str, "scale": str,
             "stream": str, "link-model": str, "stale-policy": str, "record-every": int}  # fmt: skip


def run_script(experiment: Any) -> dict[str, Any]:
    """Run the functions of Python with objects."""
    import networkx as nx

    import p2pkm
    from tests.swarm.experiments import make_points

    rng = Random(experiment.seed)
    n, k, d = rng.choice((2, 3, 4, 6)), rng.choice((1, 2, 3)), rng.choice((1, 2, 3))
    points, classes = make_points("clusters", rng.choice((20, 40, 90)), d, experiment.seed)
    graph = rng.choice((nx.path_graph, nx.complete_graph, nx.star_graph))
    network = graph(n) if graph is not nx.star_graph else nx.star_graph(n - 1)
    site = np.arange(len(points)) % n
    method_class = rng.choice((p2pkm.GTVMin, p2pkm.TreeLloyd, p2pkm.ConsensusLloyd, p2pkm.FKM, p2pkm.KFED, p2pkm.ADMM))
    options = {name.replace("-", "_"): kind(experiment.options[name]) for name, kind in _SIMULATE.items()
               if name in experiment.options}  # fmt: skip
    served = method_class in (p2pkm.FKM, p2pkm.KFED)
    found: dict[str, Any] = {"case": f"{method_class.__name__}({k}) n {n} {network.number_of_edges()} links {options}"}

    def attempt(name: str, function: Any) -> None:
        try:
            with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
                warnings.simplefilter("ignore")
                found[name] = function()
        except p2pkm.P2PKMError as error:
            found[name] = f"{type(error).__name__}: {normalize_text(str(error))}"
        except Exception as error:
            found[name] = f"{error!r} {traceback.format_exc()[-300:]}"

    def simulate() -> Any:
        shards = p2pkm.Shards.deal(points, site, devices=n, labels=classes)
        result = p2pkm.simulate(method_class(k), None if served else network, shards, rounds=rng.randint(1, 5),
                                seed=experiment.seed % 7, progress=False, **options)  # fmt: skip
        return [normalize(result.summary), digest_array(result.centroids), result.notes]

    def estimate() -> Any:
        keywords: dict[str, Any] = {} if served else {"graph": network}
        model = p2pkm.P2PKMeans(k, random_state=experiment.seed % 5, **keywords).fit(points, devices=site)
        return [digest_array(model.labels_), digest_array(model.cluster_centers_), repr(model.inertia_), model.n_iter_,
                digest_array(model.predict(points[:5]))]  # fmt: skip

    def study_of_objects() -> Any:
        shards = p2pkm.Shards.deal(points, site, devices=n, labels=classes)
        axes = {"graph": {"mine": network, "ring": "ring"}, "algorithm": [method_class(k), "treelloyd"]}
        study = p2pkm.study(grid=axes, data=shards, seeds=[0, 1], rounds=2, clusters=k, devices=n,
                            progress=False)  # fmt: skip
        return normalize(json.loads(study.to_frame().to_json(orient="records")))

    def comparison() -> Any:
        study = p2pkm.compare([p2pkm.GTVMin(k), "treelloyd"], {"mine": network}, seeds=range(3), data=(points, classes),
                              partition=site, clusters=k, devices=n, rounds=2, progress=False)  # fmt: skip
        return [normalize(json.loads(study.to_frame().to_json(orient="records"))), normalize(study.conclusion())]

    attempt("simulate", simulate)
    attempt("estimator", estimate)
    attempt("study", study_of_objects)
    attempt("compare", comparison)
    return found


def work(arguments: argparse.Namespace) -> None:
    """Run the experiments of one version and write one line for each."""
    from tests.swarm.experiments import Experiment

    rank = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")))
    experiments = [Experiment.of(line) for line in Path(arguments.experiments).read_text().splitlines()]
    root = Path(arguments.work, f"rank{rank}")
    with open(os.devnull if rank else arguments.outcomes, "w") as outcomes:
        for experiment in experiments:
            folder = root / str(experiment.seed)
            folder.mkdir(parents=True)
            os.chdir(folder)
            if arguments.kind == "run":
                found = run_single(experiment, arguments.ranks)
            elif arguments.kind == "study":
                found = run_study(experiment)
            elif arguments.kind == "script":
                found = run_script(experiment)
            elif arguments.kind == "make-killed":
                found = make_killed(experiment)
            else:
                found = run_resume(experiment, Path(arguments.killed, "rank0", str(experiment.seed)))
            outcomes.write(json.dumps(found, default=repr) + "\n")
            outcomes.flush()
            os.chdir(root)
            if arguments.kind != "make-killed":
                shutil.rmtree(folder, ignore_errors=True)


def start(
    python: str, place: Path, name: str, kind: str, ranks: int, *, launch: bool = False
) -> "subprocess.Popen[bytes]":
    """Start the worker of one version."""
    command = [python, "-P", str(Path(__file__).absolute()),
               "--work", str(place / name), "--experiments", str(place / "experiments"), "--kind", kind,
               "--outcomes", str(place / f"{name}.jsonl"), "--killed", str(place / "killed"),
               "--ranks", str(ranks)]  # fmt: skip
    if launch:
        command = [str(Path(python).parent / "mpirun"), "-n", str(ranks), *command]
    with (place / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=place)


def differences(one: Any, other: Any, path: str, skipped: re.Pattern[str] | None) -> list[str]:
    """List the places in which two JSON values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [key for key in dict.fromkeys([*one, *other]) if not (skipped and skipped.search(key))]
        return [
            line
            for key in keys
            for line in differences(one.get(key, "absent"), other.get(key, "absent"), f"{path}/{key}", skipped)
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            line
            for at, pair in enumerate(zip(one, other, strict=True))
            for line in differences(*pair, f"{path}[{at}]", skipped)
        ]
    if one == other:
        return []
    if isinstance(one, str) and isinstance(other, str) and "\n" in one + other:
        mine, theirs = one.splitlines(), other.splitlines()
        lines = [line for line in mine if line not in theirs] + [f"-> {line}" for line in theirs if line not in mine]
        return [f"{path}: " + " | ".join(lines)[:400]]
    return [f"{path}: {str(one)[:200]} -> {str(other)[:200]}"]


def main() -> int:
    """Draw experiments, run both versions and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    parser.add_argument("--kind", default="run", choices=[*KINDS, "make-killed"])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--except", dest="ignored", help="regular expression of places that may differ")
    for name in ("work", "experiments", "outcomes", "killed"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments)
        return 0
    old, new = (str(Path(python).absolute()) for python in arguments.pythons)
    place = Path(tempfile.mkdtemp(prefix="same_results"))
    # The old version draws, since a new method or graph changes all draws.
    draw = (
        "import sys; from tests.swarm.experiments import draw\n"
        "for seed in range(*map(int, sys.argv[1:])): print(draw(seed).text())"
    )
    seeds = [str(arguments.seed), str(arguments.seed + arguments.count)]
    drawn = subprocess.run(
        [old, "-P", "-c", draw, *seeds], check=True, stdout=subprocess.PIPE, text=True, cwd=place
    ).stdout
    (place / "experiments").write_text(drawn)
    if arguments.kind == "resume" and start(old, place, "killed", "make-killed", 1).wait():
        sys.exit(f"the old version failed: {(place / 'killed.log').read_text()[-2000:]}")
    workers = (
        start(old, place, "old", arguments.kind, arguments.ranks),
        start(new, place, "new", arguments.kind, arguments.ranks, launch=arguments.ranks > 1),
    )
    if any([worker.wait() for worker in workers]):
        logs = [(place / f"{name}.log").read_text()[-1500:] for name in ("old", "new")]
        sys.exit(f"a worker failed: {logs}")
    outcomes = [
        [json.loads(line) for line in (place / f"{name}.jsonl").read_text().splitlines()] for name in ("old", "new")
    ]
    skipped = _RANKS if arguments.ranks > 1 else None
    ignored = re.compile(arguments.ignored) if arguments.ignored else None
    differ, completed = 0, 0
    for text, one, other in zip(drawn.splitlines(), *outcomes, strict=True):
        lines = [line for line in differences(one, other, "", skipped) if not (ignored and ignored.search(line))]
        completed += any(isinstance(part, dict) and part.get("code") == 0 for part in one.values()) or "case" in one
        if lines:
            differ += 1
            print(text, *(f"    {line}" for line in lines[:12]), sep="\n", flush=True)
    print(f"{len(outcomes[0])} experiments of kind {arguments.kind}, {completed} ran to an end, {differ} differ")
    shutil.rmtree(place, ignore_errors=True)
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
