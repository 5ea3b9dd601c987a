"""`p2pkm attack`: bound and attack side by side, and a red end where more is measured than is claimed."""

import inspect
import json
import math

import pytest

from p2pkm.cli.attack import private_command
from p2pkm.methods.building_blocks.gdp import epsilon_of, mu_of
from p2pkm.methods.peer.private import Private
from p2pkm.privacy import run_attack as attack
from tests.support.run_cli import here

FEW = ("--trials", 2000, "--format", "json")


def run(*words):
    found = here("attack", *words, *FEW)
    return found.code, json.loads(found.out)


def test_gossip_on_a_ring_gives_away_what_lies_within_the_gossips():
    code, found = run("gossip", "--graph", "ring", "--gossips", 3)
    assert code == 0 and found["holds"]
    assert [row["solved"] for row in found["rows"]] == [1.0] * 3 + [0.0] * 5
    for row in found["rows"]:
        assert row["mu_claimed"] == pytest.approx(1.0 * (row["distance"] <= 3), abs=1e-6)
        assert abs(row["mu_measured"] - row["mu_claimed"]) <= 4 * row["mu_error"]
        assert row["epsilon_found"] <= row["epsilon_claimed"] + 1e-12
    assert found["audit"]["ceiling"] == pytest.approx(4.19, abs=0.02) and found["audit"]["guesses"] == 200


def test_gossip_on_a_star_hides_leaves_behind_the_hub():
    _, found = run("gossip", "--graph", "star", "--receiver", 1, "--gossips", 5, "--mu", 3)
    hub, leaf = found["rows"]
    assert (hub["distance"], leaf["distance"], leaf["solved"]) == (1, 2, 0.0)
    assert leaf["mu_claimed"] == pytest.approx(3 * math.sqrt(1 / 14))


@pytest.mark.parametrize("trust", ["masks", "none", "server"])
def test_private_gives_away_what_it_claims(trust):
    code, found = run("private", "--algorithm", f"private:epsilon=2,radius=5,trust={trust}")
    assert code == 0
    first = found["rows"][0]
    assert first["mu_claimed"] == pytest.approx(mu_of(2.0, 1e-6)) == pytest.approx(found["mu"])
    assert abs(first["mu_measured"] - first["mu_claimed"]) <= 4 * first["mu_error"]
    if trust == "masks":
        alone = found["rows"][1]
        assert (alone["hidden"], alone["epsilon_claimed"]) == (
            1,
            pytest.approx(epsilon_of(found["mu"] * 15**0.5, 1e-6)),
        )
        assert abs(alone["mu_measured"] - alone["mu_claimed"]) <= 4 * alone["mu_error"]


@pytest.mark.parametrize("relation", ["replace", "device", "device,points=1"])
@pytest.mark.parametrize("features", [2, 20])
def test_a_replaced_point_and_a_whole_device_give_away_all_that_is_claimed_of_them(features, relation):
    words = ("--algorithm", f"private:epsilon=2,radius=5,relation={relation}", "--features", features)
    _, found = run("private", *words)
    for row in found["rows"]:
        assert abs(row["mu_measured"] - row["mu_claimed"]) <= 4 * row["mu_error"]


@pytest.mark.slow
def test_measured_mu_of_private_in_20000_trials():
    found = here("attack", "private", "--algorithm", "private:epsilon=2,radius=5", "--format", "json").summary
    for row in found["rows"]:
        assert abs(row["mu_measured"] - row["mu_claimed"]) < 0.04
        assert 0.0 < row["epsilon_found"] <= row["epsilon_claimed"]


def test_noise_that_was_halved_by_mistake_ends_red(monkeypatch):
    noise_of = Private.noise_of
    monkeypatch.setattr(Private, "noise_of", lambda *given: tuple(0.5 * sd for sd in noise_of(*given)))
    code, found = run("private", "--algorithm", "private:epsilon=1,radius=5")
    assert code == 6 and not found["holds"]
    assert found["rows"][0]["epsilon_found"] < found["rows"][0]["epsilon_claimed"]  # mu finds it
    assert "EXCEEDED" in attack.explain(found)


def test_a_picture_and_a_table(tmp_path):
    for what in ("gossip", "private"):
        found = here("attack", what, "--trials", 400, "--devices", 6, "--out", tmp_path / f"{what}.png")
        assert found.code == 0 and (tmp_path / f"{what}.png").stat().st_size > 10_000
        assert "can never show more than" in found.out


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
    (("gossip", "--mu", 1e300), 2, "at most 1000"),
    (("gossip", "--devices", 1), 2, "of 2 to 2,000 devices"),
    (("private", "--graph", "one-peer-exponential"), 2, "links have to last"),
    (("private", "--algorithm", "private:epsilon=1e9,radius=1"), 2, "removes it. Use a smaller epsilon."),
])  # fmt: skip
def test_mistakes_are_named(words, code, message):
    found = here("attack", *words)
    assert found.code == code and message in found.err


def test_the_command_line_has_the_defaults_of_the_functions():
    wanted = attack.AttackQuery._field_defaults | {
        name: one.default for name, one in inspect.signature(attack.attack_private).parameters.items()
    }
    given = private_command.make_context("private", ["--graph", "ring"]).params
    for name, default in wanted.items():
        assert default is inspect.Parameter.empty or given.get(name, default) == default, name
