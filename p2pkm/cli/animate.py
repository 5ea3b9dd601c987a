"""Command ``p2pkm animate``: animation of a run."""

import click

from p2pkm.cli.options import option


@click.command("animate", short_help="Animate a run from its folder.")
@click.argument("run", metavar="RUN", type=click.Path())
@option("--out", metavar="FILE", help="File .gif, or .mp4 with ffmpeg.  [default: RUN/figures/replay.gif]")
@option("--fps", type=click.IntRange(1, 50), default=5, show_default=True, help="Frames per second.")
def animate(run: str, out: str | None, fps: int) -> int:
    """Animate a run from its folder: disagreement on the graph, and the movement of the centroids."""
    from pathlib import Path

    from p2pkm.viz import animate as write_animation

    path = Path(run) / "figures" / "replay.gif" if out is None else out
    click.echo(f"written: {write_animation(run, path, fps=fps)}")
    return 0
