"""The package of the tutorial, examples/plugin: its methods, graph and partition work."""

import importlib
import json
import shlex
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.methods.registry import find
from p2pkm.network.local import LocalNetwork
from tests.docs.check_blocks import read_blocks
from tests.support.play_rounds import arrange, last
from tests.support.resume import difference, keep_all, resume
from tests.support.run_cli import SMALL, here, on_ranks

pytestmark = pytest.mark.slow

PAGES = (
    "tutorial/write-a-method.md",
    "howto/add-a-transform.md",
    "howto/package-a-plugin.md",
)
ROOT = Path(__file__).parents[2]
FILES = {path.name: path.read_text("utf-8") for path in sorted((ROOT / "examples" / "plugin").glob("*.*"))}
BLOCKS = [block for page in PAGES for block in read_blocks(ROOT / "docs" / page) if block.kind == "file"]
COMMANDS = [
    line
    for block in read_blocks(ROOT / "docs" / PAGES[-1])
    if block.kind == "norun"
    for line in block.text.splitlines()
]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Install the files of the page, with their entry points, as pip would."""
    folder = tmp_path_factory.mktemp("tutorial")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    yield folder
    sys.path.remove(str(folder))
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_the_pages_show_the_files_of_the_package_and_all_commands():
    assert set(FILES) == {"matched.py", "pull.py", "serverlloyd.py", "graphs.py", "partitions.py", "half.py",
                          "pyproject.toml", "test_my_methods.py"}  # fmt: skip
    shown = {block.keys["file"]: block.text.removeprefix(f"# {block.keys['file']}\n") for block in BLOCKS}
    shown = {name: text for name, text in shown.items() if name != "rounding.py" and "rounding-p2pkm" not in text}
    assert shown == {name: FILES[name] for name in ("pull.py", "graphs.py", "pyproject.toml")}
    assert len(COMMANDS) == 4


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_runs(package, command):
    python, flag, program, *words = shlex.split(command)
    assert (python, flag, program) == ("python", "-m", "p2pkm")
    ending = here(*words)
    assert ending.code == 0, ending.err
    assert ending.out.strip()


def test_a_round_of_matched_averaging_worked_out_by_hand(package):
    # device 0: points 0, 2 | 10; device 1: 1 | 12, 12, 12; both start at 0 and 10, device 1 in the other order
    table = arrange([[[0.0], [2.0], [10.0]], [[1.0], [12.0], [12.0], [12.0]]], [(0, 1)])
    found = last(find("matched")(2), table, np.array([[[0.0], [10.0]], [[10.0], [0.0]]]), 1)
    low, high = (2 * 1.0 + 1 * 1.0) / 3, (1 * 10.0 + 3 * 12.0) / 4
    np.testing.assert_allclose(found[:, :, 0], [[low, high], [high, low]], rtol=1e-15)


def test_the_tests_of_the_page_pass(package):
    module = importlib.import_module("test_my_methods")
    for test in (module.test_contract_of_methods,
                 module.test_half_precision_saves_bytes_and_hardly_changes_the_result):  # fmt: skip
        (mark,) = test.pytestmark
        for given in mark.args[1]:
            test(*(given if isinstance(given, tuple) else (given,)))
    module.test_half_precision_rejects_lossy_links()


def test_what_a_device_changes_is_known_to_neighbors_alone_after_a_round(package):
    rng = np.random.default_rng(0)
    table = arrange([rng.normal(0, 3, (8, 2)) for _ in range(7)], [(i, (i + 1) % 7) for i in range(7)])
    start = rng.normal(0, 3, (7, 3, 2))
    other = start.copy()
    other[3] = rng.normal(0, 3, (3, 2))
    one, two = (last(find("matched")(3), table, centroids, 1) for centroids in (start, other))
    assert {2, 4} <= set(np.flatnonzero((one != two).any(axis=(1, 2)))) <= {2, 3, 4}


def test_a_round_of_weighted_pull_worked_out_by_hand(package):
    # device 0: points 0, 4 | 10; device 1: 2 | 12; the link between them weighs 3, a point of device 1 counts twice
    table = arrange([[[0.0], [4.0], [10.0]], [[2.0], [12.0]]], [(0, 1)], weights=np.array([1.0, 1.0, 1.0, 2.0, 2.0]))
    table = table._replace(devices=replace(table.devices, link_weights=np.full(2, 3.0)))
    found = last(find("pull")(2, strength=0.5), table, np.array([[[0.0], [10.0]]] * 2), 1)
    pull = 0.5 * 3.0 * (7.0 / 5.0)  # a mean point weighs 7/5
    expected = [
        [4.0 / (2.0 + pull), (10.0 + pull * 10.0) / (1.0 + pull)],
        [4.0 / (2.0 + pull), (24.0 + pull * 10.0) / (2.0 + pull)],
    ]
    np.testing.assert_allclose(found[:, :, 0], expected, rtol=1e-15)


@pytest.mark.parametrize("least", [0, 2])
def test_federated_lloyd_is_lloyd_on_the_points_of_all_clients(package, least):
    X, y = p2pkm.blobs(clusters=3, points=40, seed=0)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 6, seed=0), devices=6, labels=y)
    result = p2pkm.simulate(find("serverlloyd")(3), None, shards, min_cluster_size=least)
    assert result.summary["termination"] == "converged"
    centroids = result.server_centroids
    labels = ((X[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_allclose(centroids, [X[labels == c].mean(axis=0) for c in range(3)], rtol=1e-12)


SENDERS = ["serverlloyd", "gtvmin", "tracking", "gossip", "fkm", "kfed"]


@pytest.mark.parametrize(
    ("method", "options"),
    [("pull", {}), *[(method, options) for method in SENDERS for options in ({}, {"min_cluster_size": 2})]],
    ids=str,
)
def test_receivers_can_decode_what_the_transform_of_the_page_sends(package, monkeypatch, method, options):
    """Each end of each link holds a table of its own, and adds the differences in 16 bits that come over the link."""
    rng, held, checked, exchange = np.random.default_rng(0), {}, [], LocalNetwork.exchange
    shards = p2pkm.Shards.from_list([rng.normal(5.0 * rng.integers(0, 3, (9, 1)), 1.0, (9, 2)) for _ in range(6)])
    graph = None if needs_hub(find(method)(3)) else topologies.ring(6)

    def decode(network, messages):
        inbox = exchange(network, messages)
        sources = np.repeat(network.placement.ids, np.diff(network.placement.indptr))
        for edge in np.flatnonzero((messages.rows[sources] > 0) & (messages.wire is not None)):
            rows = messages.rows[sources[edge]]
            if messages.edges is not None and not messages.edges[edge]:
                continue
            sent = messages.values[sources[edge], :rows, :2]
            old = held.setdefault((stage[0], edge), np.zeros((99, 2)))
            read = old[:rows] + (sent - old[:rows]).astype(np.float16)
            np.testing.assert_array_equal(read, sent)
            if messages.edges is None:
                old[:rows] = read
            checked.append(edge)
        return inbox

    stage, opened = [0], LocalNetwork.open
    monkeypatch.setattr(LocalNetwork, "exchange", decode)
    monkeypatch.setattr(LocalNetwork, "open", lambda *given: (stage.__setitem__(0, stage[0] + 1), opened(*given))[1])
    p2pkm.simulate(find(method)(3), graph, shards, rounds=6, transforms="half", quantize=None, **options)
    assert len(checked) > 5


@pytest.mark.parametrize(("words", "cause"), [
    (("--faults", "loss=0.1"), "--faults loss=0.1"), (("--byzantine", "1"), "--byzantine 1"),
    (("--noise", "0.1"), "--noise 0.1"), (("--quantize", "rice"), "--quantize rice"),
    (("--graph", "one-peer-exponential"), "one-peer-exponential, whose links change"),
    (("--link-model", "lan", "--schedule", "async"), "--link-model lan and --schedule async"),
], ids=str)  # fmt: skip
def test_what_the_transform_of_the_page_cannot_be_combined_with_is_rejected(package, words, cause):
    ending = here(*SMALL, "--devices", 8, "--transforms", "half", *words, "--out", "none")
    said = " ".join(ending.err.split())
    assert ending.code == 2 and "cannot be combined with" in said and cause in said and "--transforms half" in said


@pytest.mark.parametrize(("method", "why"), [
    ("treelloyd", "used with treelloyd, which sends integers already"),
    ("coreset", "combined with coreset: the content of its messages is OTHER; expected CENTROIDS or SUMS"),
])  # fmt: skip
def test_the_transform_of_the_page_rejects_methods_that_it_could_not_shorten(package, method, why):
    ending = here(*SMALL, "--devices", 8, "--transforms", "half", "--algorithm", method, "--out", "none")
    assert ending.code == 2 and f"--transforms half cannot be {why}" in ending.err


def test_the_transform_of_the_page_continues_from_checkpoints(package, tmp_path, monkeypatch):
    words = (*SMALL, "--devices", 7, "--rounds", 6, "--tol", 0, "--transforms", "half", "--record-every", 1, "-q")
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        assert here(*words, "--checkpoint-every", 1, "--out", tmp_path / "run").code == 0
    for copy in sorted((tmp_path / "copies").iterdir())[-3:]:
        assert difference(tmp_path / "run", resume(copy)) == ""


@pytest.mark.mpi
def test_the_same_bits_on_ranks(package):
    words = [(*SMALL, "--out", "none", "--format", "json", "--devices", 7, "--algorithm", *method.split())
             for method in ("matched", "pull", "serverlloyd", "pull --transforms half",
                            "serverlloyd --transforms half")]  # fmt: skip
    path = f"{Path(p2pkm.__file__).parents[1]}:{package}"
    for command, ending in zip(words, on_ranks(3, words, PYTHONPATH=path), strict=True):
        one, three = json.loads(here(*command).out), json.loads(ending.out)
        assert (three["ranks"], three["chain_sha256"]) == (3, one["chain_sha256"]), command
