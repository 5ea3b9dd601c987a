"""Graph measures and outcomes of real studies: in the table, in the folder and in the report."""

import csv

import pytest

import p2pkm
from p2pkm.cli.main import main

GRAPHS = ("ring", "path", "star", "complete", "tree", "wheel", "bipartite", "ladder")
OPTIONS = {"devices": 8, "data": "grid16:points=10", "rounds": 2, "init": "leader", "link_model": "lan"}


def write(folder, graphs):
    names = ", ".join(f'"{graph}"' for graph in graphs)
    options = "".join(f"{name} = {value!r}\n" for name, value in OPTIONS.items())
    path = folder / "study.toml"
    path.write_text(f'{options}algorithm = "consensus:gossips=1"\nseeds = "0-0"\n[grid]\ngraph = [{names}]\n')
    return str(path)


@pytest.mark.slow
def test_a_sweep_ends_with_a_line_and_stores_the_table(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["sweep", write(tmp_path, GRAPHS), "--out", str(out), "--no-plot", "-q"]) == 0
    printed = capsys.readouterr().out
    lines = list(csv.DictReader((out / "explain.csv").read_text("utf-8").splitlines()))
    explanation = p2pkm.load_study(out).explain()
    assert explanation.headline in printed and "Measures of 8 graphs and outcomes" in printed
    assert len(lines) == len(explanation.correlations) + len(explanation.predictors)
    bytes_by_degree = [float(line["value"]) for line in lines
                       if (line["outcome"], line["measures"], line["statistic"])
                       == ("encoded bytes", "degree_mean", "rank correlation")]  # fmt: skip
    assert bytes_by_degree[0] > 0.9


@pytest.mark.slow
def test_the_report_of_a_sweep_has_the_table(tmp_path):
    out = tmp_path / "out"
    assert main(["sweep", write(tmp_path, GRAPHS), "--out", str(out), "--no-plot", "-q"]) == 0
    explanation = p2pkm.load_study(out).explain()
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text("utf-8")
    assert "<h2>Graph measures and outcomes</h2>" in page and explanation.headline in page
    assert page.count("Heat map of rank correlations") == 1


@pytest.mark.slow
def test_too_few_graphs_are_named_in_the_report_and_leave_no_file(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["sweep", write(tmp_path, GRAPHS[:3]), "--out", str(out), "--no-plot", "-q"]) == 0
    assert "Measures of" not in capsys.readouterr().out and not (out / "explain.csv").exists()
    assert main(["report", str(out)]) == 0
    assert "3 graphs; expected at least 8" in (out / "report.html").read_text("utf-8")


@pytest.mark.slow
def test_a_comparison_has_it_too(tmp_path):
    compared = p2pkm.compare("consensus", ",".join(GRAPHS), seeds=[0], out=tmp_path / "out", progress=False, **OPTIONS)
    assert (tmp_path / "out" / "explain.csv").read_text("utf-8") == compared.explain().to_csv()
    assert compared.rows[0]["residual_noise"] > 0.0 and compared.rows[0]["links"] == 8


def test_time_varying_graphs_have_no_residual_noise():
    study = p2pkm.study(grid={"graph": ["one-peer-exponential"]}, seeds=[0], progress=False, **OPTIONS)
    assert study.rows[0]["residual_noise"] is None and study.rows[0]["clustering"] is not None


@pytest.mark.slow
def test_the_figures_of_a_sweep_are_in_the_report_once(tmp_path):
    out = tmp_path / "out"
    assert main(["sweep", write(tmp_path, GRAPHS), "--out", str(out), "--plot", "-q"]) == 0
    assert (out / "figures" / "explained.svg").exists()
    assert main(["report", str(out)]) == 0
    assert (out / "report.html").read_text("utf-8").count('aria-label="explained"') == 0
