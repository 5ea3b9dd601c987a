"""Statistics of a benchmark: means, ranks and shares by hand, tests of SciPy, and the rate of false verdicts."""

import csv
import io
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from p2pkm.analysis.bench_advice import choose, list_classes
from p2pkm.analysis.bench_blocks import check_rows, list_main, name_unit, read_blocks
from p2pkm.analysis.bench_statistics import judge, list_steps, resample, summarize
from p2pkm.analysis.paired_tests import correct
from p2pkm.core.errors import DataError, ExperimentError
from tests.support.bench_rows import METHODS, draw_rows, row

DATA = [f"data{number}" for number in range(6)]


def series(entry, values, **more):
    """Build a row per task of a list of excesses."""
    return [row(name, entry, value, **more) for name, value in zip(DATA, values, strict=False)]


@pytest.fixture(scope="module")
def drawn():
    return draw_rows()


@pytest.fixture(scope="module")
def ranking(drawn):
    return summarize(drawn)


# --- values by hand


def test_means_ranks_shares_and_deciles():
    rows = series("a", [1e-4, 1e-6, -1e-9, 0.01, 0.01, 0.01]) + series("b", [0.1, None, 0.1, 0.001, 0.001, 0.1])
    a, b = summarize(rows).entries
    assert a.excess == pytest.approx((1e-4**3 * 0.01**3) ** (1 / 6))
    assert b.excess == pytest.approx((0.1**3 * 0.001**2 * 1.0) ** (1 / 6))
    assert (a.rank, b.rank) == pytest.approx((8 / 6, 10 / 6))
    assert (a.worst_decile, b.worst_decile) == (0.01, None)
    assert (a.rejected, b.rejected, b.no_result, b.runs) == pytest.approx((0, 1 / 6, 1 / 6, 5))
    assert (a.close, b.close) == pytest.approx((1, 2 / 6))
    assert (a.bytes_over_raw, b.busiest_over_raw) == pytest.approx((1.0, 0.1))


def test_equal_values_at_the_floor_share_a_rank():
    ranking = summarize(series("a", [1e-9] * 6) + series("b", [5e-5] * 6) + series("c", [None] * 6))
    assert [entry.rank for entry in ranking.entries] == [1.5, 1.5, 3.0]


def test_runs_that_fail_time_out_or_have_no_row_are_counted_apart():
    rows = series("a", [0.1] * 6) + series("b", [0.1] * 3)
    rows += [row("data3", "b", None, status="failed"), row("data4", "b", None, status="timeout")]
    b = next(entry for entry in summarize(rows).entries if entry.entry == "b")
    assert (b.rejected, b.failed, b.missing, b.runs) == pytest.approx((0, 2 / 6, 1 / 6, 3))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), None])
def test_a_run_that_ended_without_a_finite_cost_has_failed(value):
    rows = [*series("a", [0.1] * 6), row("data0", "b", 0.1), row("data1", "b", value, status="done")]
    assert summarize(rows).find("b").failed == pytest.approx(1 / 6)


def test_tasks_count_equally_with_any_number_of_seeds_graphs_and_partitions():
    rows = [row("x-iid", "a", 0.1, seed=seed, graph=graph) for seed in range(7) for graph in ("ring", "star")]
    rows += [row("y-iid", "a", 0.01), row("z-iid", "a", 0.001), row("z-skew", "a", 0.00001 * 10)]
    weights = read_blocks(check_rows(rows), ()).weights
    assert weights.tolist() == pytest.approx([float(Fraction(1, 42))] * 14 + [1 / 3, 1 / 6, 1 / 6])
    assert summarize(rows).entries[0].excess == pytest.approx((0.1 * 0.01 * 10**-3.5) ** (1 / 3))


def test_a_method_with_a_server_counts_in_the_block_of_every_graph():
    rows = [row("t", "peer", 0.1, graph=graph, seed=seed) for graph in ("ring", "star") for seed in (0, 1)]
    rows += [row("t", "served", 0.2 + seed, graph="server", seed=seed, trust="server") for seed in (0, 1)]
    blocks = read_blocks(check_rows(rows), ())
    served = blocks.values["excess"][blocks.entries.index("served")]
    assert blocks.keys == [("t", "ring", 0), ("t", "star", 0), ("t", "ring", 1), ("t", "star", 1)]
    assert served.tolist() == [0.2, 0.2, 1.2, 1.2]
    assert summarize([item for item in rows if item["graph"] == "server"]).blocks == 2


def test_partitions_of_the_same_data_are_one_unit():
    assert (
        name_unit(row("breast-cancer-skew", "a", 0.1)) == "breast-cancer" and name_unit(row("wine", "a", 1)) == "wine"
    )
    assert name_unit(row("x-skew", "a", 0.1, points="digits k=50 scale=standard seed=3")) == "digits scale=standard"
    few = [row(f"data{i}-{part}", name, 0.1, seed=seed)
           for i in range(4) for part in ("iid", "skew") for name in "ab" for seed in range(6)]  # fmt: skip
    ranking = summarize(few)
    assert (ranking.unit, ranking.units, ranking.tasks) == ("seed", 6, 8)


def test_main_entries_have_our_defaults_and_integers():
    variants = [("m (paper)", "paper", "integer"), ("m (real numbers)", "ours", "real"), ("m", "ours", "integer"),
                ("n", "ours", "real"), ("n (paper)", "paper", "real")]  # fmt: skip
    rows = [item for name, defaults, encoding in variants
            for item in series(name, [0.1] * 6, defaults=defaults, encoding=encoding)]  # fmt: skip
    rows += series("local", [9.0] * 6, trust="baseline")
    assert list_main(read_blocks(check_rows(rows), ())) == ["m", "n"]
    ranking = summarize(rows)
    assert [entry.place for entry in ranking.entries] == [1, 2, None, None, None, None]
    assert ranking.find("n (paper)").reference == "n" and ranking.find("local").verdict == "baseline"


def test_an_entry_that_returns_its_start_is_last_and_flagged():
    lazy = [item | {"start_excess": item["excess"]} for item in series("lazy", [0.001] * 6)]
    almost = [item | {"start_excess": item["excess"] * (1 + (i == 5))} for i, item in enumerate(series("b", [0.2] * 6))]
    ranking = summarize(lazy + almost + series("c", [0.5] * 6))
    assert [(entry.entry, entry.is_start) for entry in ranking.entries] == [("b", False), ("c", False), ("lazy", True)]
    assert "lazy" in ranking.conclusion() and "returns its start" in ranking.text()


# --- verdicts


def test_the_test_is_that_of_scipy_on_means_over_tasks(ranking, drawn):
    blocks = read_blocks(check_rows(drawn), ())
    logs = np.log(blocks.excess)
    units = [logs[:, blocks.units == unit].mean(axis=1) for unit in range(6)]
    best = blocks.entries.index(ranking.entries[0].entry)
    names = [entry.entry for entry in ranking.main[1:]]
    p = [stats.ttest_rel([unit[blocks.entries.index(name)] for unit in units], [unit[best] for unit in units]).pvalue
         for name in names]  # fmt: skip
    assert [ranking.find(name).p for name in names] == pytest.approx(list(correct(p, list_steps(len(names) + 1))[0]))


def test_steps_are_the_pairs_of_the_entries_that_are_left():
    assert list_steps(4) == [6, 3, 1] and list_steps(2) == [1] and list_steps(1) == []
    p, level = correct([0.001, 0.02, 0.5], list_steps(4))
    assert p.tolist() == pytest.approx([0.006, 0.06, 0.5]) and level.tolist() == pytest.approx([
        0.05 / 6,
        0.05 / 3,
        0.05 / 3,
    ])
    assert correct([0.001, 0.02])[0].tolist() == correct([0.001, 0.02], [2, 1])[0].tolist()


def test_four_verdicts():
    factors = np.array([1.0, 1.1, 0.9, 1.05, 0.95, 1.0])
    rows = series("a", 0.001 * factors) + series("near", 0.0012 * factors[::-1]) + series("far", 0.5 * factors)
    rows += series("wild", [0.001, 0.001, 0.001, 0.001, 0.001, 3.0])
    rows += series("far (paper)", 0.05 * factors, defaults="paper")
    ranking = summarize(rows)
    verdicts = {entry.entry: entry.verdict for entry in ranking.entries}
    assert verdicts == {"a": "best", "near": "equivalent", "far": "worse", "wild": "undecided", "far (paper)": "better"}
    assert summarize(rows, margin=0.0).find("near").verdict != "equivalent"
    assert ranking.find("far").factor == pytest.approx(500)


def test_fewer_than_five_units_give_no_verdict():
    ranking = summarize([row(name, entry, value) for name in DATA[:4] for entry, value in (("a", 1e-4), ("b", 1.0))])
    assert ranking.find("b").verdict == "undecided" and ranking.find("b").p is None and "No verdicts" in ranking.text()


def test_rank_tests_only_from_eight_units():
    def draw_test(count):
        logs = np.zeros((2, count))
        logs[1] = [0.01] * (count - 1) + [10.0]
        (verdict,) = judge(logs, logs, [(1, 0)], 0.0)
        return verdict.test

    assert [draw_test(count) for count in (5, 7, 8, 12)] == ["t", "t", "rank", "rank"]


def exchange(logs, log_costs, generator, steps):
    """Exchange the labels of all entries within each unit, and return whether there is a false verdict."""
    order = np.argsort(generator.random(logs.T.shape), axis=1).T
    shuffled, costs = (np.take_along_axis(values, order, axis=0) for values in (logs, log_costs))
    best = int(shuffled.mean(axis=1).argmin())
    pairs = [(entry, best) for entry in range(len(logs)) if entry != best]
    return any(item.verdict in ("worse", "better") for item in judge(shuffled, costs, pairs, 0.005, steps))


@pytest.mark.slow
def test_false_verdicts_in_at_most_6_percent_of_exchanged_labels():
    many = {f"{name}{copy}": facts for name, facts in METHODS.items() for copy in "ab"}
    blocks = read_blocks(check_rows(draw_rows(many, [f"data{i}" for i in range(12)])), ())
    main = [blocks.entries.index(name) for name in list_main(blocks)]
    averages = (blocks.units[:, None] == np.arange(12)) / np.bincount(blocks.units)
    logs, costs = ((values @ averages)[main] for values in (np.log(blocks.excess), blocks.log_costs))
    generator = np.random.default_rng(7)
    rate = np.mean([exchange(logs, costs, generator, list_steps(len(main))) for _ in range(2000)])
    assert rate <= 0.06
    # Holm's method for the comparisons alone ignores that the data choose the best entry.
    assert np.mean([exchange(logs, costs, generator, None) for _ in range(200)]) > 0.1


# --- intervals


def test_intervals_contain_the_mean_and_are_those_of_seeds_if_there_is_one_task(ranking):
    assert all(entry.low <= entry.excess <= entry.high for entry in ranking.entries)
    values = np.exp(np.random.default_rng(0).normal(size=20))
    rows = [row("only", "a", value, seed=seed) for seed, value in enumerate(values)]
    (entry,) = summarize(rows).entries
    logs = np.log(np.maximum(values, 1e-4))
    expected = stats.bootstrap((logs,), np.mean, n_resamples=9_999, method="percentile", rng=np.random.default_rng(1))
    assert np.log([entry.low, entry.high]) == pytest.approx(list(expected.confidence_interval), abs=0.04)


def test_the_variance_of_the_bootstrap_is_that_of_tasks_and_seeds():
    draw = np.random.default_rng(3)
    values = draw.normal(size=(6, 1)) + draw.normal(size=(6, 5))
    rows = [row(name, "a", 1.0, seed=seed) for name in DATA for seed in range(5)]
    blocks = read_blocks(check_rows(rows), ())
    samples = resample(blocks, values.reshape(1, -1), 20_000)[0]
    expected = values.mean(axis=1).var() / 6 + values.var(axis=1).mean() / 5 / 6
    assert samples.var() == pytest.approx(expected, rel=0.05) and samples.mean() == pytest.approx(
        values.mean(), abs=0.02
    )


def test_factors_are_paired_and_equal_entries_have_an_interval_without_width():
    noise = np.exp(np.random.default_rng(0).normal(size=6))
    ranking = summarize(series("a", 0.001 * noise) + series("b", 0.01 * noise))
    b = ranking.find("b")
    assert (b.factor, b.factor_low, b.factor_high) == pytest.approx((10, 10, 10))


def test_the_order_of_rows_changes_nothing(drawn, ranking):
    shuffled = [drawn[i] for i in np.random.default_rng(0).permutation(len(drawn))]
    assert summarize(shuffled).entries == ranking.entries


# --- output


def test_csv_latex_and_text_have_every_entry(ranking, tmp_path):
    path = tmp_path / "ranking.csv"
    table = list(csv.DictReader(io.StringIO(ranking.to_csv(path))))
    assert path.read_text() == ranking.to_csv() and len(table) == len(ranking.entries)
    assert [float(line["excess"]) for line in table] == [entry.excess for entry in ranking.entries]
    for text in (ranking.text(), ranking.to_latex(caption="Ranking", label="tab:bench")):
        assert all(entry.entry in text for entry in ranking.entries)
    assert r"\caption{Ranking}" in ranking.to_latex(caption="Ranking") and "tied" not in ranking.text()
    assert ranking.to_latex().count("\\\\") == len(ranking.entries) + 1


def test_a_frame_has_the_entries_with_the_columns_of_the_csv(ranking):
    frame = ranking.to_frame()
    read = pd.read_csv(io.StringIO(ranking.to_csv()), float_precision="round_trip")
    assert list(frame.columns) == list(read.columns) and "excess" in frame
    assert frame["entry"].tolist() == [entry.entry for entry in ranking.entries]
    assert frame.set_index("entry").loc[ranking.main[0].entry, "place"] == 1
    assert frame["excess"].tolist() == read["excess"].tolist()


def test_advice_follows_its_rule(drawn, ranking):
    titles = list_classes(drawn)
    assert list(titles) == ["Skewed devices", "Devices with equal distributions", "Outliers"]
    assert titles["Outliers"] == ["outliers-iid", "outliers-skew"]
    advice = {item.situation: item for item in ranking.advice()}
    assert advice["No server"].entry == "treelloyd" and "with a server: " in advice["Skewed devices"].sentence
    assert advice["Differential privacy"].entry is None
    equal = [item for name, size in (("a", 9.0), ("b", 1.0), ("c", 5.0)) for item in
             series(name, [0.001 * (1 + (name != "a") / 1000)] * 6, bytes_over_raw=size)]  # fmt: skip
    entry, qualified = choose(equal, 0.005)
    assert entry.entry == "b" and qualified.main[0].entry == "a"
    assert choose(series("a", [None] * 6), 0.005) == (None, None)


def test_the_share_of_runs_in_the_advice_is_that_of_the_table():
    rows = [row("x-iid", "a", None if seed else 0.1, seed=seed) for seed in range(4)]
    rows += [row("y-iid", "a", 0.1), row("y-skew", "a", None), row("z-iid", "a", 0.1)]
    ranking = summarize([dict(item, trust="private") for item in rows])
    share = 100 * (1 - ranking.find("a").no_result)
    assert share == pytest.approx(100 * (1 / 4 + 1 / 2 + 1) / 3)
    assert f"a has most results, in {share:.2g} % of its runs" in ranking.advice()[0].sentence


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        ([], DataError, "no rows"),
        ([{"task": "t"}], ExperimentError, "lack the columns entry"),
        ([row("t", "a", 1, status="lost")], ExperimentError, "status of a is 'lost'"),
        ([row("t", "a", 1), row("t", "a", 1)], ExperimentError, "2 times"),
        ("rows", ExperimentError, "str"),
    ],
)
def test_wrong_rows_are_rejected(rows, error, words):
    with pytest.raises(error, match=words):
        summarize(rows)


@pytest.mark.parametrize("margin", [-0.1, 1.0, "0.1", None])
def test_wrong_margins_are_rejected(margin):
    with pytest.raises(ExperimentError, match="margin"):
        summarize(series("a", [0.1]), margin=margin)
