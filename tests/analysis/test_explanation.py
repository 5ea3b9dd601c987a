"""Graph measures and outcomes of a study: what is compared, what is left out, and that chance finds nothing."""

import csv
import io

import numpy as np
import pytest

import p2pkm
from p2pkm.analysis.explanation import COLUMNS, FILE, OUTCOMES
from p2pkm.analysis.graph_measures import MEASURES

NAMES = ("spectral_gap", "diameter", "degree_mean")


def study(graphs=9, seeds=1, methods=("gossip",), devices=(16,), seed=0, **outcomes):
    """Return a study in which an outcome is a function of the measures, of a generator and of the devices."""
    rng = np.random.default_rng(seed)
    measures = [dict(zip(NAMES, rng.uniform(0.1, 5.0, len(NAMES)), strict=True)) for _ in range(graphs)]
    empty = dict.fromkeys((*MEASURES, *OUTCOMES))
    return [
        {"algorithm": method, "graph": f"g{i}", "seed": number, "error": None, "devices": n} | empty | measures[i]
        | {name: make(measures[i], rng, n) for name, make in outcomes.items()}
        for method in methods for n in devices for i in range(graphs) for number in range(seeds)
    ]  # fmt: skip


def power(measures, rng, n):
    return 3.0 * measures["diameter"] ** 2


def noise(measures, rng, n):
    return rng.uniform(1.0, 9.0)


def excess(measures, rng, n):
    return 1.0 + 0.1 / measures["spectral_gap"]


def test_a_monotone_outcome_is_found_and_nothing_else():
    result = p2pkm.Study(study(12, ratio_mean=excess, wire_bytes=noise)).explain()
    strong = [row for row in result.correlations if row["significant"]]
    assert [(row["outcome"], row["measure"], row["correlation"]) for row in strong] == [("excess", "spectral_gap", -1)]
    assert strong[0]["low"] == strong[0]["high"] == -1 and strong[0]["p"] == pytest.approx(6e-5)
    assert len(result.correlations) == 6 and result.graphs == 12
    first, second, pair, _ = result.predictors
    assert first["measures"] == ["spectral_gap"] and first["explained"] == pytest.approx(1.0)
    assert first["repeated"] == 1.0
    assert "spectral_gap" in pair["measures"] and second["explained"] < 0.3
    assert "1 of 6 rank correlations are significant, the strongest between spectral_gap and excess of" in str(result)
    assert "not measured: excess of the worst device; plain bytes of the busiest device; rounds; simulated time" in str(
        result
    )


def test_more_runs_on_the_same_graphs_change_nothing():
    single = p2pkm.Study(study(10, rounds=power, ratio_mean=excess)).explain()
    many = p2pkm.Study(study(10, seeds=6, rounds=power, ratio_mean=excess)).explain()
    assert many.correlations == single.correlations and many.predictors == single.predictors
    assert {row["graphs"] for row in many.correlations} == {10}


def test_a_row_of_noise_stays_with_its_graph():
    """Runs on one graph are never on both sides: were they, noise of the graph would predict itself."""
    rng = np.random.default_rng(3)
    levels = rng.uniform(1.0, 9.0, 12)
    rows = study(12, seeds=8)
    for row in rows:
        row["rounds"] = levels[int(row["graph"][1:])]
    result = p2pkm.Study(rows).explain()
    assert all(row["explained"] < 0.3 for row in result.predictors)


def test_draws_of_a_random_graph_are_one_graph():
    rows = study(9, seeds=2, rounds=power)
    for row in rows[::2]:
        row |= {name: 2 * row[name] for name in NAMES}
    result = p2pkm.Study(rows).explain()
    assert {row["graphs"] for row in result.correlations} == {9}


def test_graphs_are_compared_with_graphs_of_their_size():
    def grown(measures, rng, n):
        return measures["diameter"] * n**3

    result = p2pkm.Study(study(8, devices=(16, 64), rounds=grown)).explain()
    assert {row["devices"] for row in result.correlations} == {16, 64}
    assert all(row["correlation"] == 1 for row in result.correlations if row["measure"] == "diameter")


def test_few_graphs_of_many_sizes_are_compared_together():
    rows = [row | {"devices": 10 + number} for number, row in enumerate(study(9, rounds=power))]
    result = p2pkm.Study(rows).explain()
    assert {row["devices"] for row in result.correlations} == {None}
    assert {row["measure"] for row in result.correlations} == {*NAMES, "devices"}
    mixed = p2pkm.Study([*study(9, rounds=power), *study(3, devices=(20,), rounds=power)]).explain()
    assert {row["devices"] for row in mixed.correlations} == {16}
    assert "fewer than 8 graphs: gossip at 20 devices" in mixed.notes


def test_options_that_follow_from_the_devices_do_not_split_a_method():
    rows = [
        {"algorithm": None, "graph": None, "data": f"blobs:points={row['devices']}", "coupling": coupling, **row}
        for row in study(8, devices=(16, 64), rounds=power) for coupling in (1, 2)
    ]  # fmt: skip
    result = p2pkm.Study(rows).explain()
    assert {row["method"] for row in result.correlations} == {"gossip, coupling 1", "gossip, coupling 2"}


@pytest.mark.parametrize(("graphs", "words"), [(1, "1 graph;"), (7, "7 graphs;")])
def test_too_few_graphs_give_a_sentence_and_no_numbers(graphs, words, tmp_path):
    result = p2pkm.Study(study(graphs, seeds=9, rounds=power)).explain()
    assert result.correlations == result.predictors == []
    assert words in str(result) and "expected at least 8" in str(result) and "+1.00" not in str(result)
    result.write(tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_left_out_is_counted_and_named():
    rows = study(9, methods=("gossip", "flat"), rounds=power, wire_bytes=power, ratio_mean=excess)
    for row in rows:
        row |= {"clustering": 0.5, "links": 8 * row["degree_mean"]}
        row["effective_neighbors"] = None if row["graph"] == "g5" else 0.1
    for row in rows[9:]:
        row |= {"rounds": 20, "ratio_mean": 1.0}
    rows[0]["wire_bytes"] = float("nan")
    rows[1]["ratio_mean"] = rows[2]["ratio_mean"] = None
    server = rows[0] | dict.fromkeys(MEASURES) | {"algorithm": "fkm", "graph": "server"}
    failed = [row | {"error": "DataError: broken", "seed": 1, "rounds": None} for row in rows[:3]]
    result = p2pkm.Study([*rows, server, *failed]).explain()
    assert result.notes[:2] == [
        "3 runs failed and are left out", "1 run is left out: no graph, or one that is not measured",
    ]  # fmt: skip
    for note in (
        "runs without a value: 2 of 9 for excess of gossip at 16 devices; 1 of 9 for encoded bytes of gossip at 16 "
        "devices",
        "known on fewer than 8 graphs: excess of gossip at 16 devices",
        "constant over the graphs: excess of flat at 16 devices; rounds of flat at 16 devices",
        "measures that are constant: clustering at 16 devices",
        "measures that order the graphs as another one: links (degree_mean) at 16 devices",
    ):
        assert note in result.notes
    assert any(note.startswith("measures that are not known on all graphs") and "effective_neighbors" in note
               for note in result.notes)  # fmt: skip
    counts = {(row["method"], row["outcome"]): row["graphs"] for row in result.correlations}
    assert counts == {("gossip", "rounds"): 9, ("gossip", "encoded bytes"): 8, ("flat", "encoded bytes"): 9}


def test_excess_below_a_hundredth_of_a_percent_is_equal():
    def tiny(measures, rng, n):
        return 1.0 + 1e-5 * measures["diameter"]

    result = p2pkm.Study(study(9, ratio_mean=tiny, rounds=power)).explain()
    assert "constant over the graphs: excess of gossip at 16 devices" in result.notes


def test_a_study_without_anything_that_varies_says_so():
    result = p2pkm.Study(study(9, rounds=lambda measures, rng, n: 5)).explain()
    assert "no outcome and measure vary" in str(result) and not result.correlations


def test_the_file_holds_every_value(tmp_path):
    result = p2pkm.Study(study(9, rounds=power)).explain()
    result.write(tmp_path)
    lines = list(csv.DictReader(io.StringIO((tmp_path / FILE).read_text())))
    assert tuple(lines[0]) == COLUMNS and len(lines) == len(result.correlations) + len(result.predictors)
    exact = next(line for line in lines if line["measures"] == "diameter")
    assert (exact["value"], exact["low"], exact["significant"], exact["outcome"]) == ("1", "1", "True", "rounds")
    last = lines[-1]
    assert last["statistic"] == "explained variance" and " + " in last["measures"] and last["p"] == ""
    assert len(result.to_frame()) == len(result.correlations)


@pytest.mark.slow
@pytest.mark.parametrize(("graphs", "draws"), [(8, 200), (16, 100)])
def test_noise_is_found_in_at_most_six_percent_of_the_studies(graphs, draws):
    wrong = 0
    for seed in range(draws):
        rows = study(graphs, seeds=2, methods=("a", "b"), seed=seed, rounds=noise, wire_bytes=noise)
        wrong += any(row["significant"] for row in p2pkm.Study(rows).explain().correlations)
    assert wrong <= 0.06 * draws
