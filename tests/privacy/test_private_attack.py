"""Attacks on real runs find versions that are broken on purpose, and never accuse the right one."""

import math
import secrets
from functools import cached_property

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.engine import run_secret
from p2pkm.methods.building_blocks import private_releases, secure_sums, secure_walk
from p2pkm.methods.building_blocks.private_plan import Plan
from p2pkm.methods.building_blocks.private_releases import Facts, Kind
from p2pkm.methods.building_blocks.secure_sums import Grain
from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.methods.peer import private
from p2pkm.methods.peer.private import Private, PrivateOnGraph
from p2pkm.network.graph import Topology
from p2pkm.privacy import noise_evidence
from p2pkm.privacy.noise_evidence import NoiseEvidence, ReleaseName, WordCounts
from p2pkm.privacy.observed_run import PointSet, list_subtrees, observe_run
from p2pkm.privacy.private_attack import attack_runs, choose_canaries, list_coalitions
from p2pkm.privacy.run_attack import AttackQuery, attack_private
from tests.support.sampling import thin

TRUSTS = ("masks", "none", "server")
RING = Topology.from_graph(topologies.ring(5))


@pytest.fixture(autouse=True)
def _repeatable(monkeypatch):
    """Every run has another secret, and every test the same ones."""
    monkeypatch.setattr(secrets, "token_bytes", np.random.default_rng(0).bytes)


def attack(trials, devices=5, clusters=3, features=2, **options):
    """Return the result of an attack on a ring."""
    spec = ",".join(f"{name}={value}" for name, value in ({"epsilon": 2, "radius": 30} | options).items())
    return attack_private(AttackQuery("ring", devices, trials=trials), f"private:{spec}", clusters, features)


# --- versions that are broken on purpose: each receives `monkeypatch`


def halve_noise_of_rings(patch):
    original = Private.noise_of
    patch.setattr(Private, "noise_of", lambda self, release, *rest: tuple(
        sd / (2 if release.kind == Kind.RINGS else 1) for sd in original(self, release, *rest)))  # fmt: skip


def leave_clip_out(patch):
    original = private_releases._contributions
    patch.setattr(private_releases, "_contributions", lambda devices, points, known, release: original(
        devices, points, known, release._replace(clip_radius=math.inf)))  # fmt: skip


def count_unclipped(patch):
    """A point outside of the ball counts as often as its distance exceeds the radius."""
    original = private.local_table

    def count(devices, ball, known, release):
        table = original(devices, ball, known, release)
        distance = np.linalg.norm(devices.stored - ball[0], axis=1) / ball[1]
        excess = np.rint(release.point_units * np.maximum(distance - 1.0, 0.0))
        owners = np.repeat(np.arange(len(devices)), np.diff(devices.offsets))
        table[:, 0, -1] += np.bincount(owners, excess, len(devices)).astype(np.int64)
        return table

    patch.setattr(private, "local_table", count)


def reuse_masks(patch):
    original = secure_sums.link_masks
    for module in (secure_sums, secure_walk):
        patch.setattr(module, "link_masks", lambda keys, name, length: original(keys, name._replace(number=1), length))


def fix_the_seed(patch):
    patch.setattr(secrets, "token_bytes", bytes)


def leave_out_noise_of_one_device(patch):
    original = private.draw_noise

    def draw(keys, *rest):
        noise = original(keys, *rest)
        noise[2] = 0
        return noise

    patch.setattr(private, "draw_noise", draw)


def exceed_shares(patch):
    original = Plan.shares.func
    shares = cached_property(lambda plan: {kind: 1.2 * share for kind, share in original(plan).items()})
    shares.__set_name__(Plan, "shares")
    patch.setattr(Plan, "shares", shares)


def round_after_noise(patch):
    """Sums are added to the noise first, and rounded then."""
    table, noise, left = private.local_table, private.draw_noise, []

    def keep_fractions(devices, ball, known, release):
        factor = 2.0**20
        finer = release._replace(grain=release.grain._replace(unit=release.grain.unit / factor))
        exact = table(devices, ball, known, finer) / factor
        left.append(exact - np.rint(exact))
        return np.rint(exact).astype(np.int64)

    def draw(keys, name, sd, shape):
        drawn = secure_sums.standard_normals(
            keys, name.number, name.purpose(secure_sums.Stream.PRIVACY), math.prod(shape)
        )
        return np.rint((sd * drawn).reshape(-1, *shape) + left.pop()).astype(np.int64)

    assert noise is secure_sums.draw_noise
    patch.setattr(private, "local_table", keep_fractions)
    patch.setattr(private, "draw_noise", draw)


def leave_rounding_out_of_the_sensitivity(patch):
    """Units are an eighth of the sensitivity, and do not enlarge it."""
    patch.setattr(private_releases, "grain_of", lambda sensitivity, width: Grain(
        2.0 ** math.floor(math.log2(sensitivity / 8.0)), sensitivity))  # fmt: skip


def take_ring_edges_from_points(patch):
    """Every device divides the distance of its farthest point into rings."""
    original = private_releases._contributions

    def divide(devices, points, known, release):
        if release.kind == Kind.RINGS and len(points):
            size = float(private_releases.lengths(points).max())
            known = known._replace(facts=known.facts._replace(size=size))
        return original(devices, points, known, release)

    patch.setattr(private_releases, "_contributions", divide)


def start_from_points(patch):
    """The first cell is the first point of the root."""
    original = PrivateOnGraph.compute_command

    def compute(self, state, devices):
        after = original(self, state, devices)
        root = int(np.flatnonzero(self.tree.parent[devices.ids] < 0)[0])
        facts = Facts(*after.down[root, : len(Facts._fields), 0])
        points = devices.stored[devices.offsets[root] : devices.offsets[root + 1]]
        if facts.kind == Kind.CELLS and not facts.number and len(points):
            after.down[root, len(Facts._fields) : len(Facts._fields) + devices.d, 0] = points[0]
        return after

    patch.setattr(PrivateOnGraph, "compute_command", compute)


def leave_out_the_limit_of_devices(patch):
    patch.setattr(private_releases, "_limit_lengths", lambda table, release: table)


BROKEN = {
    "noise halved in one release": halve_noise_of_rings,
    "clip left out": leave_clip_out,
    "count unclipped": count_unclipped,
    "mask reused": reuse_masks,
    "seed fixed": fix_the_seed,
    "one device without noise": leave_out_noise_of_one_device,
    "shares above 1": exceed_shares,
    "rounding not in the sensitivity": leave_rounding_out_of_the_sensitivity,
    "ring edges from data": take_ring_edges_from_points,
    "start from data": start_from_points,
}
QUICK = "noise halved in one release"


@pytest.mark.parametrize("name", [
    name if name == QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BROKEN
])  # fmt: skip
def test_broken_versions_are_found(name, monkeypatch):
    BROKEN[name](monkeypatch)
    assert not attack(4 if name == QUICK else 10)["holds"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [
    (name, options) for name in ("noise halved in one release", "clip left out", "count unclipped", "seed fixed",
                                 "shares above 1", "ring edges from data", "start from data")
    for options in ({"trust": "none"}, {"trust": "server", "features": 8}, {"relation": "replace"})
])  # fmt: skip
def test_broken_versions_are_found_with_other_trust_and_relations(name, options, monkeypatch):
    BROKEN[name](monkeypatch)
    assert not attack(10, **options)["holds"]


@pytest.mark.slow
def test_devices_without_a_limit_are_found_and_those_with_one_are_not(monkeypatch):
    assert attack(10, relation="device")["holds"] and attack(10, relation="device", points=1, trust="none")["holds"]
    leave_out_the_limit_of_devices(monkeypatch)
    assert not attack(4, relation="device")["holds"]


@pytest.mark.slow
def test_one_of_sixteen_devices_without_noise_is_found_against_the_curious_and_named(monkeypatch):
    leave_out_noise_of_one_device(monkeypatch)
    curious, neighbors = attack(50, devices=16, clusters=16)["rows"]
    assert not curious["holds"] and curious["mu_measured"] > 1.02 * curious["mu_claimed"]
    assert neighbors["quiet_device"] == 2 and neighbors["mu_measured"] is None


@pytest.mark.slow
def test_what_is_found_says_what_is_wrong(monkeypatch):
    reuse_masks(monkeypatch)
    result = attack(4)
    assert [name for name, check in result["checks"].items() if not check["holds"]] == ["masked messages"]
    assert all(row["holds"] for row in result["rows"])


@pytest.mark.slow
def test_rounding_after_the_noise_discloses_no_more_and_is_not_accused(monkeypatch):
    """A rounded value is a function of the value: rounding after the noise takes nothing from the guarantee."""
    round_after_noise(monkeypatch)
    assert attack(20)["holds"]


@pytest.mark.slow
@pytest.mark.parametrize("trust", TRUSTS)
def test_the_right_version_is_not_accused(trust):
    # Half of all combinations: every pair of values of two parameters.
    half = ("add", 2, 0.5), ("add", 6, 8), ("replace", 2, 8), ("replace", 6, 0.5)
    cases = [{"trust": trust, "relation": relation, "features": features, "epsilon": epsilon}
             for relation, features, epsilon in half]  # fmt: skip
    cases += [{"trust": trust, "epsilon": 0.1}, {"trust": trust, "epsilon": 2, "devices": 16}]
    assert [case for case in cases if not attack(4, **case)["holds"]] == []


# --- what a run shows


def canaries(method, features=2, topology=RING):
    return choose_canaries(method, topology, features, 0)


def observe(method, features=2, topology=RING, **options):
    chosen = canaries(method, features, topology)
    neighbors = [PointSet.of(chosen.with_point), *chosen.neighbors]
    return chosen, observe_run(method, topology, chosen.without, neighbors, seed=0, **options)


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.sample(3)
def test_what_is_recorded_is_what_the_run_computed(trust, monkeypatch):
    """Tables are those of `local_table`, and totals those that the root read."""
    tables, totals = [], []
    table, compute = private.local_table, PrivateOnGraph.compute_command

    def keep_table(devices, *rest):
        result = table(devices, *rest)
        tables.append((devices.total_points, result.reshape(len(devices), -1).copy()))
        return result

    def keep_total(self, state, devices):
        totals.append(state.up[self.tree.parent[devices.ids] < 0][0, :, 0].copy())
        return compute(self, state, devices)

    monkeypatch.setattr(private, "local_table", keep_table)
    monkeypatch.setattr(PrivateOnGraph, "compute_command", keep_total)
    method = p2pkm.Private(3, epsilon=2.0, radius=4.0, center=1.0, trust=trust)
    chosen, run = observe(method)
    m, root = len(chosen.without.points), build_spanning_tree(RING).parent < 0
    exact = [result for count, result in tables if count == m]
    changed = [result for count, result in tables if count == m + 1]
    assert len(run.releases) == len(exact) == len(totals) == 5 and not run.dependent
    for number, observed in enumerate(run.releases):
        np.testing.assert_array_equal(observed.tables, exact[number])
        np.testing.assert_array_equal(observed.sent[root][0], totals[number])
        for canary, change in enumerate(observed.changes):
            other = changed[number * len(observed.changes) + canary]
            np.testing.assert_array_equal(change, (other - exact[number]).sum(axis=0))


@pytest.mark.parametrize(("features", "relation"), thin([(2, "add"), (8, "add"), (2, "device"), (8, "device")], 2))
def test_a_canary_changes_every_release_as_much_as_is_assumed(features, relation):
    _, run = observe(p2pkm.Private(3, epsilon=2.0, radius=30.0, relation=relation), features)
    for observed in run.releases:
        sizes = np.linalg.norm(observed.changes / observed.scale, axis=1) / observed.sensitivity
        assert 0.999 < sizes[0] <= sizes.max() <= 1.0, observed.kind


def test_nothing_but_tables_depends_on_points_in_any_call():
    assert observe(p2pkm.Private(3, epsilon=2.0, radius=30.0), 8, is_thorough=True)[1].dependent == set()


def test_a_method_that_reads_the_number_of_points_is_noticed(monkeypatch):
    original = PrivateOnGraph.initial_state

    def start(self, devices, start):
        state = original(self, devices, start)
        return state._replace(facts=state.facts + np.eye(8)[4] * devices.total_points)

    monkeypatch.setattr(PrivateOnGraph, "initial_state", start)
    assert observe(p2pkm.Private(3, epsilon=2.0, radius=30.0))[1].dependent >= {"facts"}


def test_subtrees_are_those_of_the_tree():
    tree = build_spanning_tree(Topology.from_graph(topologies.small_world(16, degree=4, rewire=0.2, seed=1)))
    inside = list_subtrees(tree)
    for device in range(16):
        above = device
        while above >= 0:
            assert inside[above, device]
            above = tree.parent[above]
    assert inside.sum() == 16 + tree.layer.sum()


def test_the_claims_are_those_of_the_method():
    method = p2pkm.Private(3, epsilon=2.0, radius=30.0, curious=2)
    curious, neighbors = list_coalitions(method, 6)
    assert (curious.hidden, curious.mu, neighbors.hidden) == (4, method.mu, 1) and neighbors.mu == 2 * method.mu


# --- statistics

NAMES = (ReleaseName("rings", 0), ReleaseName("cells", 0))


def evidence(seed, sd=1.0, runs=4, groups=3, change=1.0):
    """Return evidence of two releases of mu 0.6 and 0.8 whose noise has `sd` times the claimed standard deviation."""
    rng = np.random.default_rng(seed)
    result = NoiseEvidence(1.0)
    for _ in range(runs):
        noise = {name: sd * rng.standard_normal((groups, length)) for name, length in zip(NAMES, (40, 90), strict=True)}
        result.add_run(noise, dict(zip(NAMES, (0.6, 0.8), strict=True)))
    for name in NAMES:
        result.add_change(name, change)
    return result


def test_mu_follows_from_noise_and_changes():
    half = evidence(0, sd=0.5, runs=40)
    result, releases = half.measure_group(), half.measure_releases()
    assert abs(result.mu_measured - 2.0) < 4 * result.mu_error and not result.holds
    assert [part.mu_claimed for part in releases.values()] == pytest.approx([0.6, 0.8])
    for part in releases.values():
        assert abs(part.mu_measured - 2 * part.mu_claimed) < 4 * part.mu_error and not part.holds
    doubled = evidence(0, runs=40, change=2.0).measure_group()
    assert abs(doubled.mu_measured - 2.0) < 4 * doubled.mu_error and not doubled.holds
    assert evidence(0, sd=2.0, runs=40).measure_group().holds


def test_noise_is_held_against_the_assumed_change_although_no_canary_reaches_it():
    assert not evidence(0, sd=0.8, runs=40, change=0.5).measure_group().holds


def test_a_group_without_noise_is_unbounded():
    result = NoiseEvidence(1.0)
    result.add_run({NAMES[0]: np.vstack((np.ones(9), np.zeros(9)))}, {NAMES[0]: 1.0})
    result.add_change(NAMES[0], 1.0)
    assert result.find_quiet_group() == 1 and result.measure_group(1)[1:] == (math.inf, 0.0, False)


def test_each_family_of_tests_accuses_correct_noise_at_most_as_often_as_it_says(monkeypatch):
    """At an error of 0.1 instead of 5e-5, of 200 sets of evidence: at most 35 (probability 4e-4)."""
    monkeypatch.setattr(noise_evidence, "ERROR", 0.1)
    sets = [evidence(seed) for seed in range(200)]
    for rate in (
        sum(not result.is_independent for result in sets),
        sum(result.find_quiet_group() is not None for result in sets),
        sum(not all(part.holds for part in result.measure_releases().values()) for result in sets),
        sum(not result.measure_group().holds for result in sets),
    ):
        assert 3 <= rate <= 35


@pytest.mark.parametrize("where", ["runs", "releases", "groups"])
def test_equal_noise_is_noticed(where):
    rng = np.random.default_rng(0)
    result, same = NoiseEvidence(1.0), rng.standard_normal((1, 200))
    for _ in range(3):
        noise = {name: rng.standard_normal((2, 200)) for name in NAMES}
        if where == "runs":
            noise[NAMES[1]][1] = same
        elif where == "releases":
            noise[NAMES[1]][0] = noise[NAMES[0]][0]
        else:
            noise[NAMES[0]][1] = noise[NAMES[0]][0]
        result.add_run(noise, dict.fromkeys(NAMES, 0.7))
    assert not result.is_independent


def test_words_are_uniform_or_not():
    rng = np.random.default_rng(0)
    uniform = rng.integers(0, 2**64, 4000, dtype=np.uint64)
    table = rng.integers(-(2**40), 2**40, 4000).view(np.uint64)
    counts = WordCounts()
    counts.add("masked", uniform + table)
    assert counts.are_uniform and counts.small["masked"] == pytest.approx(4000 / 128, abs=25)
    counts.add_difference("reused", uniform + table, (uniform + table[::-1])[:30])
    assert not counts.are_uniform
    assert WordCounts().are_uniform


@pytest.mark.slow
def test_runs_are_equally_many_with_and_without_the_point_and_have_the_public_seed(monkeypatch):
    seen = []
    original = run_secret.draw_secret

    def draw(traits, seed, world):
        seen.append(seed)
        return original(traits, seed, world)

    monkeypatch.setattr("p2pkm.engine.run_job.draw_secret", draw)
    method = p2pkm.Private(3, epsilon=2.0, radius=30.0, trust="server")
    result = attack_runs(method, RING, canaries(method), 3, 11)
    assert seen == [11] * 6 and [len(part) for part in result.evidence[0].trials] == [3, 3]
