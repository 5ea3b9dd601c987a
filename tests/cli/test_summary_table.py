"""Summary table: its rows, and the sentences below it, which have the same numbers."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pkm.cli.summary_table import Progress, describe_run, next_steps
from p2pkm.metrics import closing_rows
from p2pkm.metrics.closing_rows import NO_ROW, format_messages, format_ratio, format_size, format_start, list_warnings
from p2pkm.metrics.closing_table import GROUPS, group_summary_rows, list_summary_rows
from p2pkm.metrics.milestones import BEST, find_best
from p2pkm.metrics.registry import ShownIn, metrics_shown_in, summary_keys
from tests.support.each import each

COUNT = st.integers(0, 10**7)
RATIO = st.none() | st.floats(0.5, 1e4)
SUMMARIES = st.fixed_dictionaries({
    "devices": st.integers(1, 10**6), "clusters": st.integers(1, 100), "messages": COUNT, "bytes": COUNT,
    "raw_points_disclosed": st.none() | COUNT | st.sampled_from([0, 1]),
    "ratio_mean": RATIO, "ratio_local_only": RATIO, "test_ratio_common": RATIO,
})  # fmt: skip
FIXED = dict.fromkeys(summary_keys()) | {"algorithm": "gtvmin", "graph": "ring", "rounds": 3, "termination": "silent"}


@given(SUMMARIES)
def test_each_sentence_is_that_of_its_figure(drawn):
    """Every clause is there if and only if its figure says so, and its number is the one in the table."""
    text = " ".join(describe_run(FIXED | drawn))
    shown = {label: value for label, value, _ in list_summary_rows(FIXED | drawn, [])}
    raw, sent, ratio, alone = (
        drawn[name] for name in ("raw_points_disclosed", "messages", "ratio_mean", "ratio_local_only")
    )
    assert text.startswith(f"{drawn['devices']:,} device{'s' * (drawn['devices'] != 1)} (ring graph) computed ")
    assert f" {drawn['clusters']:,} cluster{'s' * (drawn['clusters'] != 1)}." in text
    assert ("Nothing was sent" in text) == (sent == 0)
    assert re.findall(r"sent ([\d,]+) messages?: ", text) == ([shown["messages"]] if sent else [])
    assert ("were not counted" in text) == (raw is None) == ("disclosed points" not in shown)
    assert ("No point was sent unchanged" in text) == (raw == 0)
    assert re.findall(r"([\d,]+) points? (?:was|were) sent unchanged", text) == (
        [shown["disclosed points"]] if raw else []
    )
    assert ("not compared" in text) == (ratio is None) == ("cost ratio" not in shown)
    assert re.findall(r"centroids cost (\S+) times", text) == ([] if ratio is None else [shown["cost ratio"]])
    common = drawn["test_ratio_common"]
    assert re.findall(r"has (\S+) times the cost", text) == ([] if common is None else [format_ratio(common)])
    assert re.findall(r"would cost (\S+) times", text) == ([] if alone is None else [format_ratio(alone)])


def test_the_summary_stands_before_what_to_try():
    summary = FIXED | {"devices": 2, "clusters": 2, "messages": 3, "bytes": 48, "raw_points_disclosed": 0}
    lines = next_steps(summary | {"ratio_mean": 1.0, "out": "runs/one"}).splitlines()
    assert lines[1].startswith("Summary: 2 devices (ring graph)") and all(len(line) < 120 for line in lines)
    assert any("verify runs/one" in line for line in lines)
    assert "No point was sent unchanged" in " ".join(lines)


def test_a_ratio_of_0_at_the_start_was_raised_from_0():
    for start, ratio, meaning in (
        (0.0, 1.5, "raised from 0"),
        (0.0, 0.0, "lowered by 0.00 %"),
        (2.0, 1.5, "lowered by 25.00 %"),
    ):
        figure, found = format_start({"ratio_start": start, "ratio_mean": ratio})
        assert meaning in found and figure == format_ratio(start)


@each(
    ("row", "summary", "figure"),
    [
        ("groups", {"groups": None}, None),  # the method has none
        ("groups", {"groups": 1}, None),
        ("groups", {"groups": 2}, "2"),
        ("wire", {"wire_bytes": None, "bytes": 80}, None),
        ("wire", {"wire_bytes": 80, "bytes": 80}, None),
        ("wire", {"wire_bytes": 31, "bytes": 80}, "31"),
        ("alone", {"epsilon_alone": None, "trust": "masks"}, None),
        ("alone", {"epsilon_alone": 0.25, "trust": "none"}, None),  # the guarantee itself is against all others
        ("alone", {"epsilon_alone": 0.25, "trust": "masks"}, "eps 0.25"),
    ],
)
def test_a_row_is_there_only_if_it_says_more_than_another(row, summary, figure):
    found = getattr(closing_rows, f"format_{row}")(summary)
    assert found == NO_ROW if figure is None else found[0] == figure


@each(
    ("seconds", "figure", "meaning"),
    [
        (None, "-", "seconds on the link model wan"),
        (999.4, "999.4", "seconds on the link model wan"),
        (1_000.0, "16.7 min", "1,000 seconds on the link model wan"),
        (7_200.0, "2 h", "7,200 seconds on the link model wan"),
        (172_799.0, "48 h", "172,799 seconds on the link model wan"),
        (604_800.0, "7 days", "604,800 seconds on the link model wan"),
    ],
)
def test_long_simulated_times_are_in_larger_units(seconds, figure, meaning):
    found = closing_rows.format_time({"virtual_seconds": seconds, "link_model": "wan"})
    assert found == (figure, meaning)


@pytest.mark.parametrize("stage", ["gtvmin", "leader"])
@pytest.mark.parametrize(("quiet", "verbose"), [(False, True), (True, True), (False, False)])
def test_progress_is_shown_unless_quiet_with_the_most_rounds_of_the_method(capsys, stage, quiet, verbose):
    show = Progress("gtvmin", 30, quiet=quiet, verbose=verbose)
    show({"stage": stage, "round": 2, "ratio_mean": 1.5, "converged": 3, "bytes": 4096})
    most = " (of at most 30)" if stage == "gtvmin" else ""
    line = f"{stage} round 2{most}: ratio 1.500, 3 converged, 4,096 plain bytes\n"
    assert capsys.readouterr().err == (line if verbose and not quiet else "")


@each(("total", "before", "inside"), [(None, 3, 0), (0, 3, 0), (1, 3, 1), (3, 3, 1), (4, 3, 0), (1, None, 0)])
def test_a_goal_reached_during_initialization_is_placed_there(total, before, inside):
    summary = {"rounds_to_1pct": total, "method_rounds_to_1pct": None, "rounds_before": before}
    place = f"in round {total} of the initialization" if inside else "with initialization"
    assert closing_rows.format_own(summary)[1] == f"until within 1 % of the final cost ratio ({place})"


def test_a_private_run_cut_off_by_the_round_limit_says_so():
    said = [closing_rows.format_rounds({"epsilon": 1.0, "termination": stop, "rounds": 3})
            for stop in ("converged", "round-limit")]  # fmt: skip
    assert said[0] == ("3", "all sums are complete")
    assert said[1] == closing_rows.format_rounds({"epsilon": None, "termination": "round-limit", "rounds": 3})


@pytest.mark.parametrize(("least", "said"), [(None, False), (0, False), (1, False), (2, True)])
def test_a_minimum_cluster_size_is_shown_from_two_points_on(least, said):
    figure = closing_rows.format_suppression({"min_cluster_size": least})[0]
    assert figure == (str(least) if said else closing_rows.NO_ROW[0])


@each(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (53_767, "53.8 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"),
     (1_234_567, "1.2 MB"), (5e9, "5.0 GB"), (1.5e15, "1,500.0 TB")],
)  # fmt: skip
def test_sizes_have_one_decimal(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.0, "1.0000"), (1.00083, "1.0008"), (0.99, "0.9900"), (1.1, "1.100"), (3.7141, "3.714")]
)
def test_ratios_near_1_have_four_decimals(ratio, text):
    assert format_ratio(ratio) == text


def test_messages_have_their_size_with_and_without_encoding():
    summary = {"messages": 510, "bytes": 170_616, "wire_bytes": 53_767}
    assert format_messages(summary) == ("510", "53.8 kB encoded (170.6 kB plain, 8 bytes per value)")
    assert format_messages(summary | {"wire_bytes": None}) == ("510", "170.6 kB plain, 8 bytes per value")
    assert format_messages(summary | {"wire_bytes": 170_616}) == ("510", "170.6 kB plain, 8 bytes per value")


def test_warnings_are_one_row_of_the_checks():
    summary = FIXED | {"algorithm": "gtvmin", "termination": "round-limit", "rounds": 5, "devices": 2, "clusters": 2}
    assert list_warnings(summary) == ["not converged in 5 rounds: increase --rounds"]
    assert list_warnings(summary | {"stream": "drawn"}) == []
    worse = {"ratio_mean": 1.5, "ratio_best": 1.2, "ratio_best_round": 3, "ratio_best_stage": "gtvmin"}
    rows = [row for row in group_summary_rows(summary | worse, ["a note"]) if row.label in ("warning", "note")]
    assert [(row.group, row.is_verbose) for row in rows] == [("checks", False)] * 2
    assert rows[0].meaning == (
        "not converged in 5 rounds; quality decreased after round 3 of gtvmin: cost ratio 1.200 then"
    )
    assert rows[1].meaning == "a note"


def test_quality_decreases_if_the_ratio_rises_by_more_than_the_margin_of_comparisons():
    summary = FIXED | {"algorithm": "gtvmin", "ratio_best": 1.2, "ratio_best_round": 3, "ratio_best_stage": "gtvmin"}
    warnings = [list_warnings(summary | {"ratio_mean": mean}) for mean in (1.2, 1.2059, 1.2061)]
    assert [any("quality decreased" in text for text in texts) for texts in warnings] == [False, False, True]
    records = [{"stage": "gtvmin", "round": t, "ratio_mean": mean} for t, mean in enumerate((1.3, 1.2, 1.2001, 1.205))]
    assert find_best(records) == {name: summary[name] for name in BEST} | {"ratio_best_round": 2}


def test_eight_rows_at_most_are_always_shown():
    shown = metrics_shown_in(ShownIn.CLOSING)
    assert 7 <= sum(metric.level == "default" for metric in shown) <= 8
    assert {metric.group for metric in shown} == set(GROUPS)
