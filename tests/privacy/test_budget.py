"""`p2pkm privacy budget`: every release counts, and counts once."""

import json
import math
import shutil
from dataclasses import replace

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import p2pkm
import topologies
from p2pkm.methods.building_blocks.gdp import mu_of
from tests.support.run_cli import here

OPTIONS = ("--data", "grid16:points=5", "--devices", 4, "--graph", "ring", "-k", 4, "--no-plot", "--quiet")
PRIVATE = "private:epsilon=2,radius=30"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One run, one of another method, one with seeded noise, and two seeds."""
    parent = tmp_path_factory.mktemp("runs")
    for name, method, *more in (
        ("one", PRIVATE), ("other", "gtvmin"), ("seeded", f"{PRIVATE},noise_seed=1"),
        ("seeds", PRIVATE, "--seeds", "0-1"),
    ):  # fmt: skip
        found = here(*OPTIONS, "--algorithm", method, *more, "--out", parent / name)
        assert found.code in {0, 5}, found.err
    return parent


@pytest.fixture(scope="module")
def result():
    X, y = p2pkm.blobs(clusters=3, points=20, box=30, seed=0)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(60, 3), labels=y)
    return p2pkm.simulate(p2pkm.Private(3, epsilon=1, radius=50), topologies.ring(3), shards)


def other(result, number, **facts):
    """Return another run, with other facts in its summary."""
    return replace(result, summary=result.summary | {"chain_sha256": f"{number:064x}"} | facts)


def naive_epsilon(mu, delta):
    """Solve the equation of the definition of (epsilon, delta) for a mu-GDP release."""
    return brentq(lambda e: norm.cdf(-e / mu + mu / 2) - math.exp(e) * norm.cdf(-e / mu - mu / 2) - delta, 0, 100)


@pytest.mark.parametrize("epsilons", [(1.0,), (1.0, 1.0, 1.0, 1.0), (0.5, 2.0, 4.0)])
def test_composition_is_that_of_the_closed_form(result, epsilons):
    mus = [mu_of(epsilon, 1e-6) for epsilon in epsilons]
    runs = [other(result, place, mu=mu, epsilon=e) for place, (mu, e) in enumerate(zip(mus, epsilons, strict=True))]
    budget = p2pkm.privacy_budget(runs, 1e-5)
    assert budget.mu == pytest.approx(math.sqrt(sum(mu * mu for mu in mus)), rel=1e-12)
    assert budget.epsilon == pytest.approx(naive_epsilon(budget.mu, 1e-5), rel=1e-6)
    assert [one.epsilon for one in budget.releases] == list(epsilons) and budget.notes == ()


def test_composition_is_that_of_dp_accounting(result):
    accounting = pytest.importorskip("dp_accounting")
    event = accounting.SelfComposedDpEvent(accounting.GaussianDpEvent(1 / result.summary["mu"]), 3)
    accountant = accounting.pld.PLDAccountant()
    accountant.compose(event)
    budget = p2pkm.privacy_budget([other(result, number) for number in range(3)])
    assert budget.epsilon == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-3)


def test_the_largest_delta_is_that_of_the_total(result):
    budget = p2pkm.privacy_budget([result, other(result, 1, delta=1e-4)])
    assert budget.delta == 1e-4 and "PrivacyBudget(2 releases" in repr(budget)


def test_a_run_counts_once_and_a_line_says_so(folders, tmp_path):
    one, copy = folders / "one", tmp_path / "copy"
    shutil.copytree(one, copy)
    found = here("privacy", "budget", one, copy, one, folders / "seeds", "--format", "json").summary
    assert [release["run"] for release in found["releases"]] == [
        str(one), *(str(folders / "seeds" / f"seed-{seed}") for seed in (0, 1))
    ]  # fmt: skip
    assert found["mu"] == pytest.approx(mu_of(2, 1e-6) * math.sqrt(3))
    assert found["notes"] == [
        f"{copy} is the same run as {one} and counts once",
        f"{one} was given twice and counts once",
    ]
    loaded = p2pkm.load(one)
    assert p2pkm.privacy_budget([one, loaded]).mu == p2pkm.privacy_budget(loaded).mu == mu_of(2, 1e-6)


def test_seeds_that_were_resumed_are_the_same_releases(folders, tmp_path):
    seeds, resumed = folders / "seeds", tmp_path / "resumed"
    shutil.copytree(seeds, resumed)
    shutil.rmtree(resumed / "seed-1")
    assert len(p2pkm.privacy_budget(resumed).releases) == 1
    assert here("resume", resumed).code in {0, 5}
    # Seed 0 is kept; seed 1 is drawn again, a third release.
    assert len(p2pkm.privacy_budget([seeds, resumed]).releases) == 3


def test_a_run_without_results_counts_in_full_and_once(folders, tmp_path):
    killed, copy = tmp_path / "killed", tmp_path / "copy"
    shutil.copytree(folders / "one", killed)
    (killed / "summary.json").unlink()
    manifest = json.loads((killed / "manifest.json").read_text()) | {"state": "running"}
    (killed / "manifest.json").write_text(json.dumps(manifest))
    shutil.copytree(killed, copy)
    budget = p2pkm.privacy_budget([killed, copy])
    assert budget.mu == mu_of(2, 1e-6) and not budget.releases[0].is_complete
    assert "counts once" in budget.notes[0] and "it counts in full" in budget.notes[1]


@pytest.mark.parametrize(("name", "reason"), [("other", "it is a run of gtvmin"), ("seeded", "seeded noise")])
def test_a_run_without_results_needs_a_guarantee(folders, tmp_path, name, reason):
    shutil.copytree(folders / name, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(p2pkm.DataError, match=reason):
        p2pkm.privacy_budget(tmp_path / "run")


def test_interrupted_runs_in_folders_are_told_apart_by_their_manifests(folders, tmp_path):
    for number in range(2):
        stopped = tmp_path / str(number)
        shutil.copytree(folders / "one", stopped)
        for name, facts in (("summary", {"termination": "interrupted"}), ("manifest", {"start": number})):
            path = stopped / f"{name}.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | facts))
    # Neither may have sent a sum, so that equal centroids say nothing.
    assert len(p2pkm.privacy_budget([tmp_path / "0", tmp_path / "1"]).releases) == 2


@pytest.mark.parametrize("termination", ["interrupted", "terminated", "round-limit"])
def test_runs_that_stopped_count_in_full_even_with_equal_centroids(result, termination):
    stopped = [replace(result, summary=result.summary | {"termination": termination}) for _ in range(2)]
    budget = p2pkm.privacy_budget(stopped)
    assert budget.mu == pytest.approx(math.sqrt(2) * result.summary["mu"]) and len(budget.notes) == 2


def test_the_weaker_relation_and_the_weakest_adversary_hold(result):
    mu = result.summary["mu"]
    runs = [result, other(result, 1, relation="replace", trust="server"), other(result, 2, curious=2)]
    budget = p2pkm.privacy_budget(runs)
    assert (budget.relation, budget.trust) == ("replace", "server")
    assert budget.mu == pytest.approx(mu * math.sqrt(4 + 1 + 4))
    assert "weakest one, replace" in budget.notes[0] and "result 1, result 3" in budget.notes[0]
    assert "trust=server" in budget.notes[1]
    assert p2pkm.privacy_budget([result, other(result, 2, curious=2)]).curious == 1


@pytest.mark.parametrize(("relations", "total", "factors", "unit"), [
    (("device", "device"), "device", 2, "all points of each device together"),
    (("device", "add"), "add", 4 + 1, "each point"),
    (("device", "replace"), "replace", 4 + 1, "the replacement of each point"),
    (("device", "add", "replace"), "replace", 4 + 4 + 1, "the replacement of each point"),
])  # fmt: skip
def test_a_run_for_devices_counts_twice_for_points_and_a_run_for_points_not_for_devices(
    result, relations, total, factors, unit
):
    budget = p2pkm.privacy_budget([other(result, i, relation=relation) for i, relation in enumerate(relations)])
    assert budget.relation == total and budget.mu == pytest.approx(result.summary["mu"] * math.sqrt(factors))
    assert f"All runs together hold for {unit}, against" in str(budget)
    assert ("result 1" in "".join(budget.notes)) == (total != "device")


@pytest.mark.parametrize(("relations", "counts"), [
    (("add", "add"), False), (("add", "replace"), False), (("replace", "replace"), True), (("device",), False),
    (("replace", "device"), False),
])  # fmt: skip
def test_the_number_of_points_is_public_only_if_all_runs_replace(result, relations, counts):
    runs = [other(result, number, relation=relation) for number, relation in enumerate(relations)]
    text = str(p2pkm.privacy_budget(runs))
    assert ("centroids, number of points; not cost" in text) == counts
    assert ("not the number of points" in text) != counts


@pytest.mark.parametrize(("runs", "code", "message"), [
    (["missing"], 3, "is not a run folder: it does not exist"),
    (["one/summary.json"], 3, "is not a run folder: it is a file"),
    (["one/figures"], 3, "is not a run folder"),
    (["one", "other"], 3, "other has no privacy guarantee that could be added up: it is a run of gtvmin"),
    (["one", "seeded"], 3, "no guarantee: seeded noise (noise_seed=1)"),
    (["one", "--delta", 0], 2, "delta is 0.0"),
    (["one", "--delta", "nan"], 2, "delta is nan"),
    ([], 2, "Missing argument 'RUN...'"),
])  # fmt: skip
def test_what_has_no_guarantee_is_rejected(folders, monkeypatch, runs, code, message):
    monkeypatch.chdir(folders)
    (folders / "one" / "figures").mkdir(exist_ok=True)
    found = here("privacy", "budget", *runs)
    assert (found.code, found.out) == (code, "") and message in found.err


@pytest.mark.parametrize(("runs", "message"), [([], "runs is empty"), ([3], "run 1 is 3; expected a Result")])
def test_what_is_no_run_is_rejected(runs, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        p2pkm.privacy_budget(runs)


@pytest.mark.parametrize("facts", [{"mu": "x"}, {"mu": -1}, {"mu": math.nan}, {"relation": "near"}, {"trust": None}])
def test_a_damaged_guarantee_is_rejected(result, facts):
    with pytest.raises(p2pkm.DataError, match="is incomplete or unknown"):
        p2pkm.privacy_budget(other(result, 1, **facts))


@pytest.mark.slow
def test_the_closing_tables_say_what_may_be_published(tmp_path):
    found = here(*OPTIONS, "--algorithm", f"{PRIVATE},relation=replace", "--out", "none")
    assert "centroids, number of points" in found.out and "p2pkm privacy budget RUN..." in found.out
    several = here(*OPTIONS, "--algorithm", PRIVATE, "--seeds", "0-3", "--out", tmp_path / "seeds")
    assert "2 times that of one run" in several.out and "may be published: centroids; not the number" in several.out
    seeded = here(*OPTIONS, "--algorithm", f"{PRIVATE},noise_seed=1", "--out", "none")
    assert "may be published" not in seeded.out


def test_several_runs_must_be_a_list(folders):
    with pytest.raises(p2pkm.ExperimentError, match="delta is 'second'; expected a number between 0 and 1"):
        p2pkm.privacy_budget(folders, "second")
