"""Published values of parameters: the key `defaults` of a method spec."""

import pytest

import p2pkm
from p2pkm.cli.algorithms import describe, explain
from p2pkm.core.card import find_card
from p2pkm.core.spec import parameters, parse
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import parse_method
from p2pkm.experiments.estimators.parameters import arrange
from p2pkm.methods.registry import METHODS, find, known
from tests.support.each import each
from tests.support.run_cli import here


def build(spec, k=3, **options):
    return parse_method(RunOptions(algorithm=spec, **options)).build(k)


def published(name):
    """Return the published values of a method."""
    return find_card(find(name)).paper


PUBLISHED = [name for name in METHODS if published(name)]


@each("name", PUBLISHED)
def test_each_value_is_a_parameter_and_is_selected_by_name(name):
    values = published(name)
    assert {*values} <= {*parameters(find(name))} and find_card(find(name)).source
    assert build(f"{name}:defaults=paper") == find(name)(3, **values)
    assert build(f"{name}:defaults=ours") == build(name) == find(name)(3)


def test_explicit_options_override_published_values():
    expected = p2pkm.FKM(3, server_seeding="weighted", tol=0.0)
    assert build("fkm:server_seeding=weighted,defaults=paper") == expected
    assert build("consensus:defaults=paper", init="leader").init == p2pkm.Init.leader()
    # alpha and coupling exclude each other, so the published alpha gives way.
    assert build("gtvmin:defaults=paper", coupling=3.0).coupling == 3.0
    assert build("gtvmin:defaults=paper,alpha=2").alpha == 2.0


def test_the_published_gtvmin_is_that_of_the_first_algorithm():
    method = build("gtvmin:defaults=paper")
    assert method == p2pkm.GTVMin(3, alpha=1.0, schedule="jacobi", relaxation=1.0, init="local")


@pytest.mark.parametrize(("spec", "message"), [
    ("fkm:defaults=papr", "Did you mean 'paper'"),
    ("fkm:defaults=", "Known: ours, paper"),
    ("fkm:defaults=paper,defaults=ours", "once"),
    ("treelloyd:defaults=paper", "unknown key 'defaults'"),
])  # fmt: skip
def test_other_values_are_rejected(spec, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        build(spec)


def test_the_key_exists_only_in_specs():
    assert "defaults" in parameters(known("ffcm1")["ffcm1"]) and "version" not in parameters(known("ffcm1")["ffcm1"])
    assert str(parse("fkm:defaults=paper", known("fkm"), "algorithm")) == "fkm:defaults=paper"
    with pytest.raises(TypeError):
        p2pkm.FKM(3, defaults="paper")


def test_the_estimator_accepts_the_key():
    model = p2pkm.P2PKMeans(2, algorithm="admm:defaults=paper", n_devices=3, random_state=0)
    method = arrange(model.get_params(), 30, None)[0].method
    assert method == p2pkm.ADMM(2, **published("admm"))


@pytest.mark.slow
def test_a_run_keeps_the_key_in_its_configuration(tmp_path):
    out = tmp_path / "run"
    ending = here("--algorithm", "fkm:defaults=paper", "--data", "blobs:points=20", "--devices", "3", "--rounds", "2",
                  "--out", str(out))  # fmt: skip
    assert ending.code == 0
    assert 'algorithm = "fkm:defaults=paper"' in (out / "config.toml").read_text()


def test_the_page_of_a_method_lists_the_published_values():
    page = " ".join(explain("gtvmin").split())
    assert "gtvmin:defaults=paper selects: alpha=1, schedule=jacobi, relaxation=1, init=local." in page
    for name in METHODS:
        assert (describe(name)["published"] is not None) == (name in PUBLISHED)
        assert ("Published defaults" in explain(name)) == (name in PUBLISHED)
