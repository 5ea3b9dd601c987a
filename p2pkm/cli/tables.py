"""Commands ``p2pkm data`` and ``p2pkm predict``: tables before and after a run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from p2pkm.cli.options import option, with_format
from p2pkm.engine.run_options import OPTIONS

# Options of a run that describe a file instead of its columns; `p2pkm.data.new_rows.FORMAT`.
_FORMAT = ("na", "decimal", "thousands", "separator", "encoding", "sheet", "header", "dates", "rename", "skip_rows")
_COLUMNS = [
    name
    for name, declared in OPTIONS.items()
    if declared.section == OPTIONS["columns"].section and name not in ("scale", "dtype")
]


_Command = Callable[..., Any]


def _with_options(*names: str) -> Callable[[_Command], _Command]:
    """Return a decorator that adds options of a run to a command."""

    def add(function: _Command) -> _Command:
        for name in names:
            flag = f"--{name.replace('_', '-')}"
            function = option(flag, name, metavar=OPTIONS[name].metavar, help=OPTIONS[name].help)(function)
        return function

    return add


@click.command(
    "data",
    short_help="Describe a table, and the options that read it.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("table", metavar="FILE")
@_with_options("label_column", "device_column", *_COLUMNS)
@with_format
def data(table: str, form: str, **options: Any) -> int:
    """Describe a table before a run: a line per column, suspicions, devices, and the command line that reads it."""
    from p2pkm.data.describe_table import describe_table

    described = describe_table(table, **options)
    click.echo(json.dumps(described.to_mapping()) if form == "json" else str(described))
    return 0


@click.command(
    "predict",
    short_help="Assign new rows to the clusters of a run.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("table", metavar="FILE")
@option("--device", metavar="NAME", help="Device whose centroids are used.  [default: that of each row, if known]")
@option("--common", is_flag=True, help="Use the centroids of lowest pooled cost for all rows.")
@option(
    "--neighbors",
    metavar="LIST",
    help="Neighbors, in the run, of a device that was not in it, which gets centroids of its own.",
)
@option("--keep", metavar="LIST", help="Columns to copy.  [default: those of the run]")
@_with_options(*_FORMAT)
@option("--any-range", is_flag=True, help="Accept values far outside of the range in the run.")
@option("--out", metavar="FILE", type=click.Path(path_type=Path), help="CSV file.  [default: print]")
@with_format
def predict(
    run: Path, table: str, device: str | None, common: bool, neighbors: str | None, keep: str | None, any_range: bool,
    out: Path | None, form: str, **options: Any,
) -> int:  # fmt: skip
    """Assign new rows to the clusters of a run, in the units of its table.

    Columns, categories, dates and missing values are read as in the run; options describe a file of another program.
    Clusters have the numbers of labels.csv.
    """
    from p2pkm.experiments.console import print_note
    from p2pkm.experiments.predict import predict_rows, write_prediction

    prediction = predict_rows(
        run,
        table,
        device=device,
        common=common,
        neighbors=neighbors,
        keep=keep,
        check_ranges=not any_range,
        form=options,
    )
    for note in prediction.notes:
        print_note(note)
    if out is not None:
        write_prediction(prediction, out)
        click.echo(f"written: {out} ({len(prediction.device):,} rows)")
    elif form == "json":
        columns = prediction.copied | {"device": prediction.device, "cluster": prediction.cluster.tolist()}
        click.echo(json.dumps(columns))
    else:
        click.echo(prediction.to_csv(), nl=False)
    return 0
