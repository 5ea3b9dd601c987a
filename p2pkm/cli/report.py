"""Command line of ``p2pkm report``: pages."""

import json
from pathlib import Path

import click

from p2pkm.cli.options import with_format


@click.command(
    "report",
    short_help="Write one HTML page about a run or a study.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("folder", metavar="RUN|COMPARISON|STUDY", type=click.Path(path_type=Path))
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path), help="[default: report.html in the folder]")
@with_format
def report(folder: Path, out: Path | None, form: str) -> int:
    """Write one page about a run, a comparison or a study: verdict, tables, figures, how to repeat it.

    The page of a run replays it: a slider over the rounds moves the centroids and lights the links. It is one file that
    needs no network. Code 3 if the folder holds nothing that has ended.
    """
    from p2pkm.engine.run_options import OPTIONS, RunOptions
    from p2pkm.viz.report.write import write_report

    written = write_report(folder, dict.fromkeys(OPTIONS) | RunOptions().to_mapping(), out)
    if form == "json":
        click.echo(json.dumps(written.to_json()))
    else:
        click.echo(f"written: {written.path} ({written.bytes / 1e6:.2f} MB)")
    return 0
