"""Verdicts on configurations: three kinds, with one test behind interval and word, and the same in every output."""

import csv
import io
import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import p2pkm
from p2pkm.analysis import conclusion, paired_tests
from p2pkm.analysis.conclusion import conclude, format_percent, format_verdict
from p2pkm.analysis.paired_tests import (
    EQUIVALENT,
    LEVEL,
    UNDECIDED,
    Verdicts,
    choose_scale,
    correct,
    estimate_mean,
    is_unique_best,
    rank,
)
from p2pkm.analysis.study_table import Study, load_study
from p2pkm.core.errors import ExperimentError
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.studies.compare import compare_rows
from p2pkm.experiments.studies.compare import tabulate as tabulate_comparison
from p2pkm.experiments.studies.study_file import StudyFile
from p2pkm.experiments.studies.sweep import tabulate as tabulate_sweep
from p2pkm.viz import plot_differences
from p2pkm.viz.report.write import write_report
from tests.support.each import each
from tests.support.sampling import thin

TRACKING = (1.000, 2.159, 1.000, 1.736, 2.053)  # printed with five seeds beside 1.0000
NOISY = (1.0, 1.1, 1.2, 1.05, 1.15)
FAR = tuple(value + 0.5 + 0.01 * i for i, value in enumerate(NOISY))


def runs(values, figure="ratio_mean", **more):
    return {seed: {"seed": seed, figure: value, **more} for seed, value in enumerate(values) if value is not None}


def groups(figure="ratio_mean", **costs):
    return {name: runs(values, figure) for name, values in costs.items()}


def verdicts_of(table, figure="ratio_mean", **more):
    return {one.name: one.verdict for one in rank(groups(figure, **table), figure, **more)[1:]}


# --- the tests


@given(st.lists(st.tuples(st.floats(0.9, 2), st.floats(0.9, 2)), min_size=5, max_size=7))
def test_below_8_seeds_it_is_the_t_test_of_scipy_on_logs(pairs):
    one, other = np.log(pairs).T
    found = Verdicts(groups(a=np.exp(one), b=np.exp(other), c=[0.5] * len(pairs)), "ratio_mean")
    if np.ptp(one - other) < 1e-6:
        return
    assert found.scale == "ratio"
    gap, expected = found.pair("a", "b"), stats.ttest_rel(one, other)
    level = found._level[found.names.index("a"), found.names.index("b")]
    interval = expected.confidence_interval(1.0 - level)
    assert (gap.low, gap.high) == pytest.approx((np.exp(interval.low), np.exp(interval.high)), rel=1e-6)
    assert gap.effect == pytest.approx(np.exp(np.mean(one - other)))
    near = stats.ttest_rel(one, other).confidence_interval(0.9)
    assert (gap.near_low, gap.near_high) == pytest.approx((np.exp(near.low), np.exp(near.high)))


@given(st.lists(st.floats(-5, 5), min_size=8, max_size=20, unique=True))
def test_where_one_seed_dominates_it_is_the_signed_rank_test_of_scipy(gaps):
    gaps = np.array(gaps)
    magnitudes = np.abs(gaps)
    if len(np.unique(magnitudes)) < len(gaps) or magnitudes.min() == 0.0:
        return  # ties, for which scipy has another distribution
    assert paired_tests.signed_rank(gaps) == pytest.approx(stats.wilcoxon(gaps, method="exact").pvalue)


def test_a_seed_that_dominates_hides_a_difference_from_the_t_test_and_not_from_the_rank_test():
    """All of ten seeds are worse, one by a thousand times as much: t is about 1, all signs agree."""
    best = [1.001] * 10
    other = [1.03 + 0.001 * seed for seed in range(9)] + [40.0]
    found = Verdicts(groups(a=best, b=other), "bytes_of_nothing"), Verdicts(groups(a=best, b=other), "ratio_mean")
    assert found[0].names == []
    spread = np.array(other) - np.array(best)
    assert stats.ttest_1samp(spread, 0.0).pvalue > 0.3
    by_difference = Verdicts(groups("ari", a=best, b=other), "ari").pair("b", "a")
    assert by_difference.test == "rank" and by_difference.p == pytest.approx(2 / 2**10) and by_difference.low > 0
    assert Verdicts(groups("ari", a=best[:7], b=other[3:]), "ari").pair("b", "a").test == "t"


@given(st.integers(8, 14), st.integers(0, 10**6), st.sampled_from([0.05, 0.02, 0.005]))
def test_the_interval_of_a_rank_test_excludes_0_exactly_where_the_test_rejects_it(n, seed, level):
    gaps = np.round(np.random.default_rng(seed).normal(0.4, 1.0, n), 1)  # with ties and zeros
    _, low, high = paired_tests.walsh_interval(gaps, level)
    assert (low > 0.0 or high < 0.0) == (paired_tests.signed_rank(gaps) <= level)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_p_values_and_levels_of_holm_agree(values):
    found, level = correct(values)
    expected = [min(1.0, p) for p in stats_holm(values)]
    assert found == pytest.approx(expected)
    rejected = found <= LEVEL
    assert (np.array(values)[~rejected] > level[~rejected]).all()
    assert (np.array(values)[rejected] <= level[rejected] * (1 + 1e-12)).all()


def stats_holm(values):
    """Return Holm's corrected p-values, from their definition."""
    order = np.argsort(values, kind="stable")
    found = [0.0] * len(values)
    for place, index in enumerate(order):
        found[index] = max(values[other] * (len(values) - turn) for turn, other in enumerate(order[: place + 1]))
    return found


def test_p_values_are_corrected_step_by_step():
    assert correct([0.01, 0.04, 0.03])[0].tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert correct([0.01, 0.04, 0.03])[1].tolist() == pytest.approx([LEVEL / 3, LEVEL / 2, LEVEL / 2])
    assert correct([0.9, 0.8])[0].tolist() == [1.0, 1.0] and correct([])[0].tolist() == []


@pytest.mark.parametrize("figure", thin(["ratio_mean", "bytes", "ari"], 3))
def test_interval_and_verdict_never_contradict_each_other(figure):
    rng = np.random.default_rng(3)
    for trial in range(16):
        size, seeds = rng.integers(2, 7), rng.integers(5, 12)
        values = 1.0 + 0.02 * np.exp(rng.normal(size=(size, seeds)) + 0.8 * rng.normal(size=(size, 1)) * (trial % 2))
        found = Verdicts({str(i): runs(row, figure) for i, row in enumerate(values)}, figure, margin=0.0)
        equal = 0.0 if found.scale == "difference" else 1.0
        for one, other in product(found.names, found.names):
            if one == other:
                continue
            gap, back = found.pair(one, other), found.pair(other, one)
            outside = (gap.low or 0.0) > equal or (np.inf if gap.high is None else gap.high) < equal
            assert outside == (gap.verdict != UNDECIDED) == (gap.p <= LEVEL)
            assert {gap.verdict, back.verdict} in ({UNDECIDED}, {"better", "worse"})
            above = gap.effect > equal
            assert gap.verdict == UNDECIDED or (gap.verdict == "worse") == (above != (figure == "ari"))


# --- three verdicts


def test_what_is_59_percent_worse_in_the_mean_is_not_called_equal():
    for other in ([1.0] * 5, [1.00001, 1.0, 1.00002, 0.99999, 1.0]):
        text = conclude(groups(tracking=TRACKING, gtvmin=other))
        assert "Not distinguished from it: tracking (" in text and "tied" not in text and "quivalent to it" not in text
        gap = rank(groups(tracking=TRACKING, gtvmin=other), "ratio_mean")[1].gap
        factor = np.exp(np.mean(np.log(TRACKING) - np.log(other)))
        assert gap.verdict == UNDECIDED and gap.effect == pytest.approx(factor) and 6 <= gap.needed <= 20


def test_the_three_verdicts():
    table = {"a": NOISY, "worse": FAR, "alike": [value + 0.001 for value in NOISY],
             "noisy": [value + (-1) ** seed * 0.05 for seed, value in enumerate(NOISY)]}  # fmt: skip
    assert verdicts_of(table) == {"worse": "worse", "alike": EQUIVALENT, "noisy": UNDECIDED}
    scores = {"a": (0.9, 0.8, 0.85, 0.9, 0.87), "b": (0.5, 0.41, 0.44, 0.5, 0.46)}
    assert verdicts_of(scores, "ari") == {"b": "worse"}
    found = Verdicts(groups("ari", **scores), "ari")
    assert found.pair("a", "b").verdict == "better" and found.scale == "difference"
    assert Verdicts(groups("depth", a=[1] * 5, b=[2] * 5), "depth").pair("b", "a").verdict == "higher"


def test_equal_values_are_equivalent_and_equal_differences_are_certain():
    assert verdicts_of({"a": [1.1] * 5, "b": [1.1] * 5}) == {"b": EQUIVALENT}
    assert verdicts_of({"a": [1.1] * 5, "b": [1.2] * 5}) == {"b": "worse"}
    assert verdicts_of({"a": [0.0] * 5, "b": [0.0] * 5}, "gtv") == {"b": EQUIVALENT}


@pytest.mark.parametrize("seeds", [1, 2, 3, 4])
def test_fewer_than_5_seeds_decide_nothing_however_large_the_difference(seeds):
    found = rank(groups(a=[1.0] * seeds, b=[3.0] * seeds), "ratio_mean")[1]
    assert found.verdict == UNDECIDED and found.gap.needed == 5 and found.gap.p is found.gap.low is None
    assert "requires a" in format_verdict(found.gap) and "5 seeds" in format_verdict(found.gap)
    assert verdicts_of({"a": [1.0] * seeds, "b": [1.0] * seeds}) == {"b": UNDECIDED}


def test_configurations_without_a_common_seed_are_not_distinguished():
    table = {"a": runs([1.0] * 5), "b": {seed + 5: {"ratio_mean": 2.0} for seed in range(5)}}
    (_, other) = rank(table, "ratio_mean")
    assert other.gap is None and other.verdict == UNDECIDED and not is_unique_best(rank(table, "ratio_mean"))
    assert "b (no common seed)" in conclude(table)


@pytest.mark.parametrize(("margin", "verdict"), [(0.005, EQUIVALENT), (0.0005, UNDECIDED), (0.0, UNDECIDED)])
def test_the_margin_of_equivalence_is_set(margin, verdict):
    near = [value * (1 + 0.001 * (-1) ** seed) for seed, value in enumerate(NOISY)]
    assert verdicts_of({"a": NOISY, "b": near}, margin=margin) == {"b": verdict}


@each("margin", [-0.1, 1.0, "0.5", None, True, np.nan])
def test_margins_out_of_range_are_refused(margin):
    with pytest.raises(ExperimentError, match=r"margin is .*0\.005 for 0\.5 %"):
        rank(groups(a=NOISY), "ratio_mean", margin=margin)


def test_a_configuration_that_differs_by_less_than_the_margin_is_equivalent_however_certain_that_is():
    gap = Verdicts(groups(a=NOISY, b=[value * 1.001 for value in NOISY]), "ratio_mean").pair("b", "a")
    assert gap.verdict == EQUIVALENT and gap.p < 1e-6
    assert verdicts_of({"a": NOISY, "b": [value * 1.001 for value in NOISY]}, margin=0.0) == {"b": "worse"}


def test_costs_are_compared_as_ratios_and_what_can_be_0_as_differences():
    assert choose_scale(np.array([[0.98, 1.2], [1.0, np.nan]]), "ratio_mean") == "ratio"
    assert choose_scale(np.array([[1.0, 1.2], [1.0, 1.1]]), "ari") == "difference"
    assert choose_scale(np.array([[0.0, 1.2], [1.0, 1.1]]), "bytes") == "difference"


EXCESSES = st.lists(st.tuples(st.floats(0, 1e-3), st.floats(-1e-5, 1e-3)), min_size=1, max_size=9)


@given(EXCESSES)
def test_close_to_central_k_means_the_difference_of_the_costs_is_told_and_no_quotient_of_excesses(excesses):
    """The smallest excesses have no relation to each other, but costs have: nothing is clipped."""
    one, other = 1.0 + np.array(excesses).T
    gap = Verdicts(groups(a=one, b=other), "ratio_mean").pair("b", "a")
    assert gap.effect == pytest.approx(np.exp(np.mean(np.log(other) - np.log(one))), rel=1e-9)
    text = conclude(groups(a=one, b=other))
    assert "excess" not in text and "times" not in text and " %" in text


def test_values_that_differ_by_rounding_errors_are_equal():
    other = [value * (1 + 1e-15 * (1 + seed)) for seed, value in enumerate(NOISY)]
    gap = Verdicts(groups(a=NOISY, b=other), "ratio_mean", margin=0.0).pair("b", "a")
    assert gap.verdict == UNDECIDED and gap.p == 1.0 and gap.effect == 1.0
    gap = Verdicts(groups("ari", a=NOISY, b=other), "ari", margin=0.0).pair("b", "a")
    assert gap.verdict == UNDECIDED and gap.effect == 0.0


@given(st.integers(0, 10**6), st.sampled_from([0.005, 0.05, 0.5]))
def test_the_interval_of_the_verdict_agrees_with_its_word_and_contains_its_effect(seed, margin):
    """Equivalent: within the margin, as printed. Better or worse: without equality. Not distinguished: neither."""
    rng = np.random.default_rng(seed)
    size, seeds = rng.integers(2, 5), rng.integers(5, 13)
    spread = margin * rng.choice([0.1, 1.0, 10.0], size=(size, 1))
    values = np.exp(spread * (rng.normal(size=(size, seeds)) + rng.normal(size=(size, 1))))
    values[0, 0] *= rng.choice([1.0, 4.0])  # one seed may dominate
    for figure in ("ratio_mean", "ari"):
        found = Verdicts({str(i): runs(row, figure) for i, row in enumerate(values)}, figure, margin)
        for one, other in product(found.names, found.names):
            if one == other:
                continue
            gap = found.pair(one, other)
            equal = 1.0 if gap.scale == "ratio" else 0.0
            low, high = (-np.inf if gap.interval[0] is None else gap.interval[0],
                         np.inf if gap.interval[1] is None else gap.interval[1])  # fmt: skip
            assert low <= gap.effect <= high
            if gap.verdict == EQUIVALENT:
                assert -gap.near_margin <= low - equal and high - equal <= gap.near_margin
            else:
                assert (gap.verdict == UNDECIDED) == (low <= equal <= high)


def test_an_equivalent_pair_is_told_by_its_mean_even_where_one_seed_dominates():
    """Nine seeds are equal, one is 1.5 % higher: the mean ratio is 0.15 % higher, the signed-rank estimate is 0."""
    other = [1.1] * 9 + [1.1 * 1.015]
    gap = Verdicts(groups(a=[1.1] * 10, b=other), "ratio_mean").pair("b", "a")
    assert gap.test == "rank" and gap.verdict == EQUIVALENT and gap.effect == pytest.approx(1.015**0.1)
    assert gap.interval[0] < gap.effect < gap.interval[1]


def test_a_configuration_that_is_better_in_the_test_and_worse_in_the_mean_is_told_so():
    best, other = [1.2] * 12, [1.0 + 0.001 * seed for seed in range(11)] + [4.5]
    table = groups(a=best, b=other)
    assert "Better than it in the test, though not in the mean: b (cost -16" in conclude(table)
    assert not is_unique_best(rank(table, "ratio_mean"))


def test_the_number_of_seeds_leads_to_a_verdict_about_as_often_as_it_says():
    """Draw what was observed again, with so many seeds: about 80 % of the draws are decided."""
    rng = np.random.default_rng(0)
    first = rng.normal(0.01, 0.03, 12)
    gap = Verdicts(groups("bytes", a=[1.5] * 12, b=1.5 * np.exp(first)), "bytes").pair("b", "a")
    assert gap.verdict == UNDECIDED and gap.needed > 12
    mean, sd, seeds, decided = first.mean(), first.std(ddof=1), gap.needed, 0
    for _ in range(300):
        other = 1.5 * np.exp(rng.normal(mean, sd, seeds))
        decided += UNDECIDED not in verdicts_of({"a": [1.5] * seeds, "b": other}, "bytes").values()
    assert 0.7 < decided / 300 < 0.9


# --- simulated draws


DRAWS = {
    "lognormal": lambda rng, shape: 1 + 0.01 * np.exp(rng.normal(size=shape)),
    "heavy tails": lambda rng, shape: 1 + 0.01 * np.exp((2 * rng.standard_t(2, size=shape)).clip(-8, 8)),
    "runs that fail": lambda rng, shape: 1 + 0.0005 * rng.random(shape) + (rng.random(shape) < 0.2) * rng.random(shape),
    "below central": lambda rng, shape: 1 + 0.02 * rng.normal(size=shape),
}


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(("size", "seeds"), thin([(2, 5), (2, 9), (8, 10)], 3))
@pytest.mark.sample(3)
def test_equal_configurations_are_called_different_in_at_most_5_percent(draw, size, seeds):
    """Exchanged labels, so every difference is chance; 300 draws: 0.085 is 2.8 standard errors above 0.05."""
    rng, false = np.random.default_rng(1), 0
    for _ in range(300):
        values = DRAWS[draw](rng, (size, seeds))
        found = rank({str(i): runs(row) for i, row in enumerate(values)}, "ratio_mean")
        false += any(one.verdict in ("better", "worse") for one in found[1:])
    assert false / 300 < 0.085


@pytest.mark.slow
def test_correcting_for_the_best_alone_would_not_do():
    """The best of ten equal configurations is chosen by the data: against the others alone 14 % are false."""
    rng, alone, every = np.random.default_rng(2), 0, 0
    for _ in range(300):
        values = np.exp(0.02 * rng.normal(size=(10, 10)))
        table = {str(i): runs(row) for i, row in enumerate(values)}
        found = Verdicts(table, "ratio_mean", margin=0.0)
        gaps = [found._scaled[i] - found._scaled[0] for i in range(1, 10)]
        alone += (correct([stats.ttest_1samp(gap, 0.0).pvalue for gap in gaps])[0] <= LEVEL).any()
        every += any(one.verdict != UNDECIDED for one in rank(table, "ratio_mean", margin=0.0)[1:])
    assert alone / 300 > 0.09 and every / 300 < 0.085


@pytest.mark.parametrize(("seeds", "factor", "least"), [(6, 3.0, 0.9), (10, 1.5, 0.55), (20, 1.5, 0.9)])
def test_differences_that_are_there_are_found(seeds, factor, least):
    rng, found = np.random.default_rng(4), 0
    for _ in range(100):
        base, one, other = np.exp(0.3 * rng.normal(size=(3, seeds)))
        table = groups(a=1 + 0.02 * base * one, b=1 + 0.02 * factor * base * other)
        found += rank(table, "ratio_mean")[1].verdict == "worse"
    assert found / 100 >= least


def test_alike_configurations_are_found_equivalent_and_far_ones_never():
    rng, alike, far = np.random.default_rng(5), 0, 0
    for _ in range(100):
        base, noise = 1 + 0.1 * rng.random(10), 0.003 * rng.normal(size=10)
        alike += EQUIVALENT in verdicts_of({"a": base, "b": base + noise}).values()
        far += EQUIVALENT in verdicts_of({"a": base, "b": base * (1.006 + noise)}).values()
    assert alike >= 90 and far <= 5


# --- the sentence


@each(
    ("costs", "words"),
    [
        ({"a": NOISY, "b": FAR, "c": [1 + value for value in FAR]},
         ["Over 5 seeds, a has the lowest mean cost relative to central k-means of 3 configurations, 1.1000. Worse "
          "than it: b (cost +47.4 %, interval +4", "; c (cost +139 %, interval", "Paired t-test on log ratios of 5 "
          "common seeds for 3 pairs of configurations, level 0.05 with Holm correction over these pairs"]),
        ({"a": (1.0,), "b": (2.0,)}, ["Over 1 seed, a has", "Not distinguished from it: b (cost +100 %, requires at "
                                      "least 5 seeds). No test was made: there is one seed, and a test requires at "
                                      "least 5."]),
        ({"a": (1.0, 1.1, 1.2), "b": (2.0, 2.1, 2.2)}, ["No test was made: there are 3 common seeds, and a test"]),
        ({"a": NOISY, "b": FAR[:3], "c": FAR}, ["of 5 common seeds for 1 pair of configurations, no test for 2 pairs "
                                                "with fewer than 5 common seeds, level 0.05."]),
        ({"a": (*NOISY, 1.1), "b": FAR, "c": (*FAR, 1.7)}, ["of 5 to 6 common seeds for 3 pairs"]),
        ({"a": NOISY}, ["Over 5 seeds, a has a mean cost relative to central k-means of 1.1000 (95 % interval 1.0061 "
                        "to 1.2027)."]),
        ({"a": (1.0,)}, ["Over 1 seed, a has a mean cost relative to central k-means of 1.0000."]),
        ({"a": (1.0, 1.2)}, ["of 1.1000 (95 % interval 0.3465 to 3.4918)."]),
        ({}, ["so no best one can be determined"]),
    ],
)  # fmt: skip
def test_the_sentences_to_quote(costs, words):
    text = conclude(groups(**costs))
    assert all(word in text for word in words), text
    assert "tied" not in text


def test_all_configurations_are_named():
    table = {f"c{number:02}": [value + 0.4 * (number % 3) for value in NOISY] for number in range(30)}
    text = conclude(groups(**table))
    assert all(name in text for name in table) and "more" not in text


def test_figures_that_have_no_log_are_told_as_differences():
    text = conclude(groups("ari", a=(0.9, 0.8, 0.85, 0.9, 0.87), b=(0.5, 0.41, 0.44, 0.5, 0.46)), "ari")
    assert "a has the highest mean ARI against true labels of 2 configurations, 0.864." in text
    assert "Worse than it: b (ARI against true labels -0.402, interval -0.4" in text
    assert "Paired t-test on differences of 5 common seeds for 1 pair of configurations, level 0.05." in text
    text = conclude(groups("bytes", a=(9000, 9100, 9050, 9000, 9080), b=(0, 0, 0, 0, 0)), "bytes")
    assert "a (kB plain +9.0, interval +9.0 to +9.1)" in text
    shares = {0.0: "+0 %", 4.2e-8: "+0.000 %", -4.2e-8: "-0.000 %", 1e-5: "+0.001 %", -0.00123: "-0.123 %",
              2.7131: "+271 %", 9.9951: "+1,000 %", 98765.4: "+9,880,000 %"}  # fmt: skip
    assert [format_percent(value) for value in shares] == list(shares.values())


def test_equal_values_are_identical():
    same = (1.2, 1.3, 1.1, 1.25, 1.31)
    assert "Equivalent to it within 0.5 %: b (cost identical)." in conclude(groups("ratio_mean", a=same, b=same))
    assert ": b (ARI against true labels identical)." in conclude(groups("ari", a=same, b=same), "ari")


def test_failed_runs_and_missing_metrics_are_told():
    failed = [row | {"error": "DataError: x", "ratio_mean": None} for row in rows() if row["algorithm"] == "far"]
    kept = [row for row in rows() if row["algorithm"] != "far" or row["seed"] > 1]
    study = Study(kept + failed[:2])
    assert study.conclusion().endswith("Failed runs are left out: 2 of 5 of far on ring.")
    assert "far on ring (cost +4" in study.conclusion() and ", 3 common seeds)" in study.conclusion()
    assert study.conclusion() == compare_rows(study.rows, "a")["conclusion"]
    missing = [row | {"ratio_mean": None} if row["algorithm"] == "far" else row for row in rows()]
    assert "Not compared, because some runs lack the metric: far on ring." in Study(missing).conclusion()


def test_means_without_spread_have_an_interval_without_width():
    assert estimate_mean([3.0, 3.0]) == (3.0, 3.0, 3.0) and estimate_mean([2.0]) == (2.0, 2.0, 2.0)


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=9), st.sampled_from(["ratio_mean", "bytes", "ari", None]))
def test_intervals_of_a_mean_contain_it_and_end_where_the_metric_does(values, figure):
    values = np.array(values) / (max(values) if figure == "ari" else 1.0)
    mean, low, high = estimate_mean(values, figure)
    assert low <= mean == pytest.approx(values.mean()) and mean <= high
    if figure in ("ratio_mean", "bytes"):
        assert low > 0.0
    elif figure == "ari":
        assert high <= 1.0
    elif np.ptp(values):
        assert (low, high) == pytest.approx(stats.ttest_1samp(values, 0.0).confidence_interval(0.95))
    assert estimate_mean([0.0, 0.0, 9.0], "bytes")[1] == 0.0 and estimate_mean([-0.1, 0.2], "ari")[1] < -1.0


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_of_the_mean_of_few_seeds_cover_it_as_often_as_they_say(seeds):
    """A percentile bootstrap would cover about 50, 73 and 82 %."""
    draws = np.exp(0.2 * np.random.default_rng(0).normal(size=(1_000, seeds)))
    covered = [low <= np.exp(0.02) <= high for _, low, high in (estimate_mean(draw, "ratio_mean") for draw in draws)]
    assert 0.925 <= np.mean(covered) <= 0.975


# --- the same in every output


TABLE = {"a": NOISY, "far": FAR, "alike": [value + 0.001 for value in NOISY],
         "noisy": [value + (-1) ** seed * 0.05 for seed, value in enumerate(NOISY)]}  # fmt: skip
EXPECTED = {"far on ring": "worse", "alike on ring": EQUIVALENT, "noisy on ring": UNDECIDED}


def rows(table=TABLE):
    more = {"error": None, "termination": "converged", "bytes": 100, "bytes_busiest": 10, "ari": None, "devices": 4}
    names = [*compared_keys(), "reached_central"]
    return [{"algorithm": name, "graph": "ring", "seed": seed, **dict.fromkeys(names), **more, "ratio_mean": value}
            for name, values in table.items() for seed, value in enumerate(values)]  # fmt: skip


def compared_keys():
    from p2pkm.metrics.registry import ShownIn, keys

    return dict.fromkeys([*keys(ShownIn.MEANS), *keys(ShownIn.PAIRED), *keys(ShownIn.COMPARISON), *keys(ShownIn.SWEEP)])


def test_every_output_has_the_same_verdicts(tmp_path):
    study = Study(rows())
    found = {one["configuration"]: one["verdict"] for one in study.verdicts()[1:]}
    assert found == EXPECTED
    compared = compare_rows(rows(), "a")
    assert {f"{one['algorithm']} on ring": one["ratio_mean"]["verdict"] for one in compared["differences"]} == EXPECTED
    assert compared["conclusion"] == study.conclusion() and compared["verdicts"] == study.verdicts()
    texts = [
        tabulate_comparison(compared | {"failed": 0, "error": None, "out": None}),
        tabulate_sweep(rows(), StudyFile({}, {"algorithm": list(TABLE)}, [{}], [0]), study.explain()),
        repr(study), study._repr_html_(),
    ]  # fmt: skip
    assert not [text for text in texts if study.conclusion() not in text]
    latex = study.to_latex(["ratio_mean"])
    assert {line.split()[0]: next((mark for mark in (r"^{\approx}", "^{?}") if mark in line), "worse")
            for line in latex.splitlines() if "pm" in line and line.split()[0] != "a"} == {
        "far": "worse", "alike": r"^{\approx}", "noisy": "^{?}"}  # fmt: skip
    ax = plot_differences(study).axes[0]
    drawn = dict(zip((label.get_text() for label in ax.get_yticklabels()), (text.get_text() for text in ax.texts),
                     strict=True))  # fmt: skip
    assert {name: word.partition(" (")[0] for name, word in drawn.items() if word != "best"} == EXPECTED


@pytest.mark.slow
@pytest.mark.parametrize("margin", [None, 0.0005])
def test_a_folder_keeps_its_margin_and_page_and_csv_have_the_verdicts_of_the_sentence(tmp_path, margin, monkeypatch):
    settings = {} if margin is None else {"margin": margin}
    common = {"devices": 4, "data": "grid16:points=5", "rounds": 3, "progress": False}
    compared = p2pkm.compare("gtvmin,local,tracking", seeds="0-5", out=tmp_path / "c", **common, **settings)
    swept = p2pkm.study(grid={"algorithm": ["gtvmin", "local", "tracking"]}, seeds="0-5", out=tmp_path / "s", **common,
                        **settings)  # fmt: skip
    assert compared.conclusion() == swept.conclusion()
    for folder, study in ((tmp_path / "c", compared), (tmp_path / "s", swept)):
        assert load_study(folder).margin == study.margin == (0.005 if margin is None else margin)
        assert load_study(folder).conclusion() == study.conclusion()
        cells = list(csv.DictReader(io.StringIO((folder / "verdicts.csv").read_text())))
        assert [(one["configuration"], one["verdict"]) for one in cells if one["figure"] == "ratio_mean"] == [
            (one["configuration"], one["verdict"]) for one in study.verdicts()
        ]
        write_report(folder, vars(RunOptions()), None)
        page = (folder / "report.html").read_text()
        assert study.conclusion().replace("'", "&#x27;") in page and "tied" not in page
    assert json.loads((tmp_path / "c" / "summary.json").read_text())["conclusion"] == compared.conclusion()


def test_small_differences_are_not_rounded_to_zero():
    for value in (0.0, 0.5):
        assert conclusion.write_value(value, "ari") == f"{value:.3f}"
    assert conclusion.write_value(1e-9, "ari") == "1.0e-09"


# --- different points


def rows_on(data, **costs):
    return [
        {"algorithm": algorithm, "graph": "ring", "data": data, "seed": seed, "ratio_mean": value, "bytes": 8,
         "error": None}
        for algorithm, values in costs.items() for seed, value in enumerate(values)
    ]  # fmt: skip


WINE = rows_on("wine", gtvmin=NOISY, fkm=FAR)
GRID = rows_on("grid16", gtvmin=[value + 3 for value in FAR], fkm=[value + 3 for value in NOISY])


def test_runs_on_different_points_are_never_compared():
    both = Study(WINE + GRID)
    for part, reference in ((WINE, "gtvmin on ring, data wine"), (GRID, "fkm on ring, data grid16")):
        data = part[0]["data"]
        alone = {one["configuration"]: one for one in Study(part).verdicts()}
        table = [one for one in both.verdicts() if data in one["configuration"]]
        assert [one["verdict"] for one in table] == [one["verdict"] for one in alone.values()] == ["best", "worse"]
        assert {one["reference"] for one in table} == {reference}
        assert [one["p"] for one in table] == [one["p"] for one in alone.values()]
        sentence = Study(part).conclusion()
        expected = f"For data {data}: o{sentence[1:]}".replace("on ring", f"on ring, data {data}")
        assert expected in both.conclusion()


def test_tables_and_figures_have_a_best_one_for_each_data(tmp_path):
    both = Study(WINE + GRID)
    assert both.to_latex(["ratio_mean"]).count(r"\mathbf") == 2
    notes = [text.get_text() for text in plot_differences(both).axes[0].texts]
    assert notes == ["best", "worse", "best", "worse"]
    (tmp_path / "study.jsonl").write_text("\n".join(json.dumps(row) for row in WINE + GRID))
    page = write_report(tmp_path, {"algorithm": "", "graph": "", "data": ""}).path.read_text()
    assert "Relative to the best for data wine" in page and "data grid16: " in page


def test_options_that_keep_the_points_are_compared():
    rows = [row | {"data": "wine", "coupling": 1 + (row["algorithm"] == "fkm")} for row in WINE]
    assert [one["verdict"] for one in Study(rows).verdicts()] == ["best", "worse"]
