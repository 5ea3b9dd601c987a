"""What a study says: paired tests, the sentence to quote, the table for LaTeX, and the object that has them."""

import json
import math
import sys
from types import SimpleNamespace

import pytest

from p2pkm.analysis.latex_table import escape
from p2pkm.analysis.study_table import (
    Study,
    average,
    describe_quality_loss,
    find_axes,
    group_runs,
    load_study,
    name_sides,
    read_rows,
)
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.metrics.registry import find
from tests.support.stored_rows import save_as_earlier_version


def runs(values, figure="ratio_mean", **more):
    return {seed: {"seed": seed, figure: value, **more} for seed, value in enumerate(values)}


def study(**costs):
    """Return a study of methods on a ring, with these costs by seed."""
    return Study([
        {"algorithm": name, "graph": "ring", "seed": seed, "error": None, "ratio_mean": value, "bytes": 1500}
        for name, values in costs.items() for seed, value in enumerate(values)
    ])  # fmt: skip


NOISY = (1.0, 1.1, 1.2, 1.05, 1.15)
FAR = tuple(value + 0.5 + 0.01 * i for i, value in enumerate(NOISY))
NEAR = tuple(value + (-1) ** i * 0.01 for i, value in enumerate(NOISY))


def test_the_best_is_in_bold_if_all_others_are_worse_and_others_have_marks():
    text = study(a=NOISY, b=FAR).to_latex(["ratio_mean", "bytes"])
    assert [line for line in text.splitlines() if line[0] != "%"] == [
        r"\begin{tabular}{lrr}", r"  \toprule", r"  algorithm & ratio & kB plain \\", r"  \midrule",
        r"  a & $\mathbf{1.1000} \pm 0.0791$ & $1.5 \pm 0.0$ \\",
        r"  b & $1.6200 \pm 0.0880$ & $1.5^{\approx} \pm 0.0$ \\", r"  \bottomrule", r"\end{tabular}",
    ]  # fmt: skip
    assert "Mean ± standard deviation over 5 seeds. Bold: all others are worse." in text
    assert "% ratio: Paired t-test on log ratios" in text
    text = study(a=NOISY, b=NEAR, c=FAR).to_latex(["ratio_mean"])
    assert "mathbf" not in text and "$1.1020^{?}" in text and "$1.6200 " in text
    single = study(a=(1.0,), b=(2.0,)).to_latex(["ratio_mean"])
    assert "mathbf" not in single and "$2.0000^{?}$" in single
    assert r"$\mathbf{1.1000}$ [$1.0061$, $1.2027$]" in study(a=NOISY, b=FAR).to_latex(spread="interval")
    assert r"$\mathbf{1.1000}$ & " in study(a=NOISY, b=FAR).to_latex(spread="none")


def test_a_method_without_the_figure_in_all_runs_leaves_nothing_in_bold():
    text = study(a=NOISY, b=FAR, c=(*FAR[:4], None)).to_latex(["ratio_mean"])
    assert "mathbf" not in text and r"c & -- \\" in text


def test_columns_are_what_is_known_and_the_method_without_messages_has_no_graph():
    alone = {"algorithm": "local", "graph": "ring", "seed": 0, "error": None, "ratio_mean": 2.0}
    far = alone | {"algorithm": "a", "graph": "path"}
    text = Study([alone, far, far | {"graph": "ring"}]).to_latex()
    assert [line for line in text.splitlines() if "&" in line] == [
        r"  algorithm & graph & ratio \\", r"  local & -- & $2.0000$ \\", r"  a & path & $2.0000^{?}$ \\",
        r"  a & ring & $2.0000^{?}$ \\",
    ]  # fmt: skip


def test_names_are_escaped_and_a_caption_makes_a_float(tmp_path):
    found = Study([
        {"algorithm": "a", "graph": graph, "seed": 0, "error": None, "ratio_mean": 1.0}
        for graph in ("file:a_b%.txt", "r&d #1")
    ])  # fmt: skip
    text = found.to_latex(caption="Costs", label="tab:costs", path=tmp_path / "t.tex")
    assert r"file:a\_b\%.txt" in text and r"r\&d \#1" in text
    assert r"\caption{Costs}" in text and r"\label{tab:costs}" in text and r"\begin{table}" in text
    assert (tmp_path / "t.tex").read_text() == text
    assert escape("\\{x}~^<$") == r"\textbackslash{}\{x\}\textasciitilde{}\textasciicircum{}\textless{}\$"


def test_figures_and_spreads_that_are_none_are_refused():
    with pytest.raises(ExperimentError, match=r"figures contains 'ratio', which is not a number .* mean 'ratio_mean'"):
        study(a=NOISY).to_latex(["ratio"])
    more = Study([row | {"whole": True, "name": "a"} for row in study(a=NOISY).rows])
    assert more.to_latex("ratio_mean") == more.to_latex(["ratio_mean"]) == study(a=NOISY).to_latex(["ratio_mean"])
    for name in ("whole", "name", "seed"):
        with pytest.raises(ExperimentError, match=f"figures contains '{name}', which is not a number in any run"):
            more.to_latex([name])
    with pytest.raises(ExperimentError, match=r"spread is 'sem'"):
        study(a=NOISY).to_latex(spread="sem")
    with pytest.raises(ExperimentError, match=r"kind is 'violin'"):
        study(a=NOISY).plot("violin")
    with pytest.raises(
        ExperimentError, match=r"kind is 'bytes', which is a column. Use figure='bytes', or x= and y='bytes'"
    ):
        study(a=NOISY).plot("bytes")


def test_what_comes_before_the_seed_is_the_configuration():
    rows = [{"algorithm": "a", "graph": "ring", "coupling": c, "tol": 0, "seed": s, "error": None, "ratio_mean": 1.0}
            for c in (1, None) for s in (0, 1)]  # fmt: skip
    assert find_axes(rows) == ["coupling"] == find_axes([*rows, rows[0] | {"graph": "server"}])
    assert list(group_runs(rows, ["coupling"])) == ["a on ring, coupling 1", "a on ring, coupling none"]


def test_a_study_is_shown_in_at_most_five_lines(tmp_path):
    broken = {"algorithm": "c", "graph": "ring", "seed": 0, "error": "DataError: two\nlines", "ratio_mean": None}
    text = repr(Study([*study(a=NOISY, b=NEAR).rows, broken], tmp_path))
    assert text.count("\n") == 3
    assert text.startswith(
        "Study of 11 runs: 2 configurations of algorithm, 5 seeds, 1 failed\nfailed first: DataError"
    )
    assert text.endswith(f"folder: {tmp_path}")
    assert repr(Study([])).count("\n") == 1


def test_rows_become_a_frame_of_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    assert study(a=NOISY).to_frame() == study(a=NOISY).rows


def test_a_notebook_shows_ten_rows_the_figures_of_any_and_what_comes_of_all():
    found = study(a=NOISY, b=NEAR, c=(None, 1.0))
    text = found._repr_html_()
    assert text.startswith(f"<p>Study of 12 runs</p><p>{found.conclusion()}</p><table>")
    assert f">{find('ratio_mean').label}</th>" in text and f">{find('ari').label}</th>" not in text
    assert text.endswith("<p>and 2 more rows; to_frame() returns all</p>")
    swept = [{"algorithm": "a", "graph": "ring", "tol": tol, "seed": 0, "ratio_mean": 1.0} for tol in (0.5, 0.25)]
    text = Study(swept)._repr_html_()
    assert "<td>ring</td><td>0.5</td><td>0</td>" in text and "<td>ring</td><td>0.25</td><td>0</td>" in text


def test_a_study_that_was_interrupted_has_the_rows_that_were_kept_whole(tmp_path):
    (tmp_path / "runs").mkdir()
    with pytest.raises(DataError, match="is not the folder of a study"):
        load_study(tmp_path)
    rows = [{"algorithm": "a", "graph": "ring", "seed": seed, "key": key, "trace": [1],
             "options": {"tol": 0.1, "rounds": 7 + seed, "seed": seed}} for seed, key in enumerate("ab")]  # fmt: skip
    for row in rows:
        save_as_earlier_version(tmp_path / "runs" / f"{row['key']}.json", row)
    found = load_study(tmp_path)
    assert found.path == tmp_path and found.swept == ["rounds_asked"]
    assert [list(row.items()) for row in found.rows] == [
        [("algorithm", "a"), ("graph", "ring"), ("rounds_asked", 7 + seed), ("seed", seed), ("key", key)]
        for seed, key in enumerate("ab")
    ]
    kept = (tmp_path / "runs" / "a.json").read_text()
    for name, text in (("a", kept.replace('"seed": 0', '"seed": 7')), ("c", kept), ("a", "{}")):
        (tmp_path / "runs" / f"{name}.json").write_text(text)
        with pytest.raises(DataError, match=f"{name}.json is damaged"):
            load_study(tmp_path)
        (tmp_path / "runs" / f"{name}.json").unlink()


@pytest.mark.parametrize("text", ["3", "[]", "null", "[" * 100_000, '{"seed": 0', '{"seed": 0}\n[]', "\0"])
def test_rows_that_are_none_are_told_with_the_folder(tmp_path, text):
    (tmp_path / "study.jsonl").write_text(text)
    with pytest.raises(DataError, match=f"{tmp_path} cannot be read as a study"):
        load_study(tmp_path)
    (tmp_path / "study.jsonl").unlink()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.json").write_text(text)
    with pytest.raises(DataError, match=f"{tmp_path} cannot be read as a study"):
        load_study(tmp_path)


def test_a_difference_is_told_with_the_configuration_first():
    one = {"algorithm": "a", "graph": "ring", "reference": "fkm", "reference_graph": "server"}
    assert name_sides(one) == ("a on ring", "fkm with a server")


def test_the_worst_run_is_reported_only_if_a_run_got_worse():
    assert describe_quality_loss([]) == describe_quality_loss([{"ratio_mean": 1.0, "ratio_best": 1.0}]) == ""


def test_rows_are_read_from_a_folder_a_study_and_a_list(tmp_path):
    what = {"algorithm": "gtvmin", "graph": "ring"}
    rows = [what | {"seed": 1, "error": None, "ari": 0.5}, what | {"seed": 2, "error": "no"}]
    (tmp_path / "study.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for source in (tmp_path, str(tmp_path), Study.load(tmp_path), rows):
        assert read_rows(source) == rows[:1]
    lost = [what | {"seed": 1, "error": math.nan, "ari": math.nan}, what | {"seed": 2, "error": "no", "ari": None}]
    assert read_rows(lost) == [what | {"seed": 1, "error": None, "ari": None}]


def test_the_worst_of_several_runs_is_reported():
    run = {"ratio_best_round": 3, "ratio_best_stage": "gtvmin"}
    one = run | {"ratio_mean": 1.5, "ratio_best": 1.0}
    zero = run | {"ratio_mean": 0.5, "ratio_best": 0.0}
    assert describe_quality_loss([one]) == "from ratio 1.0000 in round 3 of gtvmin to 1.5000 at the end"
    assert describe_quality_loss([one, zero]).startswith("in 2 of 2 runs, most from ratio 0.0000")


def test_averages_count_the_runs_that_came_near_central():
    near, far = ({"ratio_mean": 1.0 + i, "rounds_to_1pct_of_central": came} for i, came in enumerate((3, None)))
    assert average([near, far, near], ["ratio_mean"])["reached_central"] == 2
    assert average([near, far | {"ratio_mean": None}], ["ratio_mean"]) == {"ratio_mean": None, "reached_central": None}
    assert average([], ["ratio_mean"])["reached_central"] is None


def test_a_study_shows_its_first_failed_run():
    rows = [{"seed": i, "error": f"no {i}", "algorithm": "a", "graph": "g"} for i in range(3)]
    said = repr(Study(rows))
    assert "failed first: no 0" in said and "no 1" not in said


@pytest.mark.parametrize("failed", [0, 1])
def test_a_page_counts_the_failed_runs(failed):
    rows = [{"seed": i, "algorithm": "a", "graph": "g", "error": "no" if i < failed else None} for i in range(3)]
    assert f"Study of 3 runs{', 1 failed' if failed else ''}</p>" in Study(rows)._repr_html_()
    assert f"Study of 1 run{', 1 failed' if failed else ''}</p>" in Study(rows[:1])._repr_html_()
