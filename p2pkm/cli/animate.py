"""Command line of ``p2pkm animate``: the pictures of a run."""

import click


@click.command("animate", short_help="Film a run from its folder.")
@click.argument("run", metavar="RUN", type=click.Path())
@click.option(
    "--out", metavar="FILE", help="A .gif file, or .mp4 where there is ffmpeg.  [default: RUN/figures/replay.gif]"
)
@click.option("--fps", type=click.IntRange(1, 50), default=5, show_default=True, help="Frames per second.")
def animate(run: str, out: str | None, fps: int) -> int:
    """Film a run from its folder: the graph as devices come to agree, and the centroids as they move."""
    from pathlib import Path

    from p2pkm.viz import animate as film

    click.echo(f"filmed: {film(run, Path(run) / 'figures' / 'replay.gif' if out is None else out, fps=fps)}")
    return 0
