"""`simulate` does what the command line does: the same options, the same bits."""

import functools
import inspect
from dataclasses import fields
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import DataError, ExperimentError, P2PKMError
from p2pkm.core.spec import Spec
from p2pkm.data.assign import assign
from p2pkm.data.sources import load, parse_source
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.read_values import check_order
from p2pkm.experiments.worker import worker_loop
from tests.support.each import each
from tests.support.run_cli import solve

FIGURES = ("chain_sha256", "messages", "bytes", "silhouette", "simplified_silhouette", "l2_centers", "ratio_mean")


COMMAND_LINE = {  # options that `simulate` does not have: of graph, data, method and output
    "graph", "devices", "data", "label_column", "device_column", "columns", "drop", "encode", "header", "dtype",
    "decimal", "thousands", "na", "weight_column", "keep", "sheet", "encoding", "separator",
    "dates", "rename", "skip_rows",
    "partition", "clusters", "algorithm", "init", "groups", "alpha", "coupling", "schedule", "relaxation", "accept",
    "local_steps", "tol", "robust", "out", "plot", "figures", "require_converged",
}  # fmt: skip


DATA = p2pkm.grid16(points=5, seed=0)
SITES = p2pkm.partition.iid(len(DATA[0]), 4)


def points(devices=4):
    table = load(parse_source("grid16:points=5"), seed=0, label_column=None, device_column=None)
    return assign(table, Spec("iid", {"seed": 0}), devices, "float64")


def test_simulate_has_the_options_of_a_run_with_their_defaults(monkeypatch):
    """A generated signature would be lost to editors and mypy, so it is written out and compared."""
    written = {name: one.default for name, one in inspect.signature(p2pkm.simulate).parameters.items()}
    run = {name: default for name, default in written.items() if name not in ("algorithm", "graph", "shards")}
    assert run.pop("progress") is True and run.pop("metrics") == () and run.pop("on_record") is None
    assert [run.pop(name) for name in ("devices", "partition", "clusters")] == [None] * 3
    assert run == {one.name: one.default for one in fields(RunOptions) if one.name not in COMMAND_LINE}

    class PassedError(Exception):
        pass

    def receive(**given):
        raise PassedError(set(given))

    monkeypatch.setattr("p2pkm.experiments.simulate.RunOptions", receive)
    with pytest.raises(PassedError) as passed:
        p2pkm.simulate(p2pkm.GTVMin(2), None, points())
    assert passed.value.args[0] == {*run, "clusters"} - {"silhouette", "true_centers"}


@pytest.mark.parametrize("scale", ["none", "standard", "minmax", "ranges:-20..20"])
@pytest.mark.sample(3)
def test_scaling_and_optional_scores_are_those_of_the_command_line(scale, tmp_path):
    centers = np.random.default_rng(1).normal(size=(16, 2))
    np.save(tmp_path / "centers.npy", centers)
    typed = solve("--partition", "iid", "--scale", scale, "--silhouette", "--true-centers", tmp_path / "centers.npy")
    result = p2pkm.simulate(p2pkm.GTVMin(16), topologies.ring(4), points(), rounds=20, scale=scale, silhouette=True,
                            true_centers=centers)  # fmt: skip
    names = [name for name in FIGURES if name in typed]
    assert {"chain_sha256", "silhouette", "l2_centers"} <= set(names)
    assert [result.summary[name] for name in names] == [typed[name] for name in names]


def test_values_and_their_text_are_the_same_run():
    given = {"rounds": 6, "baselines": False}
    for init, other in (
        (p2pkm.Init.tree_summaries(rows=320), "tree-summaries:rows=320"),
        (p2pkm.Init.local(), "local"),
    ):
        runs = [p2pkm.simulate(p2pkm.GTVMin(16, init=init), topologies.ring(4), points(), faults=faults,
                               byzantine=byzantine, **given).summary
                for init, faults, byzantine in
                ((init, p2pkm.Faults(loss=0.2, dropout=0.02), p2pkm.Byzantine(1, kind="flip")),
                 (other, "loss=0.2,dropout=0.02", "1:kind=flip"))]  # fmt: skip
        texts = ("chain_sha256", "faults", "byzantine", "init")
        assert [runs[0][name] for name in texts] == [runs[1][name] for name in texts]
        assert runs[0]["faults"] == "loss=0.2,dropout=0.02"


def test_link_models_and_stale_policies_are_values_too():
    pairs = [
        ({"link_model": p2pkm.LinkModel.wan(latency=0.05, access=None)}, {"link_model": "wan:access=none,latency=.05"}),
        ({"faults": p2pkm.Faults(loss=0.3), "stale_policy": p2pkm.StalePolicy.drop()},
         {"faults": "loss=0.3", "stale_policy": "drop"}),
    ]  # fmt: skip
    for value, text in pairs:
        found, typed = (p2pkm.simulate(p2pkm.GTVMin(16), topologies.ring(4), points(), rounds=4, baselines=False,
                                       **given).summary for given in (value, text))  # fmt: skip
        texts = ("chain_sha256", "virtual_seconds", "link_model", "faults", "stale_policy")
        assert [found[name] for name in texts if name in found] == [typed[name] for name in texts if name in typed]
        name = list(value)[-1]
        assert found[name] == str(value[name])


@each(
    ("kind", "text", "canonical"),
    [
        (p2pkm.LinkModel, "wan:latency=0.05", "wan:latency=0.05"),
        (p2pkm.LinkModel, "lan:speed=1e9,latency=0.00025", "lan:speed=1e+09"),
        (p2pkm.LinkModel, "lora:access=none,server_speed=2", "lora:access=none,server_speed=2"),
        (p2pkm.StalePolicy, "keep", "keep"),
        (p2pkm.StalePolicy, "keep:age=8", "keep"),
        (p2pkm.StalePolicy, "keep:age=3", "keep:age=3"),
        (p2pkm.StalePolicy, "drop", "drop"),
    ],
)
def test_the_text_of_a_value_is_canonical(kind, text, canonical):
    value = kind.of(text)
    assert str(value) == canonical and kind.of(canonical) == value and kind.of(value) is value


def test_figures_out_of_range_are_refused_in_values_too():
    for make, told in ((lambda: p2pkm.LinkModel.wan(speed=0.0), "wan:speed is 0.0"),
                       (lambda: p2pkm.LinkModel.lan(latency=None), "lan:latency is None"),
                       (lambda: p2pkm.StalePolicy.keep(age=65), "keep:age is 65")):  # fmt: skip
        with pytest.raises(ExperimentError, match=told):
            make()


def test_what_cannot_be_is_refused():
    for options, error in (({"scale": "standart"}, ExperimentError), ({"true_centers": [[1.0]]}, DataError)):
        with pytest.raises(error, match=next(iter(options))):
            p2pkm.simulate(p2pkm.GTVMin(2), topologies.ring(4), points(), **options)


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        ("gtvmn", points(), r"unknown algorithm 'gtvmn'\. Did you mean 'gtvmin'"),
        (dict, points(), r"algorithm is of type type; expected text such as gtvmin:coupling=30"),
        (
            p2pkm.GTVMin(2),
            np.ones((8, 2)),
            r"shards are of type ndarray; expected p2pkm\.Shards or a table .*Shards\.deal\(",
        ),
        (p2pkm.GTVMin(2), "blobs", r"shards are 'blobs', which do not say the device of each row; .* Add devices=16"),
    ],
)
def test_methods_that_are_none_and_rows_without_devices_are_refused_with_what_to_give(method, given, words):
    with pytest.raises(ExperimentError, match=words):
        p2pkm.simulate(method, topologies.ring(4), given)


def test_text_and_objects_give_the_same_bits_in_one_call():
    X, y = p2pkm.grid16(points=5, seed=0)
    sites = np.array(["Bern", "Oslo", "Rome", "Wien"])[p2pkm.partition.dirichlet(y, 4, alpha=0.3, seed=0)]
    graph = topologies.small_world(4, degree=2, rewire=0.5, seed=3)
    known = p2pkm.simulate(p2pkm.GTVMin(16, coupling=3.0), graph, p2pkm.Shards.deal(X, sites, labels=y), rounds=3)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(device=sites, label=y)
    calls = [
        ("gtvmin:coupling=3", "small-world:degree=2,rewire=0.5,seed=3", (X, y), {"devices": sites}),
        (functools.partial(p2pkm.GTVMin, coupling=3.0), graph, (X, y), {"partition": sites.tolist()}),
        (p2pkm.GTVMin(16, coupling=3.0), "small-world:degree=2,rewire=0.5,seed=3", X, {"devices": sites}),
        ("gtvmin:coupling=3", graph, frame, {}),
    ]
    for method, graph_value, points_value, given in calls:
        result = p2pkm.simulate(method, graph_value, points_value, rounds=3, **given)
        assert result.summary["centroids_sha256"] == known.summary["centroids_sha256"]
        assert result.topology.names == ("Bern", "Oslo", "Rome", "Wien")


def test_rows_are_dealt_as_by_the_command_line():
    options = {"graph": "ring", "data": "grid16:points=5", "partition": "dirichlet:alpha=0.3", "seed": 2}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    typed = solve(*words, "--devices", 5, "--rounds", 3)
    data = p2pkm.grid16(points=5, seed=2)
    for points_value in ("grid16:points=5", data):
        result = p2pkm.simulate(
            "gtvmin", "ring", points_value, devices=5, partition=options["partition"], seed=2, rounds=3
        )
        assert result.summary["chain_sha256"] == typed["chain_sha256"]


def test_a_partition_is_a_function_of_the_rows():
    calls = []

    def by_side(rows, n):
        calls.append((rows.shape, n))
        rows[:] = 0.0  # a copy
        return np.arange(len(rows)) % n

    site = np.arange(len(DATA[0])) % 4
    one, other = (
        p2pkm.simulate("gtvmin", "ring", DATA, **options, rounds=1)
        for options in ({"devices": 4, "partition": by_side}, {"devices": site})
    )
    assert one.summary["chain_sha256"] == other.summary["chain_sha256"] and calls == [(DATA[0].shape, 4)]


@pytest.mark.slow
def test_graphs_of_one_size_determine_the_number_of_devices():
    for graph in ("karate", nx.karate_club_graph()):
        result = p2pkm.simulate("gtvmin", graph, DATA, partition="iid", rounds=1)
        assert result.summary["devices"] == 34


@each(
    ("call", "words"),
    [
        (lambda: p2pkm.simulate("gtvmin", "rign", DATA, devices=4), "unknown graph 'rign'. Did you mean 'ring'"),
        (lambda: p2pkm.simulate("fkm", "ring", DATA, devices=4), "fkm cannot be combined with graph 'ring'"),
        (lambda: p2pkm.simulate("gtvmin", "ring", DATA, devices=SITES, partition=SITES), "both say the device"),
        (lambda: p2pkm.simulate("gtvmin", "ring", DATA, devices="site"), "Use devices=frame['site'], without that"),
        (lambda: p2pkm.simulate("gtvmin", "ring", points(), devices=5), "devices is 5, but the points belong to 4"),
        (lambda: p2pkm.simulate("gtvmin", "ring", points(), devices=SITES), "to which the points belong already"),
        (lambda: p2pkm.simulate("gtvmin", "ring", DATA, devices=0), "devices is 0; expected"),
        (
            lambda: p2pkm.simulate("gtvmin", "ring", DATA, devices=4, partition=lambda rows, n: [0]),
            "returned an array of",
        ),
        (lambda: p2pkm.simulate("gtvmin", "ring", points(), partition=lambda rows, n: [0]), "belong already"),
        (lambda: p2pkm.simulate("gtvmin", "ring", DATA, devices=4, partition="idd"), "unknown partition 'idd'"),
        (lambda: p2pkm.simulate("gtvmin", "ring", DATA, devices=4, clusters=0), "clusters is 0; expected"),
        (lambda: p2pkm.simulate(p2pkm.GTVMin(3), "ring", DATA, devices=4, clusters=4), "algorithm has 3; expected one"),
        (lambda: p2pkm.simulate("gtvmin:cuopling=3", "ring", DATA, devices=4), "Did you mean 'coupling'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, words):
    with pytest.raises(P2PKMError) as refusal:
        call()
    assert words in str(refusal.value)


METHOD, GRAPH = p2pkm.GTVMin(16), nx.cycle_graph(4)


@each(
    ("arguments", "words"),
    [
        ((DATA[0], "ring", METHOD), "received points as argument 1 and graph as argument 2 and method as argument 3"),
        (
            ("gtvmin", DATA, "small-world:degree=2"),
            "method as argument 1 and points as argument 2 and graph as argument 3",
        ),
        (("ring", "gtvmin", "mine.csv"), "received graph as argument 1 and method as argument 2;"),
        ((points(), GRAPH, "mine"), "received points as argument 1 and graph as argument 2;"),
    ],
)
def test_an_exchange_of_method_graph_and_points_is_named(arguments, words):
    with pytest.raises(
        ExperimentError, match=r"order method, graph, points.*p2pkm\.simulate\(p2pkm\.GTVMin\(3\)"
    ) as error:
        p2pkm.simulate(*arguments, devices=4)
    assert words in str(error.value)


@each(
    "arguments",
    [
        (p2pkm.FKM, None, "communities"),  # the name of a graph, too
        (
            "gtvmin",
            np.ones((4, 4)) - np.eye(4),
            np.arange(16.0).reshape(4, 4),
        ),  # a matrix, and as many rows as features
        (p2pkm.FKM, None, DATA),
        (METHOD, GRAPH, "grid16"),
    ],
)
def test_arguments_in_their_order_are_accepted(arguments):
    check_order(*arguments)


def test_numbers_of_numpy_are_numbers(tmp_path):
    """As loops over arrays give them; also where the run is kept."""
    runs = []
    for whole, real in ((int, float), (np.int64, np.float32)):
        method = p2pkm.GTVMin(whole(4), alpha=real(0.5), local_steps=whole(1), relaxation=real(1.25), tol=real(0.0))
        result = p2pkm.simulate(method, topologies.ring(4), points(), rounds=whole(2), seed=whole(7), noise=real(0.25),
                                min_cluster_size=whole(2), record_every=whole(1), checkpoint=tmp_path / "kept",
                                checkpoint_every=whole(1), quantize=None)  # fmt: skip
        result.save(tmp_path / whole.__name__)
        runs.append(result.summary | {"wall_seconds": 0, "compile_seconds": 0})
    assert runs[0] == runs[1]  # the second goes on from the end of the first
    assert (runs[1]["clusters"], runs[1]["alpha"], runs[1]["seed"]) == (4, 0.5, 7)


def test_a_function_is_called_with_a_copy_of_each_record():
    seen = []

    def keep_and_clear(record):
        seen.append(dict(record))
        record.clear()

    result = p2pkm.simulate("gtvmin", "ring", "blobs", devices=3, rounds=3, on_record=keep_and_clear)
    assert seen == result.rounds and len(seen) > 3
    with pytest.raises(p2pkm.ExperimentError, match="on_record is 'log'; expected a function of a record"):
        p2pkm.simulate("gtvmin", "ring", "blobs", devices=3, on_record="log")


@each("seed", [-1, 2**63, 1.5, True, "7", None])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ExperimentError, match=f"seed is {seed!r}; expected a whole number"):
        p2pkm.simulate(p2pkm.GTVMin(4), topologies.ring(4), points(), seed=seed)


def test_a_rank_does_what_it_is_told_until_it_is_told_how_to_end():
    orders, done = iter([{"study": 1}, {"other": 2}, {"study": 3}, {"exit": np.array(5)}]), []
    errands = {name: lambda world, order, name=name: done.append(order[name]) for name in ("study", "other")}
    assert worker_loop(SimpleNamespace(broadcast=lambda nothing: next(orders)), errands) == 5
    assert done == [1, 2, 3]
