"""Names of devices and nodes: nodes without points, encodings of accents, and names that are nearly equal."""

import unicodedata

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
    listed = p2pkm.Shards.deal(cohort, device="hospital", devices=["Kemi", "Oulu", "Turku", "Åbo"])
    same = p2pkm.simulate(p2pkm.GTVMin(2), topologies.read(links), listed, rounds=3, progress=False)
    assert np.array_equal(result.centroids, same.centroids) and result.summary["bytes"] == same.summary["bytes"]


@pytest.mark.slow
def test_command_line_agrees_with_the_simulation(cohort, links, tmp_path):
    cohort.to_csv(tmp_path / "cohort.csv", index=False)
    options = ("--data", tmp_path / "cohort.csv", "--device-column", "hospital", "-k", 2, "--graph", f"file:{links}")
    ending = here(*options, "--rounds", 3, "--no-plot", "--out", tmp_path / "run", "-q")
    assert ending.code == 0 and "1 of 4 devices are without points: Åbo" in ending.out
    shards = p2pkm.Shards.deal(p2pkm.read_table(tmp_path / "cohort.csv", device_column="hospital"))
    result = p2pkm.simulate(p2pkm.GTVMin(2), topologies.read(links), shards, rounds=3, progress=False)
    assert np.array_equal(p2pkm.load(tmp_path / "run").centroids, result.centroids)
    assert "4 devices, 3 links" in here("plan", *options).out


def test_nodes_without_names_are_not_devices_without_points(cohort):
    shards = p2pkm.Shards.deal(cohort, device="hospital")
    with pytest.raises(
        p2pkm.TopologyError, match="the graph has 4 nodes, but the points are distributed over 3 devices"
    ):
        p2pkm.simulate(p2pkm.GTVMin(2), topologies.ring(4), shards, progress=False)


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


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_names_and_columns_are_equal_in_every_encoding_of_accents(cohort, tmp_path, form):
    """On some systems é is written as e and a combining accent."""
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    names = {"Turku": "Åbo", "Oulu": "Uleåborg", "Kemi": "Kemi"}
    frame = cohort.assign(hospital=[unicodedata.normalize(form, names[name]) for name in cohort.hospital])
    frame = frame.rename(columns={"hospital": unicodedata.normalize(form, "Hôpital")})
    frame.to_csv(tmp_path / "cohort.csv", index=False)
    links = "from,to\nÅbo,Uleåborg\nUleåborg,Kemi\n"
    (tmp_path / "links.csv").write_text(unicodedata.normalize(other, links))
    column = unicodedata.normalize(other, "Hôpital")
    table = p2pkm.read_table(tmp_path / "cohort.csv", device_column=column)
    shards = p2pkm.Shards.deal(table)
    result = p2pkm.simulate(p2pkm.GTVMin(2), topologies.read(tmp_path / "links.csv"), shards, rounds=1, progress=False)
    assert result.topology.names == ("Kemi", "Uleåborg", "Åbo")
    assert len(result.predict(frame, device="Åbo")) == len(frame)


def test_note_lists_names_that_are_nearly_equal(cohort, tmp_path):
    other = iter(["Turku", "TURKU", "turku ", "Türku"])
    names = [next(other, "Turku") if name == "Turku" else name for name in cohort.hospital]
    cohort.assign(hospital=names).to_csv(tmp_path / "cohort.csv", index=False)
    note = (
        "names of devices that differ only in case, accents, umlauts or blanks: 'TURKU', 'Turku', 'Türku' and 'turku'"
    )
    words = ("--data", tmp_path / "cohort.csv", "-k", 2, "--device-column", "hospital", "--out", "none", "-q")
    assert note in here(*words, "--no-plot", "--rounds", 1).out
    assert note in here("data", tmp_path / "cohort.csv").out
    cohort.to_csv(tmp_path / "cohort.csv", index=False)
    assert "differ only" not in here("data", tmp_path / "cohort.csv").out
