"""The table of what cannot be combined: every method is tried with every feature, in a run."""

import re
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import ContractError, ExperimentError, P2PKMError
from p2pkm.core.traits import Condition, MessageContent, MethodTraits
from p2pkm.engine import conflicts
from p2pkm.engine.build_run import build_run, check_options
from p2pkm.engine.run_options import RunOptions
from p2pkm.methods.init.pipelines import place_graph
from p2pkm.methods.registry import find
from tests.support.each import each
from tests.support.methods import LEARNERS, METHODS, build

N, K = 4, 2
RNG = np.random.default_rng(5)
X = np.repeat(8.0 * RNG.normal(size=(K, 2)), 12, axis=0) + RNG.normal(size=(24, 2))
DEVICE = np.arange(24) % N


# A run of each feature: options of `simulate`. Features that no entry stands for fail the test.
TRIALS = {
    "`--graph`": lambda folder: {"graph": topologies.ring(N)},
    "`-k auto`": lambda folder: {"clusters": "auto", "k_max": K},
    "`--scale standard`, `minmax`": lambda folder: {"scale": "standard"},
    "`--missing mean`": lambda folder: {"missing": "mean"},
    "checkpoints": lambda folder: {"checkpoint": folder},
    "`start=`": lambda folder: {"start": np.broadcast_to(X[[0, 12]], (N, K, 2))},
    "`--stream`": lambda folder: {"stream": "drawn:kind=slow"},
    "`--min-cluster-size`": lambda folder: {"min_cluster_size": 2},
    "`--noise`": lambda folder: {"noise": 0.01},
    "`--quantize`": lambda folder: {"quantize": "rice"},
    "`--compress`": lambda folder: {"compress": "topk"},
    "`--byzantine`": lambda folder: {"byzantine": 1},
    "`--deadline`": lambda folder: {"deadline": 1e6, "link_model": "lan"},
    "`--client-share`": lambda folder: {"client_share": 0.5},
    "`--faults` of devices": lambda folder: {"faults": "dropout=0.2"},
    "`--faults` of links": lambda folder: {"faults": "loss=0.2"},
    "test points": lambda folder: {"test_share": 0.4},
    "changing links": lambda folder: {"graph": topologies.one_peer_exponential(N)},
    "point weights": lambda folder: {
        "shards": p2pkm.Shards.deal(X, DEVICE, devices=N, weights=1.0 + np.arange(24) % 2)
    },
}


def attempt(method, options, *, play):
    """Assemble a run of one round, and play it; return the error by which it is refused, None if it ends."""
    shards = options.pop("shards", p2pkm.Shards.deal(X, DEVICE, devices=N))
    graph = options.pop("graph", None if method.traits.needs_hub else topologies.ring(N))
    if method.name in ("private", "feddp") and "checkpoint" not in options:
        method = method.replaced(noise_seed=0)
    try:
        if play:
            p2pkm.simulate(method, graph, shards, rounds=1, baselines=False, **options)
        else:
            clusters = "auto" if "k_max" in options else K
            topology = place_graph(method, graph, N)
            asked = RunOptions(**{"rounds": 1, "baselines": False, "clusters": clusters} | options)
            build_run(method, asked, topology, shards.with_hub() if topology.hub >= 0 else shards)
    except P2PKMError as error:
        return error
    return None


def try_features(name, folder, *, play):
    """Return the features for which the table and a run do not agree."""
    method, wrong = build(name, K), {}
    if name in ("private", "feddp"):
        method = method.replaced(noise_seed=None)
    for feature, reason in conflicts.explain_method(method).items():
        found = attempt(method, TRIALS[feature](folder / feature.strip("`")), play=play)
        if (found is None) != (not reason) or (reason and reason not in str(found)):
            wrong[feature] = (reason, found)
    return wrong


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.sample(5)
def test_a_run_is_refused_exactly_where_the_table_says_so(name, tmp_path):
    assert try_features(name, tmp_path, play=False) == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few clients are left under faults
@pytest.mark.parametrize("name", METHODS)
def test_a_run_ends_exactly_where_the_table_allows_it(name, tmp_path):
    assert try_features(name, tmp_path, play=True) == {}


def test_learners_of_features_refuse_what_their_traits_declare():
    for name in LEARNERS:
        refused = conflicts.explain_method(find(name)(K))
        assert {"`-k auto`", "`--quantize`", "`--faults` of links", "point weights"} <= {
            feature for feature, reason in refused.items() if reason
        }


def test_the_first_conflict_of_the_table_is_reported():
    method = p2pkm.Private(K, epsilon=1.0, radius=9.0)
    asked = {"k_max": 3, "scale": "minmax", "checkpoint_every": 2, "start": X[:K], "stream": "drawn", "noise": 0.1}
    for name, words in (
        ("k_max", "clusters='auto' cannot be combined with private"),
        ("scale", "scale"),
        ("checkpoint_every", "checkpoint_every 2"),
        ("start", "start"),
        ("stream", "cannot follow a stream"),
        ("noise", "noise"),
    ):
        clusters = "auto" if "k_max" in asked else K
        with pytest.raises(ExperimentError, match=words):
            check_options(method, RunOptions(clusters=clusters, **asked))
        del asked[name]
    check_options(method, RunOptions(clusters=K))


@pytest.mark.parametrize("key", ["faults", Condition.LINK_MODEL])
def test_a_condition_that_no_method_can_exclude_is_an_error(key):
    with pytest.raises(ContractError, match=r"incompatible_with of the traits has the key .*LOSSY_LINKS"):
        MethodTraits(message_content=MessageContent.OTHER, incompatible_with={key: "is new"})


# Parameters of GTVMin and options of a run, for each feature of the rows about two features.
FEATURES = {
    conflicts.K_AUTO: ({}, {"clusters": "auto", "k_max": K}),
    conflicts.START: ({}, {"start": np.broadcast_to(X[[0, 12]], (N, K, 2))}),
    conflicts.GROUPS: ({"groups": 2}, {}),
    conflicts.NO_ROUNDS: ({}, {"rounds": 0}),
    conflicts.FILLING_IN: ({}, {"missing": "mean"}),
    conflicts.STREAM: ({}, {"stream": "drawn:kind=slow"}),
    conflicts.TESTS: ({}, {"test_share": 0.4}),
    conflicts.ESTIMATE: ({"coupling": "bayes"}, {}),
    conflicts.CHANGES: ({}, {"byzantine": 1}),
    conflicts.COMPRESSION: ({}, {"compress": "topk"}),
    conflicts.SUPPRESSION: ({}, {"min_cluster_size": 2}),
    conflicts.LATE_MESSAGES: ({"schedule": "async"}, {"link_model": "lan"}),
    conflicts.EVENTS: ({"schedule": "async"}, {"link_model": "lan"}),
    conflicts.OVER_RELAXATION: ({"relaxation": 1.5}, {}),
    conflicts.ALL_ROUNDS: ({}, {"all_rounds": True}),
    conflicts.FAULTS: ({}, {"faults": "dropout=0.2"}),
    conflicts.TRACE_IN_SECONDS: ({}, {"faults": str(Path(__file__).with_name("seconds.jsonl")), "link_model": "lan"}),
    conflicts.NO_LINK_MODEL: ({}, {"link_model": None}),
    conflicts.ROBUST_RULE: ({"robust": "trim"}, {}),
    conflicts.FEW_NEIGHBORS: ({}, {"graph": topologies.ring(N)}),
    conflicts.COMPONENTS: ({}, {"graph": nx.Graph([(0, 1), (2, 3)]), "allow_disconnected": True}),
}
# Points on disk: tests/engine/test_build_run.py; a deep graph: tests/engine/test_defaults.py.
OTHERS = {conflicts.METIS, conflicts.DISK, conflicts.DEEP_GRAPH}


def attempt_features(*features):
    parameters, options = {}, {"graph": topologies.complete(N)}
    for feature in features:
        parameters |= FEATURES[feature][0]
        options |= FEATURES[feature][1]
    return attempt(p2pkm.GTVMin(K, **parameters), options, play=False)


@each(
    "row",
    [row for row in conflicts.CONFLICTS if row.other is not None and not {row.feature, row.other} & OTHERS],
    ids=lambda row: f"{row.feature.name} and {row.other.name}",
)
def test_each_of_two_features_is_possible_without_the_other(row):
    assert attempt_features(row.feature) is attempt_features(row.other) is None
    found = attempt_features(row.feature, row.other)
    # The message says the reason, or it states a fact about the graph.
    assert type(found) is row.error
    assert row.why in str(found) or re.search("expected at least|expected 1 with|it has 2 components", str(found))
