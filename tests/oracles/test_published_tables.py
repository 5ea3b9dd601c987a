"""Values that authors have published, by the scripts of examples/reproduce with fewer runs; some need their data."""

import os
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "reproduce"
DATA = Path(os.environ.get("P2PKM_DATA", ROOT / "none"))
SMALL = ("thyroid", "breast", "ecoli", "iris")
NEEDED = [f"{name}.csv" for name in SMALL]
RUNS, PUBLISHED = 12, 200

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def modules():
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


@pytest.mark.parametrize("sd", [1.0, 1.5])
@pytest.mark.parametrize("beta", [0.1, 1.0, 10.0])
def test_scores_of_garst_and_reinders_are_those_of_their_200_runs(beta, sd):
    """Means differ by no more than the scripts allow, and three standard errors of both."""
    import garst

    shards = garst.load(None, beta, 50, sd)
    methods = {"FKM": garst.FKM, "central": garst.CENTRAL, "k-FED": garst.KFED}
    chosen = Namespace(rounds=100, runs=RUNS, seeds=range(RUNS), jobs=1)
    scores = garst.study({name: (method, shards) for name, method in methods.items()}, chosen)
    for name in methods:
        row = garst.row(name, beta, sd, scores[name])
        spread = np.std(row.values, ddof=1) * np.sqrt(1 / RUNS + 1 / PUBLISHED)
        assert abs(np.mean(row.values) - row.paper) <= row.allowed + 3.0 * spread, row


@pytest.mark.skipif(
    not all((DATA / name).is_file() for name in NEEDED),
    reason=f"the environment variable P2PKM_DATA names no folder with {', '.join(NEEDED)}",
)
@pytest.mark.parametrize("name", SMALL)
def test_table_2_of_deng_et_al_comes_out_as_it_is_written_down(name, capsys):
    """The best of the same 20 runs, beside what the paper printed, with the same verdict."""
    import deng
    import fkmeanscb_table2 as table
    import paper

    data = deng.load(DATA, [name])[name]
    cases = {(name, *line): (table.build(name, *line), data, deng.CLIENTS) for line in table.PRINTED[name]}
    scores = deng.study(cases, Namespace(runs=20, seeds=range(20), jobs=1))
    for s in range(len(deng.SCORES)):
        paper.show("", list(table.rows_of(scores, s, best=True).values()))
    said = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(f"{name}, ")]
    written = [
        line.split() for line in (FOLDER / "RESULTS.md").read_text().splitlines() if line.startswith(f"{name}, ")
    ]
    assert len(said) == len(cases) * len(deng.SCORES)
    assert [line for line in said if line not in written] == []
