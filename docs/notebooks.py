"""The notebooks of `examples/`: run without Jupyter, with what their cells printed and drew stored in them.

``python docs/notebooks.py`` runs all of them and stores the outputs; a test runs them and compares what is printed. As
scripts (`to_script`) they stand in the gallery.
"""

import base64
import io
import json
import os
import re
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def run(path: Path, folder: Path) -> list[list[dict[str, Any]]]:
    """Run the cells of a notebook in a folder, one after the other; return the outputs of each code cell."""
    os.environ["MPLBACKEND"] = "Agg"
    names: dict[str, Any] = {"__name__": "__main__"}
    outputs = []
    with chdir(folder):
        for number, source in enumerate(_sources(read(path), "code"), 1):
            known, said = set(folder.glob("*.png")), io.StringIO()
            with redirect_stdout(said):
                exec(compile(source, f"{path.name}, cell {number}", "exec"), names)
            pictures = [one.read_bytes() for one in sorted(set(folder.glob("*.png")) - known)]
            outputs.append([*_stream(said.getvalue()), *map(_picture, pictures)])
    return outputs


def read(path: Path) -> dict[str, Any]:
    """Return a notebook."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def store(path: Path) -> None:
    """Run a notebook and write it with its outputs."""
    found = read(path)
    with tempfile.TemporaryDirectory() as folder:
        outputs = run(path, Path(folder))
    cells = (cell for cell in found["cells"] if cell["cell_type"] == "code")
    for number, (cell, made) in enumerate(zip(cells, outputs, strict=True), 1):
        cell |= {"execution_count": number, "outputs": made}
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def printed(outputs: list[dict[str, Any]]) -> str:
    """Return what a cell printed."""
    return "".join("".join(one["text"]) for one in outputs if one["output_type"] == "stream")


def to_script(path: Path) -> str:
    """Return a notebook as a script with cells, its words as comments, for sphinx-gallery."""
    parts = []
    for cell in read(path)["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            parts.append(f"# %%\n{text}")
            continue
        text = re.sub(r"^## (.*)$", lambda found: f"{found[1]}\n{'-' * len(found[1])}", text, flags=re.MULTILINE)
        parts.append("# %%\n" + re.sub("^", "# ", text, flags=re.MULTILINE) if parts else f'"""{text[2:]}\n"""')
    return "\n\n".join(parts) + "\n"


def _sources(found: dict[str, Any], kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in found["cells"] if cell["cell_type"] == kind]


def _stream(text: str) -> list[dict[str, Any]]:
    return [{"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}] if text else []


def _picture(content: bytes) -> dict[str, Any]:
    data = {"image/png": base64.b64encode(content).decode()}
    return {"data": data, "metadata": {}, "output_type": "display_data"}


if __name__ == "__main__":
    for notebook in [Path(word) for word in sys.argv[1:]] or sorted((ROOT / "examples").glob("*.ipynb")):
        store(notebook.resolve())
        sys.stdout.write(f"{notebook.name}: run and stored\n")
