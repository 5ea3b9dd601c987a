from functools import partial

import numpy as np
import pytest

import p2pkm.metrics.cost_ratio
from p2pkm.core.cache import memoize_in_study, shared_cache
from p2pkm.core.digest import digest
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.studies.fingerprint import digest_program
from p2pkm.experiments.studies.run_study import run_cell, run_study
from p2pkm.network.local import LocalWorld


def test_what_has_the_same_key_is_made_once_while_runs_share():
    made = []

    def make():
        made.append(len(made))
        return made[-1]

    assert [memoize_in_study("a", lambda: 1, make), memoize_in_study("a", lambda: 1, make)] == [0, 1]
    with shared_cache():
        assert [
            memoize_in_study("a", lambda: 1, make),
            memoize_in_study("a", lambda: 1, make),
            memoize_in_study("b", lambda: 1, make),
        ] == [2, 2, 3]
        with shared_cache():
            assert memoize_in_study("a", lambda: 1, make) == 2
        assert memoize_in_study("a", lambda: 1, make) == 2
        assert [memoize_in_study("a", lambda: 2, make), memoize_in_study("a", lambda: 1, make)] == [4, 5]  # one is kept
        assert [memoize_in_study("c", partial(int, key), make, keep=2) for key in (1, 2, 1, 3, 1)] == [6, 7, 6, 8, 6]
    assert memoize_in_study("a", lambda: 1, make) == 9


def test_what_goes_wrong_is_not_kept_and_ends_the_sharing():
    def fail():
        raise ValueError

    with pytest.raises(ValueError), shared_cache():
        memoize_in_study("a", lambda: 1, fail)
    assert memoize_in_study("a", lambda: 1, lambda: "made") == "made"


def test_a_digest_tells_kinds_and_shapes_apart():
    numbers = np.arange(6.0)
    found = {digest(numbers), digest(numbers.reshape(2, 3)), digest(numbers.view(np.int64)), digest(numbers[:3]),
             digest(numbers[:3], numbers[3:])}  # fmt: skip
    assert len(found) == 5
    assert digest(numbers.reshape(2, 3).T) == digest(np.ascontiguousarray(numbers.reshape(2, 3).T))


@pytest.mark.slow
def test_runs_that_share_have_the_same_bits_as_single_ones():
    cells = [
        RunOptions(algorithm=name, graph=graph, devices=9, data="grid16:points=40", seed=seed, rounds=6, plot=False,
                   partition=partition)
        for name, graph in (("gtvmin", "ring"), ("gtvmin", "grid"), ("consensus", "ring"), ("fkm", None))
        for seed in (0, 1) for partition in ("iid", "dirichlet:alpha=0.1", "mufc")
    ]  # fmt: skip
    shared = run_study(cells, None, LocalWorld())
    for cell, row in zip(cells, shared, strict=True):
        alone = run_cell(cell, None)
        assert alone["error"] is None
        differing = {name for name in alone if alone[name] != row[name]}
        assert differing <= {"wall_seconds"}


def test_no_centroid_set_is_evaluated_twice_on_the_same_points(monkeypatch):
    counts, seen = [], set()
    known = p2pkm.metrics.cost_ratio.CostEvaluator._evaluate

    def watch(evaluator, sets, n_classes):
        kernels = evaluator._devices.kernels

        def evaluate_costs(points, weights, offsets, classes, n_classes, fresh):
            if n_classes == 0:
                counts.append(len(fresh))
                names = {one.tobytes() for one in fresh}
                assert not names & seen
                seen.update(names)
            return kernels.evaluate_costs(points, weights, offsets, classes, n_classes, fresh)

        class Watched:
            def __getattr__(self, name):
                return evaluate_costs if name == "evaluate_costs" else getattr(kernels, name)

        object.__setattr__(evaluator._devices, "kernels", Watched())
        try:
            return known(evaluator, sets, n_classes)
        finally:
            object.__setattr__(evaluator._devices, "kernels", kernels)

    monkeypatch.setattr(p2pkm.metrics.cost_ratio.CostEvaluator, "_evaluate", watch)
    cells = [RunOptions(algorithm=name, devices=6, data="grid16:points=8", rounds=4, plot=False)
             for name in ("gtvmin", "consensus", "admm")]  # fmt: skip
    rows = run_study(cells, None, LocalWorld())
    assert [row["error"] for row in rows] == [None] * 3
    assert counts.count(0) > 3  # records in which nothing was new


def test_another_program_is_another_key(monkeypatch, tmp_path):
    cell = RunOptions(devices=4, data="grid16:points=5", rounds=2, plot=False)
    key = run_cell(cell, None)["key"]
    assert run_cell(cell, None)["key"] == key
    monkeypatch.setattr("p2pkm.experiments.studies.fingerprint.digest_program", lambda: b"other code")
    assert run_cell(cell, None)["key"] != key


def test_the_digest_of_the_program_covers_its_source(monkeypatch, tmp_path):
    import p2pkm.experiments.studies.fingerprint

    (tmp_path / "p2pkm").mkdir()
    (tmp_path / "topologies").mkdir()
    monkeypatch.setattr(
        p2pkm.experiments.studies.fingerprint, "__file__", str(tmp_path / "p2pkm/experiments/studies/fingerprint.py")
    )
    found = []
    for text in ("a = 1", "a = 1", "a = 2"):
        (tmp_path / "topologies/one.py").write_text(text)
        digest_program.cache_clear()
        found.append(digest_program())
    digest_program.cache_clear()
    assert found[0] == found[1] != found[2]
