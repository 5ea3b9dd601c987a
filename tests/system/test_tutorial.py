"""The tutorial does what it says: its files make a package whose methods, graph and partition work."""

import importlib
import json
import shlex
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import p2pkm
from p2pkm.methods.registry import find
from tests.docs.check_blocks import read_blocks
from tests.support.play_rounds import arrange, last
from tests.support.run_cli import SMALL, here, ranks, there

pytestmark = pytest.mark.slow

BLOCKS = read_blocks(Path(__file__).parents[2] / "docs" / "tutorial.md")
FILES = {block.keys["file"]: block.text for block in BLOCKS if block.kind == "file"}
COMMANDS = [line for block in BLOCKS if block.kind == "norun" for line in block.text.splitlines()]


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


def test_the_page_has_all_files_and_commands():
    assert set(FILES) == {"matched.py", "oneshot.py", "graphs.py", "partitions.py", "pyproject.toml", "try_it.py",
                          "test_my_methods.py"}  # fmt: skip
    assert len(COMMANDS) == 3


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
    (mark,) = module.test_it_keeps_what_methods_promise.pytestmark
    for method in mark.args[1]:
        module.test_it_keeps_what_methods_promise(method)


def test_what_a_device_changes_is_known_to_neighbors_alone_after_a_round(package):
    rng = np.random.default_rng(0)
    table = arrange([rng.normal(0, 3, (8, 2)) for _ in range(7)], [(i, (i + 1) % 7) for i in range(7)])
    start = rng.normal(0, 3, (7, 3, 2))
    other = start.copy()
    other[3] = rng.normal(0, 3, (3, 2))
    one, two = (last(find("matched")(3), table, centroids, 1) for centroids in (start, other))
    assert {2, 4} <= set(np.flatnonzero((one != two).any(axis=(1, 2)))) <= {2, 3, 4}


def test_the_server_weighs_what_the_clients_say(package):
    shards = p2pkm.Shards.from_list([[[0.0], [2.0], [100.0]], [[4.0], [106.0], [106.0], [106.0]]])
    result = p2pkm.simulate(find("oneshot")(2), None, shards)
    np.testing.assert_allclose(np.sort(result.server_centroids[:, 0]), [(2 * 1 + 4) / 3, (100 + 3 * 106) / 4])
    assert result.summary["messages"] == 4
    assert result.summary["bytes"] == 2 * 2 * 2 * 8 + 2 * 2 * 1 * 8  # rows (centroid, count) up, centroids down


@pytest.mark.mpi
@pytest.mark.parametrize("method", ["matched", "oneshot"])
def test_the_same_bits_on_every_number_of_ranks(package, method):
    words = ("-m", "p2pkm", *SMALL, "--out", "none", "--format", "json", "--devices", 7, "--algorithm", method)
    path = f"{Path(p2pkm.__file__).parents[1]}:{package}"
    chains = {json.loads(there(*ranks(n), *words, PYTHONPATH=path).out)["chain_sha256"] for n in (1, 3)}
    assert len(chains) == 1
