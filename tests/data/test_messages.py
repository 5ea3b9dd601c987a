"""Tables that cannot be read as they are: what they are, and a call that works."""

import gzip
import shutil
import zipfile

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import DataError
from p2pkm.data.identifiers import note_alike
from p2pkm.data.new_rows import read_new_rows
from p2pkm.data.schema import Schema
from tests.support.run_cli import here

pandas = pytest.importorskip("pandas")
SPACES = ("office", "table", "text")  # names of OpenDocument
PLAIN = "age,bmi,device\n34,22,a\n35,23,b\n"


def refuse(said, path, **options):
    with pytest.raises(DataError, match=said):
        p2pkm.read_table(path, **options)


TOPS = {  # text, rows to skip, and what is said without
    "title": (f"Report\nmade, 2026\n\n{PLAIN}", "3", "lines 1 to 3 are a title.*skip_rows=3"),
    "padded title": (f"Report,,\n,,\n{PLAIN}", "2", "line 1 has only 'Report', and line 3 has 3 names.*skip_rows=2"),
    "units": (PLAIN.replace("ice\n", "ice\nyears,kg/m2,\n"), "2-2", "line 2 has texts such as 'years'.*_rows='2-2'"),
    "both": (f"Report\n{PLAIN}".replace("device\n", "device\nyears,kg/m2,\n"), "1-1,3-3", "skip_rows=1"),
}  # fmt: skip


@pytest.mark.parametrize("name", TOPS)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_titles_and_units_are_named_and_skipped(tmp_path, name, suffix):
    text, skip, said = TOPS[name]
    path = tmp_path / f"t{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    refuse(said, path)
    assert here("data", path).code == 3
    table = p2pkm.read_table(path, skip_rows=skip)
    assert table.features == ("age", "bmi") and table.points.tolist() == [[34, 22], [35, 23]]
    last = len(text.splitlines())
    path.write_bytes(path.read_bytes() + (gzip.compress(b"x,1,a\n") if suffix.endswith("gz") else b"x,1,a\n"))
    refuse(f"line {last + 1}, column 'age' is 'x'", path, skip_rows=skip)


def test_skipped_rows_are_those_of_the_run_for_new_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(f"Report\n\n{PLAIN}40,30,a\n41,31,b\n")
    (tmp_path / "run.toml").write_text('data = "t.csv"\nskip_rows = 2\nclusters = 2\nrename = "b=B"\n')
    assert here("--config", "run.toml", "--out", "run", "--no-plot", "-q").code == 0
    of_run = here("predict", "run", "t.csv")
    assert of_run.code == 0 and ",B," in of_run.out
    (tmp_path / "plain.csv").write_text(f"{PLAIN}40,30,a\n41,31,b\n")
    assert here("predict", "run", "plain.csv", "--skip-rows", "0").out == of_run.out
    assert p2pkm.read_table("t.csv", skip_rows=[1, 2]).points.tolist() == p2pkm.read_table("plain.csv").points.tolist()


def test_cells_without_values_and_cover_sheets_are_named(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    book, path = openpyxl.Workbook(), tmp_path / "t.xlsx"
    book.active.append(["Study", "of clinics"])
    sheet = book.create_sheet("data")
    for row in (["a", "b"], [1, "=1/0"], [2, "#DIV/0!"], [3, 4]):
        sheet.append(row)
    sheet.cell(3, 2).data_type = "e"
    book.save(path)
    refuse(r"Sheet 'Sheet' is read, the first of 2; use (--)?sheet to choose another", path)
    refuse(r"(?s)column 'b' is empty.*B3 #DIV/0!.*correct.*without a stored value.*B2\).*save it", path, sheet="data")
    table = p2pkm.read_table(path, sheet="data", missing="drop")
    assert table.points.tolist() == [[3, 4]] and "B3 #DIV/0!" in table.notes[0]


def test_column_of_formulas_without_a_header_is_not_left_out(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    book, path = openpyxl.Workbook(), tmp_path / "t.xlsx"
    for row in (["=NA()", None, 12345678901234567890], [7, 2, "=A2+B2"], [3, 4, "=A3+B3"]):
        book.active.append(row)
    book.save(path)
    # Of skipped rows, nothing counts: neither lost cells nor columns nor digits.
    table = p2pkm.read_table(path, skip_rows=1)
    assert table.points.tolist() == [[7, 2], [3, 4]]
    assert len(table.notes) == 1 and "read as empty (C2, C3): open" in table.notes[0]


def test_errors_in_open_document_are_no_zeros(tmp_path):
    pytest.importorskip("python_calamine")

    def cell(text, attributes):
        return f"<table:table-cell {attributes}><text:p>{text}</text:p></table:table-cell>"

    cells = {text: cell(text, f'office:value-type="float" office:value="{text}"') for text in "123"}
    cells |= {text: cell(text, 'office:value-type="string"') for text in "abc"}
    cells["/"] = cell("#DIV/0!", 'table:formula="of:=1/0" office:value-type="float" office:value="0"')
    cells["?"] = '<table:table-cell table:formula="of:=1+1"/>'
    cells["="] = cell("5", 'table:formula="of:=1+4" office:value-type="float" office:value="5"')
    rows = "".join(
        f"<table:table-row{repeated}>{''.join(cells[sign] for sign in signs)}</table:table-row>"
        for signs, repeated in [
            ("abc", ""),
            ("123", ' table:number-rows-repeated="2"'),
            ("1/3", ""),
            ("12?", ""),
            ("12=", ""),
        ]
    )
    spaces = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in SPACES)
    content = (
        f'<office:document-content {spaces}><office:body><office:spreadsheet><table:table table:name="s">{rows}'
        "</table:table></office:spreadsheet></office:body></office:document-content>"
    )
    with zipfile.ZipFile(tmp_path / "t.ods", "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", "<manifest/>")
        archive.writestr("content.xml", content)
    table = p2pkm.read_table(tmp_path / "t.ods", missing="drop")
    assert table.points.tolist() == [[1, 2, 3], [1, 2, 3], [1, 2, 5]]
    assert "B4 #DIV/0!" in table.notes[0] and "(C5)" in table.notes[0]


@pytest.mark.parametrize("field", ["(5)", "5-", "\N{MINUS SIGN}5", "#DIV/0!"])
@pytest.mark.parametrize("decimal", [".", ","])
def test_numbers_of_other_formats_are_explained(field, decimal):
    said = "#DIV/0!', the error of a formula.*na='#DIV/0!'" if field[0] == "#" else "negative number.*expected -5"
    refuse(said, {"x": ["1", field, "2", "3"]}, decimal=decimal)


def test_contents_of_another_kind_than_the_suffix_are_named(tmp_path):
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 5.0]})
    names = {"c.csv": "text", "n.npy": "an array of NumPy", "g.csv.gz": "text compressed by gzip"}
    frame.to_csv(tmp_path / "c.csv", index=False)
    frame.to_csv(tmp_path / "g.csv.gz", index=False)
    np.save(tmp_path / "n.npy", frame.to_numpy())
    for name, what in names.items():
        for suffix in (".csv", ".xlsx", ".xls", ".parquet", ".npy", ".h5ad"):
            path = tmp_path / f"wrong{suffix}"
            shutil.copy(tmp_path / name, path)
            if not name.endswith(suffix):
                refuse(
                    rf"contains {what}; expected the format of its suffix.*Rename the file to wrong\{name[1:]}", path
                )
    shutil.copy(tmp_path / "c.csv", tmp_path / "t.csv.gz")
    refuse("text that is not compressed. Rename the file to t.csv", tmp_path / "t.csv.gz")
    shutil.copy(tmp_path / "g.csv.gz", tmp_path / "t.gz")
    refuse("rename it to t.csv.gz", tmp_path / "t.gz")
    (tmp_path / "t.xls").write_text("<html><table><tr><td>1</td></tr></table>")
    refuse("a web page", tmp_path / "t.xls")


def _list_objects():
    records = np.array([(1.0, 0), (2.0, 1)], dtype=[("x", float), ("device", int)])
    yield records, "pandas.DataFrame"
    yield records.view(np.recarray), "pandas.DataFrame"
    pyarrow = pytest.importorskip("pyarrow")
    dataset = pytest.importorskip("pyarrow.dataset")
    yield dataset.dataset(pyarrow.table({"x": [1.0, 2.0]})), "to_table"
    anndata = pytest.importorskip("anndata")
    yield anndata.AnnData(np.ones((2, 2))), "to_df"


def test_objects_of_other_libraries_are_named_at_every_door():
    doors = (
        p2pkm.read_table, p2pkm.describe_table, p2pkm.Shards.deal, p2pkm.P2PKMeans(2, n_devices=2).fit,
        lambda data: p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(2), data),
    )  # fmt: skip
    for data, call in _list_objects():
        for door in doors:
            with pytest.raises(DataError, match=call):
                door(data)


def test_lazy_frames_and_batches_are_read():
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    columns = {"x": [1.0, 2.0, 5.0], "device": [0, 1, 0]}
    for data in (polars.DataFrame(columns).lazy(), pyarrow.RecordBatch.from_pydict(columns)):
        assert p2pkm.read_table(data).points.shape == p2pkm.Shards.deal(data).points.shape == (3, 1)
        with pytest.raises(DataError, match=r"X\.collect\(\), or pyarrow"):
            p2pkm.P2PKMeans(2, n_devices=2).fit(data)


NEGATIVE = [[0, 1, -1], ["a", "b", "-1"], [0.0, 1.0, -1.0]]


@pytest.mark.parametrize("device", NEGATIVE)
def test_devices_below_0_are_refused(tmp_path, device):
    frame = pandas.DataFrame({"x": [1.0, 2.0, 3.0], "device": device})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for table in (frame, tmp_path / "t.csv"):
        refuse(r"-1.*at 1 of 3 rows \(2, .*Use na='-1(\.0)?' with missing='drop' .*rename='-1(\.0)?=NAME'", table)
    points = frame[["x"]].to_numpy()
    for call in (
        p2pkm.Shards.deal,
        lambda X, d: p2pkm.partition.column(d),
        lambda X, d: p2pkm.P2PKMeans(2).fit(X, devices=d),
    ):
        with pytest.raises(DataError, match="numbers below 0"):
            call(points, device)
    left = p2pkm.read_table(tmp_path / "t.csv", na=["-1", "-1.0"], missing="drop")
    assert left.points.tolist() == [[1], [2]]
    named = p2pkm.read_table(tmp_path / "t.csv", rename={str(device[2]): "c"})
    assert "c" in named.device.tolist() and len(named.points) == 3


def test_devices_below_0_of_arrays_are_refused(tmp_path):
    np.save(tmp_path / "t.npy", np.array([[1.0, 0], [2, -1]]))
    np.savez(tmp_path / "t.npz", X=np.ones((2, 2)), client=[0, -1])
    refuse("below 0.*Remove such rows", tmp_path / "t.npy", device_column=1)
    refuse("below 0.*Remove such rows", tmp_path / "t.npz")


@pytest.mark.parametrize(("label", "noted"), [([0, 1, 2, -1], True), ([1, -1, 1, -1], False), ([0, 1, 2, 3], False)])
def test_a_label_below_0_among_others_is_noted(label, noted):
    notes = p2pkm.read_table({"x": [1, 2, 4, 3], "label": label}).notes or ()
    assert any("label -1 is read as a class" in note for note in notes) == noted


@pytest.mark.parametrize("value", [[0, None, 1], ["a", None, "b"], [0, np.nan, 1]])
def test_missing_devices_of_arrays_are_located(value):
    points = np.arange(3.0)[:, None]
    for call in (p2pkm.Shards.deal, lambda X, d: p2pkm.P2PKMeans(2).fit(X, devices=d)):
        with pytest.raises(DataError, match=r"at row 1 \(counted from 0\), in 1 of 3 rows.*Remove such rows"):
            call(points, value)


def test_spellings_are_merged_by_the_command_of_the_note(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sites = ["München", "Muenchen", "Bonn", "bonn", "Essen", "Essen"]
    frame = pandas.DataFrame({"site": sites, "sex": ["m", "M", "f", "f", "m", "f"], "x": range(6)})
    frame.to_csv("t.csv", index=False)
    rename = "Muenchen=München,bonn=Bonn"
    assert f"--rename {rename}" in note_alike(sorted(set(sites)))[0].replace("'", "") or (
        "Use --rename" in note_alike(["München", "Muenchen"])[0]
    )
    note = note_alike(["Muenchen", "München", "muenchen"], {"Muenchen": 22, "München": 73, "muenchen": 1})[0]
    assert "--rename Muenchen=München,muenchen=München " in note.replace("'", "")
    for form in (rename, rename.split(","), dict(pair.split("=") for pair in rename.split(","))):
        table = p2pkm.read_table("t.csv", device_column="site", drop="sex", rename=form)
        assert table.device.tolist() == ["München", "München", "Bonn", "Bonn", "Essen", "Essen"]
    table = p2pkm.read_table("t.csv", device_column="site", encode="sex", rename="M=m")
    assert table.features == ("x", "sex=m") and table.points[:, 1].tolist() == [1, 1, 0, 0, 1, 0]
    refuse("^t.csv: rename names 'Berlin', which no", "t.csv", device_column="site", drop="sex", rename="Berlin=B")
    described = p2pkm.describe_table("t.csv", rename=rename)
    assert described.devices == {"Bonn": 2, "Essen": 2, "München": 2}
    rows = read_new_rows("t.csv", table.schema)
    assert rows.points[:, 1].tolist() == [1, 1, 0, 0, 1, 0]


def test_files_are_merged_by_their_names(tmp_path):
    for name in ("Bonn", "bonn2", "Essen"):
        (tmp_path / f"{name}.csv").write_text("x\n1\n2\n")
    table = p2pkm.read_table(tmp_path, rename="bonn2=Bonn")
    assert p2pkm.Shards.deal(table).names == ("Bonn", "Essen")


def test_schemas_with_two_features_for_two_categories_are_still_read():
    columns = [{"name": "sex", "kind": "category", "values": ["f", "m"], "low": None, "high": None, "fill": None}]
    schema = Schema.from_mapping({
        "columns": columns, "device_column": None, "keep": [], "missing": "refuse", "options": {},
    })  # fmt: skip
    assert schema.features == ("sex=f", "sex=m")
    assert read_new_rows({"sex": ["m", "f"]}, schema).points.tolist() == [[0, 1], [1, 0]]


def test_advice_on_codes_of_missing_values_is_one():
    rng = np.random.default_rng(0)
    frame = {"a": [*rng.normal(50, 3, 40), -99], "b": rng.normal(size=41)}
    described = p2pkm.describe_table(frame)
    assert described.options["na"] == "-99" and "use --na -99" in described.columns[0].suspicions[0]
    # In another column, -99 is a value, which --na would remove, too.
    other = p2pkm.describe_table(frame | {"b": [*rng.normal(-99, 3, 40), -99]})
    assert "na" not in other.options and "leave such fields empty" in other.columns[0].suspicions[0]
