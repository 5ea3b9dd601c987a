"""Named nodes of a graph that no row of the table names are devices without points."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import p2pkm
import topologies
from tests.support.run_cli import here

_ROWS = {"Turku": 6, "Oulu": 4, "Kemi": 5}


@pytest.fixture
def cohort():
    rng = np.random.default_rng(0)
    site = np.repeat(list(_ROWS), list(_ROWS.values()))
    return pd.DataFrame({"age": rng.normal(size=len(site)), "bmi": rng.normal(size=len(site)), "hospital": site})


@pytest.fixture
def links(tmp_path):
    path = tmp_path / "links.csv"
    path.write_text("from,to\nTurku,Åbo\nÅbo,Oulu\nOulu,Kemi\n")
    return path


def test_simulation_has_the_node_as_last_device_and_a_note(cohort, links):
    shards = p2pkm.Shards.deal(cohort, device="hospital")
    result = p2pkm.simulate(p2pkm.GTVMin(2), topologies.read(links), shards, rounds=3, progress=False)
    assert result.topology.names == ("Kemi", "Oulu", "Turku", "Åbo")
    assert result.clusters.points.sum(axis=1).tolist() == [5, 4, 6, 0]
    assert any("nodes without points: 'Åbo'" in note for note in result.notes)
    given = p2pkm.Shards.deal(cohort, device="hospital", devices=["Kemi", "Oulu", "Turku", "Åbo"])
    same = p2pkm.simulate(p2pkm.GTVMin(2), topologies.read(links), given, rounds=3, progress=False)
    assert np.array_equal(result.centroids, same.centroids) and result.summary["bytes"] == same.summary["bytes"]


def test_command_line_agrees_with_the_simulation(cohort, links, tmp_path):
    cohort.to_csv(tmp_path / "cohort.csv", index=False)
    options = ("--data", tmp_path / "cohort.csv", "--device-column", "hospital", "-k", 2, "--graph", f"file:{links}")
    ending = here(*options, "--rounds", 3, "--no-plot", "--out", tmp_path / "run", "-q")
    assert ending.code == 0 and "1 of 4 devices are without points: Åbo" in ending.out
    shards = p2pkm.Shards.deal(p2pkm.read_table(tmp_path / "cohort.csv", device_column="hospital"))
    result = p2pkm.simulate(p2pkm.GTVMin(2), topologies.read(links), shards, rounds=3, progress=False)
    assert np.array_equal(p2pkm.load(tmp_path / "run").centroids, result.centroids)
    assert "4 devices, 3 links" in here("plan", *options).out


def test_estimator_has_the_node_as_a_device(cohort):
    graph = nx.Graph([("Turku", "Åbo"), ("Åbo", "Oulu"), ("Oulu", "Kemi")])
    model = p2pkm.P2PKMeans(2, graph=graph, random_state=0).fit(cohort[["age", "bmi"]], devices=cohort.hospital)
    assert model.device_names_.tolist() == ["Kemi", "Oulu", "Turku", "Åbo"]
    assert model.device_centers_.shape == (4, 2, 2)
    assert len(model.predict(cohort[["age", "bmi"]], devices=cohort.hospital)) == len(cohort)


def test_study_of_shards_and_a_method_with_a_server(cohort, links):
    shards = p2pkm.Shards.deal(cohort, device="hospital")
    study = p2pkm.study(
        grid={"graph": {"sites": topologies.read(links)}, "algorithm": [p2pkm.GTVMin(2), p2pkm.FKM(2)]},
        data=shards, clusters=2, seeds=[0], rounds=2,
    )  # fmt: skip
    assert study.to_frame()["devices"].tolist() == [4, 3]
