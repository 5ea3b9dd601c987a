"""Command ``p2pkm report``: HTML pages."""

import json
from pathlib import Path

import click

from p2pkm.cli.options import option, with_format


@click.command(
    "report",
    short_help="Write an HTML page about a run or a study.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("folder", metavar="RUN|COMPARISON|STUDY", type=click.Path(path_type=Path))
@option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File of the page.  [default: report.html in the folder]",
)
@with_format
def report(folder: Path, out: Path | None, form: str) -> int:
    """Write an HTML page about a run, a comparison or a study: verdict, tables, figures, commands that repeat it.

    The page of a run has a replay: a slider over the rounds moves the centroids and highlights the links. The page is a
    single file and works offline. Exit code 3 if the folder lacks finished results.
    """
    from p2pkm.engine.run_options import OPTIONS, RunOptions
    from p2pkm.viz.report.write import write_report

    written = write_report(folder, dict.fromkeys(OPTIONS) | RunOptions().to_mapping(), out)
    if form == "json":
        click.echo(json.dumps(written.to_json()))
    else:
        click.echo(f"written: {written.path} ({written.bytes / 1e6:.2f} MB)")
    return 0
