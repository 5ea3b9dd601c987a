"""The table of deep clustering: controls, pairs, what is held out, and what it refuses."""

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.deep.deep_table import DeepTable
from p2pkm.deep.measure_table import CONTROLS
from tests.support.each import each

SMALL = {"network": "mlp", "epochs": 1, "rate": 0.02}


def row(name, seed, accuracy, sent=None):
    scores = dict.fromkeys(("nmi", "ari", "purity"), 0.5)
    return {"name": name, "seed": seed, "accuracy": accuracy, "accuracy_few": accuracy / 2, "bytes": sent,
            "bytes_busiest": sent, "by_round": None, **scores}  # fmt: skip


def test_means_pairs_and_text():
    table = DeepTable((
        *(row("untrained body", seed, 0.5 + 0.01 * seed) for seed in range(3)),
        *(row("FeCA", seed, 0.6 + 0.01 * seed, 2000) for seed in (2, 1, 0)),
    ))  # fmt: skip
    assert table.names == ["untrained body", "FeCA"]
    assert table.mean("FeCA") == pytest.approx(0.61) and table.mean("untrained body", "bytes") is None
    gap = table.gap("FeCA")  # by seed, not by place
    assert (gap["mean"], gap["low"], gap["high"]) == pytest.approx((0.1, 0.1, 0.1)) and gap["differs"] is True
    head, untrained, feca = str(table).splitlines()
    assert "all labels" in head and "+0.100 [+0.100, +0.100]" in feca and "[" not in untrained
    assert "0.610 (0.010)" in feca and feca.split()[-5] == "2"
    with pytest.raises(ExperimentError, match="Did you mean 'FeCA'"):
        table.mean("Feca")


def test_one_seed_has_no_spread_and_no_interval():
    _, untrained, feca = str(DeepTable((row("untrained body", 0, 0.5), row("FeCA", 0, 0.6, 2000)))).splitlines()
    assert "+0.100" in feca and not set("[(") & set(feca + untrained)


@each(
    ("systems", "options", "error", "words"),
    [
        ({}, {}, ExperimentError, "not deep methods"),
        ({"a": p2pkm.FeCA(3)}, {}, ExperimentError, "not deep methods"),
        ({"none": p2pkm.DeepFeCA(3)}, {}, ExperimentError, "names a system and a control"),
        ({"a": p2pkm.DeepFeCA(3)}, {"controls": ["pixels"]}, ExperimentError, "control is 'pixels'"),
        ({"a": p2pkm.DeepFeCA(3)}, {"seeds": 0}, ExperimentError, "seeds is 0"),
        ({"a": p2pkm.DeepFeCA(3)}, {"data": (np.ones((9, 64)), None)}, DataError, "labels is None"),
        ({"a": p2pkm.DeepFeCA(3)}, {"data": (np.ones((9, 64)), np.ones(9))}, DataError, "one class"),
    ],
)
def test_bad_input(systems, options, error, words):
    with pytest.raises(error, match=words):
        p2pkm.deep_table(systems, **{"data": "shapes:points=5,side=8", **options})


def test_rows_that_are_known_are_not_run_again():
    known = [row(name, seed, 0.5 + seed / 10) for seed in (1, 0, 2) for name in ("FeCA", "untrained body", "other")]
    told = []
    table = p2pkm.deep_table({"FeCA": p2pkm.DeepFeCA(3)}, "shapes:points=5,side=8", seeds=[0, 1], known=known,
                             controls=["untrained body"], tell=told.append)  # fmt: skip
    assert [(one["seed"], one["name"], one["accuracy"]) for one in table.rows] == [
        (0, "untrained body", 0.5), (0, "FeCA", 0.5), (1, "untrained body", 0.6), (1, "FeCA", 0.6),
    ]  # fmt: skip
    assert not told


@pytest.mark.slow
def test_all_systems_and_controls():
    pytest.importorskip("jax", reason="needs the extra deep")
    method = p2pkm.DeepFeCA(4, **SMALL)
    ring = (p2pkm.DeepGossip(4, **SMALL), topologies.ring(3))
    told = []
    table = p2pkm.deep_table(
        {"FeCA": method, "ring": ring}, "shapes:points=20,side=8", devices=3, rounds=2, seeds=[5], tell=told.append
    )
    assert table.names == [*CONTROLS[:3], "pooled", "FeCA", "ring", "none", "central"] and tuple(told) == table.rows
    by_name = {row["name"]: row for row in table.rows}
    for name, row in by_name.items():
        assert 0 <= row["accuracy"] <= 1 and (row["bytes"] is None) == (name not in ("FeCA", "ring", "none", "central"))
        assert (row["nmi"] is None) == (name in CONTROLS[:3])
        assert row["by_round"] is None or len(row["by_round"]["nmi"]) == 3
    assert by_name["ring"]["bytes_busiest"] < by_name["FeCA"]["bytes_busiest"]
    # T = 0 is the untrained body
    still = p2pkm.deep_table({"FeCA": method}, "shapes:points=20,side=8", devices=3, rounds=0, seeds=[5], controls=())
    figures = ("accuracy", "accuracy_few")
    assert [still.rows[0][name] for name in figures] == [by_name["untrained body"][name] for name in figures]
    # images that are held out change nothing that is learned
    one = p2pkm.deep_table({"central": p2pkm.DeepFeCA(4, server="central", **SMALL)}, "shapes:points=20,side=8",
                           devices=1, rounds=2, seeds=[5], controls=("pooled",))  # fmt: skip
    pooled, central = one.rows
    assert {name: pooled[name] for name in (*figures, "by_round")} == {
        name: central[name] for name in (*figures, "by_round")
    }


@pytest.mark.slow
def test_images_of_a_file_are_learned_in_its_shape(tmp_path):
    pytest.importorskip("jax", reason="needs the extra deep")
    np.savez(tmp_path / "images.npz", images=np.random.default_rng(0).random((40, 8, 6)), labels=np.arange(40) % 2)
    asked = {"devices": 2, "rounds": 0, "seeds": 1, "controls": ["untrained body"]}
    assert p2pkm.deep_table({"FeCA": p2pkm.DeepFeCA(2, **SMALL)}, str(tmp_path / "images.npz"), **asked).names


def test_columns_stand_under_their_titles():
    figures = dict(zip(("accuracy", "accuracy_few", "nmi", "ari", "purity"), (0.9, 0.8, 0.7, 0.6, 0.5), strict=True))
    row = {"name": "alone", "seed": 0, **figures, "bytes": 4000, "bytes_busiest": 3000}
    assert str(DeepTable((row,))).splitlines()[1].split() == ["alone", *"0.900 0.800 0.700 0.600 0.500 4 3".split()]
