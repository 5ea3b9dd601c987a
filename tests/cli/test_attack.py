"""`p2pkm attack`: bound and attack side by side, and a red end where more is measured than is claimed."""

import inspect
import json
import math
import secrets

import numpy as np
import pytest

from p2pkm.cli.attack import private_command
from p2pkm.methods.building_blocks.gdp import epsilon_of, mu_of
from p2pkm.privacy import run_attack as attack
from tests.support.run_cli import here
from tests.support.sampling import thin

FEW = ("--trials", 2000, "--format", "json")


@pytest.fixture(autouse=True)
def _repeatable(monkeypatch):
    """Every run has another secret, and every test the same ones."""
    monkeypatch.setattr(secrets, "token_bytes", np.random.default_rng(0).bytes)


def run(*words):
    shown = here("attack", *words, *FEW)
    return shown.code, json.loads(shown.out)


def test_gossip_on_a_ring_gives_away_what_lies_within_the_gossips():
    code, shown = run("gossip", "--graph", "ring", "--gossips", 3)
    assert code == 0 and shown["holds"]
    assert [row["solved"] for row in shown["rows"]] == [1.0] * 3 + [0.0] * 5
    for row in shown["rows"]:
        assert row["mu_claimed"] == pytest.approx(1.0 * (row["distance"] <= 3), abs=1e-6)
        assert abs(row["mu_measured"] - row["mu_claimed"]) <= 4 * row["mu_error"]
        assert row["epsilon_found"] <= row["epsilon_claimed"] + 1e-12
    assert shown["audit"]["ceiling"] == pytest.approx(4.19, abs=0.02) and shown["audit"]["guesses"] == 200


def test_gossip_on_a_star_hides_leaves_behind_the_hub():
    _, shown = run("gossip", "--graph", "star", "--receiver", 1, "--gossips", 5, "--mu", 3)
    hub, leaf = shown["rows"]
    assert (hub["distance"], leaf["distance"], leaf["solved"]) == (1, 2, 0.0)
    assert leaf["mu_claimed"] == pytest.approx(3 * math.sqrt(1 / 14))


def attack_runs(algorithm, *more):
    shown = here("attack", "private", "--algorithm", algorithm, "--devices", 4, "-k", 2, "--trials", 4, *more)
    return shown.code, shown


@pytest.mark.slow
@pytest.mark.parametrize(("trust", "against"), thin([
    ("masks", {"curious": 3, "all others": 1}), ("none", {"all others": 1}), ("server", {"recipients": 1}),
], 3))  # fmt: skip
def test_runs_of_private_give_away_what_it_claims(trust, against):
    code, shown = attack_runs(f"private:epsilon=2,radius=5,trust={trust}", "--format", "json")
    result = json.loads(shown.out)
    assert code == 0 and result["holds"] and all(check["holds"] for check in result["checks"].values())
    assert {row["against"]: row["hidden"] for row in result["rows"]} == against
    assert result["rows"][0]["mu_claimed"] == pytest.approx(mu_of(2.0, 1e-6)) == pytest.approx(result["mu"])
    for row in result["rows"]:
        assert abs(row["mu_measured"] - row["mu_claimed"]) <= 4 * row["mu_error"]
        assert sum(part["mu_claimed"] ** 2 for part in row["releases"]) == pytest.approx(row["mu_claimed"] ** 2)
        assert row["epsilon_claimed"] == pytest.approx(epsilon_of(row["mu_claimed"], 1e-6))


@pytest.mark.slow
def test_noise_with_a_known_seed_has_no_bound_and_ends_red():
    code, shown = attack_runs("private:epsilon=2,radius=5,noise_seed=1")
    assert code == 6 and shown.out.count("unbounded") >= 2
    assert "noise of runs, releases and devices: predictable  EXCEEDED" in shown.out


@pytest.mark.slow
def test_measured_mu_of_runs_of_private_with_the_defaults():
    shown = here("attack", "private", "--algorithm", "private:epsilon=2,radius=5", "--format", "json").summary
    for row in shown["rows"]:
        assert row["mu_measured"] == pytest.approx(row["mu_claimed"], rel=0.02)
        assert abs(row["point"]["mu_measured"] - row["mu_claimed"]) <= 4 * row["point"]["mu_error"]


@pytest.mark.parametrize(("what", "few", "line"), thin([
    ("gossip", ("--trials", 400), "can never show more than"),
    ("private", ("--trials", 4, "-k", 2), "masked messages: uniform"),
], 2))  # fmt: skip
def test_a_picture_and_a_table(what, few, line, tmp_path):
    shown = here("attack", what, *few, "--devices", 4, "--out", tmp_path / f"{what}.png")
    assert shown.code == 0 and (tmp_path / f"{what}.png").stat().st_size > 10_000
    assert line in shown.out


@pytest.mark.parametrize(("words", "code", "message"), [
    (("gossip", "--receiver", 99), 2, "expected a device from 0 to 15"),
    (("gossip", "--delta", 2), 2, "delta is 2.0"),
    (("gossip", "--mu", -1), 2, "mu is -1.0"),
    (("gossip", "--graph", "one-peer-exponential"), 2, "requires a static graph"),
    (("gossip", "--graph", "rings"), 2, "Did you mean 'ring'"),
    (("gossip", "--out", "picture.txt"), 2, "ends in .png"),
    (("private", "--algorithm", "gtvmin"), 2, "unknown algorithm to attack 'gtvmin'"),
    (("private", "--algorithm", "private:epsilon=1"), 2, "requires radius"),
    (("private", "--graph", "star"), 2, "is not safe on this graph: device 0 disconnects it"),
    (("gossip", "--trials", 99), 2, "trials is 99; expected"),
    (("private", "--trials", 3), 2, "trials is 3; expected"),
    (("gossip", "--mu", 1e300), 2, "at most 1000"),
    (("gossip", "--devices", 1), 2, "of 2 to 2,000 devices"),
    (("private", "--graph", "one-peer-exponential"), 2, "links must not change"),
    (("private", "--algorithm", "private:epsilon=1e9,radius=1"), 2, "removes it. Use a smaller epsilon."),
])  # fmt: skip
def test_mistakes_are_named(words, code, message):
    shown = here("attack", *words)
    assert shown.code == code and message in shown.err


def test_the_command_line_has_the_defaults_of_the_functions():
    defaults = attack.AttackQuery._field_defaults | {
        name: parameter.default for name, parameter in inspect.signature(attack.attack_private).parameters.items()
    }
    parameters = private_command.make_context("private", ["--graph", "ring"]).params
    for name, default in defaults.items():
        assert default is inspect.Parameter.empty or parameters.get(name, default) == default, name
