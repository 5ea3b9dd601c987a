"""A package from outside adds a method, an initialization, a partition and a graph; its errors name it."""

import json
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from p2pkm.data.partition import PARTITIONS
from p2pkm.methods.registry import METHODS, find, known, names
from tests.support.install_plugin import install, site
from tests.support.play_rounds import arrange, last
from tests.support.resume import difference, keep_all, resume
from tests.support.run_cli import SMALL, ranks, solve, there
from tests.support.run_cli import here as call

__all__ = ["site"]  # a fixture
SOURCE = Path(__file__).parents[1] / "support" / "plugin"
CALL = (
    "--algorithm",
    "neighbor-mean:pull=0.4",
    "--init",
    "common-box:times=2",
    "--graph",
    "double-ring:stride=3",
    "--partition",
    "sorted",
    "--rounds",
    6,
)


@pytest.fixture
def plugin(site):
    """Install the package of tests/support/plugin as its pyproject.toml says."""
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    module = (SOURCE / "p2pkm_example_plugin.py").read_text()
    install(site, project["name"], module, project["entry-points"])
    return site


@pytest.mark.slow
def test_the_command_line_takes_it_like_what_is_built_in(plugin):
    summary = solve(*CALL)
    assert summary["algorithm"] == "neighbor-mean"
    assert summary["graph"] == "double-ring:stride=3"
    assert summary["init"] == "common-box:times=2"
    assert summary["partition"] == "sorted:feature=0,minimum=0,seed=0"
    assert summary["rounds"] == 6
    assert summary["messages"] > 0
    text = call("algorithms", "neighbor-mean").out
    assert "Lloyd step toward the mean" in text and "pull=0.5" in text
    assert "neighbor-mean" in call("algorithms").out
    assert "double-ring:stride=2" in call("topology", "list").out
    assert call("topology", "describe", "double-ring", "--devices", 9, "--format", "json").code == 0
    assert call("plan", *SMALL[:4], *CALL, "--format", "json").code == 0


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_scripts_and_the_estimator_take_it(plugin):
    assert topologies.build("double_ring", 9, stride=4).number_of_edges() == 18
    X, _ = p2pkm.blobs(clusters=3, points=20, seed=0)
    model = p2pkm.P2PKMeans(3, algorithm="neighbor-mean", graph="double-ring", random_state=0).fit(X)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 16, seed=0), devices=16)
    method = find("neighbor-mean")(3)
    result = p2pkm.simulate(method, topologies.build("double-ring", 16), shards, rounds=150, baselines=False)
    assert_array_equal(model.device_centers_, result.centroids)


@pytest.mark.mpi
def test_the_same_bits_on_every_number_of_ranks(plugin):
    words = ("-m", "p2pkm", *SMALL, "--out", "none", "--format", "json", "--devices", 7, *CALL)
    path = f"{Path(p2pkm.__file__).parents[1]}:{plugin}"
    chains = {json.loads(there(*ranks(n), *words, PYTHONPATH=path).out)["chain_sha256"] for n in (2, 3)}
    assert chains == {solve("--devices", 7, *CALL)["chain_sha256"]}


def test_only_neighbors_know_after_a_round(plugin):
    rng, method = np.random.default_rng(0), find("neighbor-mean")(3)
    table = arrange([rng.normal(0, 3, (6, 2)) for _ in range(9)], [(i, (i + 1) % 9) for i in range(9)])
    start = rng.normal(0, 3, (9, 3, 2))
    other = start.copy()
    other[4] += 1.0
    for rounds, reached in ((1, {3, 4, 5}), (2, {2, 3, 4, 5, 6})):
        one, two = (last(method, table, centroids, rounds) for centroids in (start, other))
        changed = set(np.flatnonzero((one != two).any(axis=(1, 2))))
        assert {3, 5} <= changed <= reached


KEPT = (*SMALL, *CALL, "--devices", 7, "--seed", 3, "--checkpoint-every", 1, "-q")


@pytest.fixture
def kept(plugin, tmp_path, monkeypatch):
    """Return the folder of a run of the plug-in, and copies of it after each checkpoint."""
    place = tmp_path / "place"
    place.mkdir()
    with monkeypatch.context() as patched:
        keep_all(patched, place / "run", place / "copies")
        assert call(*KEPT, "--out", place / "run").code == 0
    return place / "run", sorted((place / "copies").iterdir())


@pytest.mark.slow
def test_its_run_goes_on_from_every_checkpoint(kept):
    whole, copies = kept
    assert len(copies) > 6
    for copy in copies:
        assert difference(whole, resume(copy)) == "", copy


@pytest.mark.mpi
def test_its_run_goes_on_in_another_process_and_on_ranks(kept, plugin):
    whole, copies = kept
    path = f"{Path(p2pkm.__file__).parents[1]}:{plugin}"
    for start, copy in (([sys.executable], copies[4]), (ranks(3), copies[5])):
        ending = there(*start, "-m", "p2pkm", "resume", copy, "-q", PYTHONPATH=path)
        assert ending.code == 0, ending.err
        assert difference(whole, copy) == ""


@pytest.mark.slow
def test_a_plug_in_that_is_gone_or_has_changed_is_named(kept, plugin):
    _, copies = kept
    module = plugin / "p2pkm_example_plugin.py"
    for before, after, words in (
        ('register("neighbor-mean")', 'register("neighbor-mean:2")', "expected a state class registered"),
        ("    converged: Any\n", "    converged: Any\n    more: Any = None\n", "with fields centroids, converged"),
    ):
        text = module.read_text()
        module.write_text(text.replace(before, after))
        path = f"{Path(p2pkm.__file__).parents[1]}:{plugin}"
        ending = there(sys.executable, "-m", "p2pkm", "resume", copies[-2], "-q", PYTHONPATH=path)
        module.write_text(text)
        assert ending.code == 3 and words in ending.err and "'neighbor-mean'" in ending.err
        assert "Traceback" not in ending.err


def test_a_plug_in_without_a_registered_state_runs_without_checkpoints(plugin, tmp_path, monkeypatch):
    module = plugin / "p2pkm_example_plugin.py"
    module.write_text(module.read_text().replace('@register("neighbor-mean")', ""))
    ending = call(*KEPT[:-1], "--out", tmp_path / "run")
    assert ending.code == 0
    words = "no checkpoint could be written: p2pkm_example_plugin.NeighborMeanState is not registered"
    assert ending.err.count(words) == 1 and "The run continues without it" in ending.err
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["rounds"] == 6


BROKEN = {
    "p2pkm.algorithms": {"torn": "torn_plugin:Method"},
    "p2pkm.inits": {"torn": "torn_plugin:start"},
    "p2pkm.partitions": {"torn": "torn_plugin:deal"},
    "topologies.graphs": {"torn": "torn_plugin:graph"},
}


def test_a_plug_in_that_cannot_be_imported_is_an_error_when_it_is_asked_for(site):
    install(site, "torn-plugin", "import a_module_that_nobody_has\n", BROKEN)
    assert solve()["algorithm"] == "gtvmin"
    for option in ("--algorithm", "--init", "--partition", "--graph"):
        ending = call(*SMALL, "--out", "none", option, "torn")
        assert ending.code == 2
        assert "plug-in 'torn'" in ending.err and "of package torn-plugin cannot be imported" in ending.err
        assert "a_module_that_nobody_has" in ending.err
    with pytest.raises(topologies.PluginError, match="torn-plugin"):
        topologies.build("torn", 5)
    for words in (("algorithms",), ("topology", "list")):
        listing = call(*words)
        assert listing.code == 0
        assert "cannot be imported: ModuleNotFoundError" in listing.out


def test_a_name_that_is_built_in_is_refused(site):
    install(site, "greedy-plugin", "", {"topologies.graphs": {"Ring": "greedy_plugin:ring"}})
    assert solve()["graph"] == "ring"
    ending = call(*SMALL, "--out", "none", "--graph", "rink")
    assert ending.code == 2
    assert "plug-in 'Ring'" in ending.err and "has the name of one that is built in" in ending.err


def test_nothing_is_read_for_what_is_built_in(plugin, monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **group: pytest.fail("looked for plug-ins"))
    known("gtvmin:tol=1")
    find("fkm")
    topologies.build("ring", 5)
    solve()


def test_an_initialization_is_one_function_whose_keywords_are_its_keys(plugin):
    chains = {solve(*CALL[:2], "--init", init)["chain_sha256"] for init in ("common-box", "bounding-box")}
    assert len(chains) == 1
    assert str(p2pkm.Init.of("common_box:times=1")) == "common-box"
    assert p2pkm.GTVMin(3, init="common-box:times=2").init == p2pkm.Init("common-box", (("times", 2),))
    for init, told in (("common-box:times=0", "times is 0"), ("common-box:box=1", "unknown key 'box'"),
                       ("common-bix", "Did you mean 'common-box'?")):  # fmt: skip
        ending = call(*SMALL, "--out", "none", "--init", init)
        assert ending.code == 2 and told in ending.err


def test_a_misspelled_plug_in_is_suggested_and_not_imported(plugin):
    ending = call(*SMALL, "--out", "none", "--algorithm", "neighbour-mean")
    assert ending.code == 2
    assert "Did you mean 'neighbor-mean'?" in ending.err
    assert "p2pkm_example_plugin" not in sys.modules
    assert set(names()) - set(METHODS) == {"neighbor-mean"}
    assert "sorted" not in PARTITIONS


def test_its_method_and_transform_pass_all_checks(plugin):
    from p2pkm_example_plugin import Gain, NeighborMean

    assert "suppression" in p2pkm.check_method(NeighborMean)
    assert "resume" in p2pkm.check_transform(Gain, p2pkm.DGC(3))


OLD = {
    "--algorithm": """
from p2pkm.core.traits import MethodTraits
from p2pkm_example_plugin import NeighborMean
class Part(NeighborMean):
    traits = property(lambda self: MethodTraits(init=self.init))
""",
    "--init": """
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.init.bounding_box import BoundingBox
class Part(BoundingBox):
    traits = property(lambda self: MethodTraits(common_centroids=True))
def part(at):
    return (Part(at.k),)
""",
    "--transforms": """
from p2pkm.channel.transform import Order, Transform
class Part(Transform):
    name, order = "old", Order.PERTURB
    def snapshot(self):
        return {}
    def restore(self, kept):
        pass
""",
    "--transforms without acts_on": """
from p2pkm.channel.transform import Order, Transform
class Part(Transform):
    name, order = "old", Order.PERTURB
""",
}
MISSING = {
    "--algorithm": ("message_content=MessageContent.CENTROIDS", "docs/tutorial/write-a-method.md"),
    "--init": ("message_content=MessageContent.CENTROIDS", "docs/tutorial/write-a-method.md"),
    "--transforms": ("Delete snapshot, restore", "docs/howto/add-a-transform.md"),
    "--transforms without acts_on": ("acts_on = (MessageContent.CENTROIDS,)", "docs/howto/add-a-transform.md"),
}


@pytest.mark.parametrize("option", OLD)
def test_a_plug_in_of_before_is_refused_with_class_line_and_page(plugin, option):
    name = {"--init": "part"}.get(option, "Part")
    group = {"--algorithm": "algorithms", "--init": "inits"}.get(option, "transforms")
    install(plugin, "old-plugin", OLD[option], {f"p2pkm.{group}": {"old": f"old_plugin:{name}"}})
    ending = call(*SMALL, "--out", "none", option.split()[0], "old")
    told = " ".join(ending.err.split())
    assert ending.code == 2 and "old_plugin:Part" in told and "Traceback" not in told
    assert all(words in told for words in MISSING[option]), told


def test_a_plug_in_of_before_whose_traits_are_a_class_variable_is_refused_when_it_is_imported(plugin):
    module = "from p2pkm.core.traits import MethodTraits\nclass Part:\n    traits = MethodTraits()\n"
    install(plugin, "old-plugin", module, {"p2pkm.algorithms": {"old": "old_plugin:Part"}})
    ending = call(*SMALL, "--out", "none", "--algorithm", "old")
    told = " ".join(ending.err.split())
    assert ending.code == 2 and "old_plugin:Part" in told and MISSING["--algorithm"][0] in told


FUNCTIONS = """
import numpy as np
three = 3
class Part:
    pass
def of_nothing():
    return None
def short(table, n):
    return np.zeros(3, int)
def words(table, n):
    return ["a"] * len(table.points)
def pair(n):
    return {"a": "b"}
def larger(n):
    import networkx
    return networkx.path_graph(n + 1)
"""
OF_TABLE = "expected a function of table and n"


@pytest.mark.parametrize(
    ("option", "name", "told"),
    [
        ("--partition", "three", f"(p2pkm.partitions, wrong_plugin:three) of package wrong-plugin is 3; {OF_TABLE}"),
        ("--partition", "Part", OF_TABLE),
        ("--partition", "of_nothing", "See docs/howto/package-a-plugin.md"),
        (
            "--partition",
            "short",
            "partition wrong returned an array of int64 and shape (3,); expected int64 of shape (80",
        ),
        ("--partition", "words", "the device of each point. See docs/howto/package-a-plugin.md"),
        ("--graph", "three", "wrong_plugin:three) of package wrong-plugin is 3; expected a function of n"),
        ("--graph", "of_nothing", "See docs/howto/package-a-plugin.md"),
        ("--graph", "pair", "type dict; expected a networkx.Graph"),
        ("--graph", "larger", "graph wrong has 5 nodes; expected 4"),
        ("--init", "of_nothing", "expected a function of at: too many positional arguments"),
    ],
)
@pytest.mark.sample(5)
def test_a_function_that_is_not_one_of_its_group_is_refused(site, option, name, told):
    group = {"--partition": "p2pkm.partitions", "--graph": "topologies.graphs", "--init": "p2pkm.inits"}[option]
    install(site, "wrong-plugin", FUNCTIONS, {group: {"wrong": f"wrong_plugin:{name}"}})
    ending = call(*SMALL, "--out", "none", option, "wrong")
    assert ending.code in (2, 3) and told in " ".join(ending.err.split()) and "Traceback" not in ending.err


@pytest.mark.parametrize(("option", "name"), [("--partition", "sorted"), ("--graph", "double-ring")])
def test_partitions_and_graphs_of_before_are_taken(plugin, option, name):
    module = (
        "import networkx as nx\nimport numpy as np\n"
        "def sorted_(table, n, *, feature=0, minimum=0, seed=0):\n"
        "    return np.argsort(np.argsort(table.points[:, feature])) * n // len(table.points)\n"
        "def double_ring(n, *, stride=2):\n    return nx.circulant_graph(n, [1, stride])\n"
    )
    function = {"sorted": "sorted_", "double-ring": "double_ring"}[name]
    group = {"--partition": "p2pkm.partitions", "--graph": "topologies.graphs"}[option]
    install(plugin, "old-plugin", module, {group: {f"old-{name}": f"old_plugin:{function}"}})
    assert call(*SMALL, "--out", "none", option, f"old-{name}").code == 0
