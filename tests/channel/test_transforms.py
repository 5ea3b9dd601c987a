"""The channel is an ordered list: what acts where, on what, with which draws; and a transform from another package."""

import importlib
import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from p2pkm.channel.pipeline import Channel, StageChannel, plan_channel
from p2pkm.channel.registry import TRANSFORMS, PluginTransforms, find
from p2pkm.channel.transform import SCALING, Context, Order, Transform
from p2pkm.core.errors import ContractError, ExperimentError
from p2pkm.core.messages import DenseMessages
from p2pkm.core.spec import Spec
from p2pkm.core.traits import MessageContent
from p2pkm.methods.init.pipelines import Stage
from tests.core.test_plugins import install
from tests.docs.check_blocks import read_blocks
from tests.support.build import build_method
from tests.support.each import each
from tests.support.play_rounds import arrange
from tests.support.resume import difference, keep_all, resume
from tests.support.run_cli import SMALL, here, ranks, solve, there

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "add-a-transform.md"
POINTS = [np.array([[0.0, 0.0], [2.0, 4.0]]), np.array([[1.0, 1.0]]), np.array([[9.0, 3.0], [0.0, 7.0]])]
ALL = {"min_count": 2, "noise": 0.1, "byzantine": p2pkm.Byzantine(1), "faults": p2pkm.Faults(loss=0.1)}


def deal(n, seed=0):
    rng = np.random.default_rng(seed)
    return p2pkm.Shards.from_list([rng.normal(4.0 * rng.integers(0, 3, (9, 1)), 1.0, (9, 2)) for _ in range(n)])


def run(method, graph, **more):
    return p2pkm.simulate(method, graph, deal(graph.number_of_nodes()), seed=5, rounds=3, baselines=False, **more)


def test_the_list_has_its_order_whatever_the_order_of_the_registry(monkeypatch):
    order = ["suppression", "noise", "byzantine", "disclosure", "faults", "rejection"]
    assert [kind.name for kind, _ in plan_channel(ALL).parts] == order
    backwards = dict(reversed(TRANSFORMS.items()))
    monkeypatch.setattr("p2pkm.channel.registry.TRANSFORMS", backwards)
    assert [kind.name for kind, _ in plan_channel(ALL).parts] == order
    assert [kind.name for kind, _ in plan_channel({}).parts] == ["suppression", "disclosure", "rejection"]
    assert list(TRANSFORMS) == [find(name).name for name in TRANSFORMS]


def test_a_message_passes_all_that_act_one_after_the_other():
    class Digit(Transform):
        order = Order.PERTURB

        def __init__(self, name, digit, acts=True):
            self.name, self._digit, self._acts = name, digit, acts

        def begin(self, stage, *, closing):
            return self if self._acts else None

        def outgoing(self, messages, context):
            return messages._replace(values=10.0 * messages.values + self._digit)

        def incoming(self, inbox, context):
            return 10 * inbox + self._digit

    channel = Channel([Digit("a", 1), Digit("b", 2, acts=False), Digit("c", 3)]).begin(Stage("s", None, 1), 0)
    table = arrange(POINTS, [(0, 1), (1, 2)])
    sent = channel.send(lambda state, devices: DenseMessages(np.zeros((3, 1, 2)), np.ones(3, int)), None, table.devices)
    assert (sent.values == 13).all()
    # In reverse: the last one on the way out reads what it wrote.
    assert channel.receive(0, None, table.devices) == 31


def test_who_changes_an_encoded_table_declares_its_length_anew():
    given = DenseMessages(np.ones((3, 1, 2)), np.ones(3, int), wire=np.array([3, 4, 5]))
    table = arrange(POINTS, [(0, 1), (1, 2)])

    def send(change):
        class Changing(Transform):
            name, order = "changing", Order.PERTURB

            def outgoing(self, messages, context):
                return change(messages)

        channel = Channel([Changing()]).begin(Stage("s", None, 1), 0)
        return channel.send(lambda state, devices: given, None, table.devices).wire

    assert send(lambda messages: messages._replace(malformed=np.array([True, False, False]))) is given.wire
    assert send(lambda messages: messages._replace(values=2.0 * messages.values)) is None
    assert send(lambda messages: messages._replace(rows=np.zeros(3, int))) is None
    assert send(lambda messages: messages._replace(rows=np.zeros(3, int), wire=np.ones(3, int))).tolist() == [1, 1, 1]


class Rounding(Transform):
    """Round the coordinates of sent centroids."""

    name, order, acts_on = "rounding", Order.PERTURB, (MessageContent.CENTROIDS,)

    def __init__(self, *, digits=3):
        self.digits = digits

    def outgoing(self, messages, context):
        return messages._replace(values=np.round(messages.values, self.digits))


class ForgetsDigits(Rounding):
    def __init__(self, *, digits):
        super().__init__()
        self.scale = 10.0**digits


class Digits(ForgetsDigits):
    def __init__(self, *, digits):
        super().__init__(digits=digits)
        del self.digits


def test_a_transform_of_a_program_needs_no_package():
    graph = topologies.ring(6)
    given = PluginTransforms(((Rounding, Spec("rounding", {"digits": 1})),))
    expected = run(p2pkm.GTVMin(3), graph, transforms=given)
    for value in (Rounding(digits=1), [Rounding(digits=1)]):
        found = run(p2pkm.GTVMin(3), graph, transforms=value)
        assert found.summary["chain_sha256"] == expected.summary["chain_sha256"]
        assert found.summary["chain_sha256"] != run(p2pkm.GTVMin(3), graph).summary["chain_sha256"]
    for value in (Rounding, Rounding(), Rounding(digits=3)):
        assert str(PluginTransforms.of(value)) in ("rounding", "rounding:digits=3")
    again = PluginTransforms.of([Rounding(digits=1), Rounding])
    assert str(again) == "rounding:digits=1,rounding"


@each(
    ("value", "error", "told"),
    [
        (Digits(digits=3), ContractError, "digits=, but its __init__ does not keep it"),
        (Digits, ContractError, "requires digits; expected an object, such as Digits"),
        (Transform, ContractError, "lacks name"),
        (find("noise"), ExperimentError, "Use noise="),
        (3, ExperimentError, "transforms is 3; expected text such as 'rounding:digits=3', a Transform"),
        ([Rounding, 3], ExperimentError, "transforms is 3; expected text"),
        (np.array, ExperimentError, "expected text such as"),
    ],
)
def test_what_is_no_transform_of_a_program(value, error, told):
    with pytest.raises(error, match=re.escape(told)):
        PluginTransforms.of(value)


def test_draws_differ_by_stage_round_turn_device_and_purpose_and_by_nothing_else():
    devices = arrange(POINTS, [(0, 1), (1, 2)]).devices
    ids = np.array([0, 2])

    def draw(stage=0, step=0, turn=0, purpose=7, count=5, **more):
        return Context(stage, devices.at_turn(step, turn, devices.active_devices), None).draw(
            purpose, ids, count, **more
        )

    first = draw()
    assert_array_equal(first, draw())
    assert_array_equal(first[:, :3], draw(count=3))
    nobody = Context(0, devices, None).draw(7, np.zeros(0, np.int64), 5)
    assert nobody.shape == (0, 5)
    others = [draw(stage=1), draw(stage=SCALING), draw(step=1), draw(turn=1), draw(purpose=8)]
    others += [draw(turn=1 << 12), draw(step=1 << 20)]  # turns by time are as many as devices
    seen = np.concatenate([part.ravel() for part in (first, *others)])
    assert len(np.unique(seen)) == len(seen)
    always = draw(always=True)
    assert_array_equal(always, draw(stage=3, step=2, turn=1, always=True))
    assert not np.intersect1d(always, seen).size


def test_plugins_have_streams_of_their_own():
    kinds = [type(name, (Transform,), {"name": name, "order": Order.PERTURB}) for name in ("one", "other")]
    purposes = [kind().purpose for kind in kinds] + [find("noise")(sd=1.0).purpose]
    assert len(set(purposes)) == 3 and all(2**31 <= purpose < 2**32 for purpose in purposes)


def test_byzantine_draws_do_not_repeat_from_stage_to_stage(monkeypatch):
    kind, drawn = find("byzantine"), {}
    fabricate = kind._fabricate_rows

    def watched(self, rows, senders, context):
        fabricated = fabricate(self, rows, senders, context)
        drawn.setdefault(context.stage, []).append(fabricated[0, 0].tolist())
        return fabricated

    monkeypatch.setattr(kind, "_fabricate_rows", watched)
    run(p2pkm.GTVMin(3, robust="saturate"), topologies.ring(8), byzantine="1:kind=random,stages=all")
    assert len(drawn) > 2
    rows = [tuple(row) for stage in drawn.values() for row in stage]
    assert len(set(rows)) == len(rows)


@pytest.mark.slow
def test_what_is_read_is_changed_on_the_way_in_and_after_a_resume_too(tmp_path, monkeypatch):
    class Deaf(Transform):
        """Read every table as if it were shifted by one."""

        name, order = "shift", Order.ACCEPT

        @classmethod
        def configure(cls, options):
            return {}

        def begin(self, stage, *, closing):
            return self if closing else None

        def incoming(self, inbox, context):
            return inbox._replace(tables=inbox.tables + 1.0)

    words = (*SMALL, "--devices", 8, "--rounds", 4, "--tol", 0, "--init", "local", "-q", "--record-every", 1,
             "--checkpoint-every", 1)  # fmt: skip
    plain = solve(*words[:-4])
    monkeypatch.setitem(TRANSFORMS, "shift", Deaf)
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        assert here(*words, "--out", tmp_path / "run").code == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["chain_sha256"] != plain["chain_sha256"] and summary["messages"] == plain["messages"]
    for copy in sorted((tmp_path / "copies").iterdir())[::2]:
        assert difference(tmp_path / "run", resume(copy)) == ""


def test_a_list_of_transforms_stays_what_it_is():
    given = PluginTransforms(((Transform, Spec("one", {"digits": 3})),))
    assert PluginTransforms.of(given) is given and str(given) == "one:digits=3"
    assert PluginTransforms.of(None) is None and PluginTransforms.of("") == PluginTransforms(())


@pytest.mark.parametrize("word", ["nosie", "noise", "byzantine"])
def test_a_transform_that_is_not_of_another_package_is_refused(word):
    ending = here(*SMALL, "--out", "none", "--transforms", word)
    assert ending.code == 2 and f"transforms is '{word}', but no installed package adds a transform" in ending.err


@each(
    ("content", "own", "step", "rows"),
    [
        (MessageContent.CENTROIDS, False, 0, [1, 0, 0]),
        (MessageContent.CENTROIDS, False, 3, [1, 0, 0]),
        (MessageContent.OPENING_CENTROIDS, False, 0, [1, 0, 0]),
        (MessageContent.OPENING_CENTROIDS, False, 1, [2, 2, 2]),
        (MessageContent.CENTROIDS, True, 0, [2, 2, 2]),
        (MessageContent.SUMMARIES, False, 0, [2, 2, 2]),
    ],
)
def test_rows_of_small_clusters_are_left_out_where_the_stage_does_not_do_so_itself(content, own, step, rows):
    stage = build_method(message_content=content, suppresses_small_clusters=own)
    suppression = find("suppression")(least=2)
    devices = suppression.equip(arrange(POINTS, [(0, 1), (1, 2)]).devices)
    table = np.array([[1.0, 1.0], [50.0, 50.0]])  # the first row has two points of device 0, one of each other's
    tables = np.stack((table, table, np.array([[9.0, 3.0], [0.0, 7.0]])))
    messages = DenseMessages(tables, np.full(3, 2))
    sent = (
        Channel([suppression])
        .begin(Stage("s", stage, 1), 0)
        .send(lambda state, devices: messages, None, devices.at_turn(step, 0, devices.active_devices))
    )
    assert sent.rows.tolist() == rows
    assert_array_equal(sent.values[0, 0], table[0])


# --- docs/howto/add-a-transform.md, step by step ---


def blocks(language):
    return [block.text for block in read_blocks(PAGE) if block.language == language]


@pytest.fixture
def rounding(tmp_path, monkeypatch):
    """Install what the page adds."""
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    project = tomllib.loads(blocks("toml")[0])["project"]
    install(tmp_path, project["name"], blocks("python")[0], project["entry-points"])
    (tmp_path / "rounding_p2pkm.py").rename(tmp_path / "rounding.py")
    yield tmp_path
    sys.modules.pop("rounding", None)


ROUND = (*SMALL, "--devices", 7, "--rounds", 5, "--tol", 0, "--transforms", "rounding:digits=1")


def test_the_commands_of_the_page_work(rounding):
    for block in blocks("bash"):
        words = shlex.split(block)
        assert words[:3] == ["python", "-m", "p2pkm"]
        ending = here(*words[3:], "-q")
        assert ending.code == 0, ending.err


def test_the_transform_of_the_page_acts_and_is_refused_where_it_must_be(rounding):
    one, other = solve(*ROUND), solve(*ROUND[:-2])
    assert one["chain_sha256"] != other["chain_sha256"]
    assert one["rounded_tables"] == 7 * 6
    assert solve(*ROUND[:-1], "rounding:digits=2")["chain_sha256"] not in (one["chain_sha256"], other["chain_sha256"])
    words = r"transforms='rounding' cannot be combined with consensus: .* SUMS; expected"
    with pytest.raises(ExperimentError, match=words):
        run(p2pkm.ConsensusLloyd(3), topologies.ring(5), transforms="rounding")
    assert "Did you mean 'digits'" in here(*ROUND[:-1], "rounding:digit=1", "--out", "none").err


@pytest.mark.slow
def test_the_transform_of_the_page_goes_on_from_its_checkpoints(rounding, monkeypatch):
    words = (*ROUND, "-q", "--record-every", 1, "--checkpoint-every", 1, "--out", rounding / "run")
    with monkeypatch.context() as patched:
        keep_all(patched, rounding / "run", rounding / "copies")
        assert here(*words).code == 0
    for copy in sorted((rounding / "copies").iterdir())[-2:]:
        assert difference(rounding / "run", resume(copy)) == ""


@pytest.mark.mpi
def test_the_transform_of_the_page_has_the_same_bits_on_ranks(rounding):
    words = ("-m", "p2pkm", *ROUND, "--out", "none", "--format", "json")
    path = f"{Path(p2pkm.__file__).parents[1]}:{rounding}"
    found = json.loads(there(*ranks(3), *words, PYTHONPATH=path).out)
    here_ = solve(*ROUND)
    assert [found[key] for key in ("chain_sha256", "rounded_tables")] == [
        here_[key] for key in ("chain_sha256", "rounded_tables")
    ]


@pytest.mark.parametrize("transforms", [(), (Transform(),)])
def test_no_table_stands_where_a_transform_acts(transforms):
    messages = DenseMessages(np.zeros((2, 1, 1)), np.array([1, -1]), is_stable=True, senders=np.zeros(1, int))
    devices = arrange(POINTS, [(0, 1), (1, 2)]).devices
    sent = StageChannel(transforms, 0).send(lambda state, devices: messages, None, devices)
    assert sent.is_stable is not bool(transforms)
    assert (sent.senders is None) is bool(transforms)


@pytest.mark.parametrize("name", ["delays", "exposes", "alters"])
def test_a_channel_has_a_property_if_one_transform_has_it(name):
    one, other = (type("Marked", (Transform,), {"name": f"marked-{value}", name: value})() for value in (True, False))
    assert [getattr(Channel(some), name) for some in ([one, other], [other, other], [])] == [True, False, False]
