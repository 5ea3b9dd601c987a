"""The figures of README and documentation, made by the commands that stand beside them.

``python docs/figures.py`` draws them anew; ``python docs/figures.py --check`` draws them elsewhere and compares. Names
of figures restrict it to these. Two figures are alike if their commands printed the same, which stands in the figure's
file, but for seconds and folders; if they have the same size; and if no tile of 16 x 16 pixels differs in its mean by
more than 0.04 (colors from 0 to 1). Of an animation the last frame is compared, and what was printed is not stored.
What is printed tells numbers apart that look alike; the tolerance is for edges of letters, which differ with the
version of the font library by 0.03.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parent
TILE, TOLERANCE = 16, 0.04

HEADLINE = "python -m p2pkm --graph ring"
RING = f"{HEADLINE} --devices 16 --data grid16:points=40 -k 16 --partition iid --init leader --coupling 10 --seed 5"
# figure: the command, what it is given besides, and the file that it writes
FIGURES = {
    "ring.gif": (f"{RING} --out ring && python -m p2pkm animate ring", "", "ring/figures/replay.gif"),
    "convergence.png": (HEADLINE, "--out out -q", "out/figures/convergence.png"),
    "two_questions.png": ("python docs/front_page.py", "", "two_questions.png"),
    "quality_encoded_bytes.png": ("python docs/quality_encoded_bytes.py", "", "quality_encoded_bytes.png"),
    "topology_study.png": ("python examples/topology_study.py", "", "topology_study.png"),
    "topology_measures.png": ("python docs/topology_measures.py", "", "topology_measures.png"),
    "graph_gallery.png": ("python examples/graph_gallery.py", "", "graph_gallery.png"),
    "time_varying_gallery.png": ("python examples/graph_gallery.py", "", "time_varying_gallery.png"),
    "bench_map.png": ("python docs/benchmark.py", "", "bench_map.png"),
    "bench_profiles.png": ("python docs/benchmark.py", "", "bench_profiles.png"),
    "bench_fronts.png": ("python docs/benchmark.py", "", "bench_fronts.png"),
    "coupling.png": ("python examples/coupling.py", "", "coupling.png"),
    "byzantine.png": ("python examples/byzantine.py", "", "byzantine.png"),
    "week.png": ("python examples/week.py", "", "week.png"),
}


def draw(names: list[str], folder: Path) -> None:
    """Draw figures into a folder; a command that several share runs once."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    with tempfile.TemporaryDirectory() as scratch:
        said: dict[str, str] = {}
        places: dict[str, Path] = {}
        for name in names:
            command, more, made = FIGURES[name]
            if command not in said:
                places[command] = Path(scratch, str(len(said)))
                said[command] = _run(command, more, places[command])
            if name.endswith(".gif"):
                shutil.copy(places[command] / made, folder / name)
                continue
            facts = PngInfo()
            facts.add_text("Description", said[command], zip=True)
            with Image.open(places[command] / made) as picture:  # a palette: a third of the bytes
                small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
            small.save(folder / name, optimize=True, pnginfo=facts)


def _run(command: str, more: str, place: Path) -> str:
    """Run a command in a new folder; return what it printed that does not depend on machine and hour."""
    place.mkdir()
    known = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    print(command, flush=True)
    said = ""
    for part in f"{command} {more}".split(" && "):
        words = [sys.executable, *shlex.split(part)[1:]]
        words = [str(ROOT / word) if word.startswith(("examples/", "docs/")) else word for word in words]
        done = subprocess.run(
            words, cwd=place, env=os.environ | {"PYTHONPATH": known}, stdout=subprocess.PIPE, text=True, check=True
        )
        said += done.stdout
    return re.sub(r"[\d.,]+ (s|min|h)\b", "", said)


def compare(one: Path, other: Path) -> str:
    """Return in words how two figures differ; nothing if they are alike."""
    from PIL import Image

    pictures, said = [], []
    for path in (one, other):
        with Image.open(path) as picture:
            said.append(picture.info.get("Description", ""))
            picture.seek(getattr(picture, "n_frames", 1) - 1)
            pictures.append(np.asarray(picture.convert("RGB"), np.float64) / 255)
    if pictures[0].shape != pictures[1].shape:
        return f"sizes {pictures[0].shape} and {pictures[1].shape}"
    apart = difference(*pictures)
    words = [f"pixels differ by {apart:.3f}"] * (apart > TOLERANCE)
    lines = zip(*(text.splitlines() for text in said), strict=False)
    odd = next((f"{a.strip()!r} and {b.strip()!r}" for a, b in lines if a != b), "lengths")
    return "; ".join([*words, *([f"what was printed differs: {odd}"] if said[0] != said[1] else [])])


def difference(one: Any, other: Any) -> float:
    """Return by how much two pictures, float[height, width, 3] from 0 to 1, differ in the mean of their worst tile."""
    apart = np.pad(one - other, [(0, -size % TILE) for size in one.shape[:2]] + [(0, 0)])
    height, width = (size // TILE for size in apart.shape[:2])
    tiles = apart.reshape(height, TILE, width, TILE, 3).mean(axis=(1, 3))
    return float(np.abs(tiles).max())


def check(names: list[str]) -> int:
    """Draw figures elsewhere and compare them with those of the documentation; return how many differ."""
    with tempfile.TemporaryDirectory() as fresh:
        draw(names, Path(fresh))
        found = {name: compare(HERE / name, Path(fresh, name)) for name in names}
    for name, words in found.items():
        print(f"{name:26} {words or 'as in docs/'}")
    wrong = [name for name, words in found.items() if words]
    if wrong:
        print(f"draw anew, and look at them: python docs/figures.py {' '.join(wrong)}")
    return len(wrong)


if __name__ == "__main__":
    given = sys.argv[1:]
    wanted = [name for name in given if name != "--check"] or list(FIGURES)
    if wrong := [name for name in wanted if name not in FIGURES]:
        sys.exit(f"unknown figure {wrong[0]!r}; known: {', '.join(FIGURES)}")
    if "--check" in given:
        sys.exit(min(check(wanted), 1))
    draw(wanted, HERE)
