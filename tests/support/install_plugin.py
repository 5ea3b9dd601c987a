"""Temporary installation of a plug-in package during a test."""

import importlib
import sys

import pytest


def install(folder, name, module, groups):
    """Write the files of an installed package: the module and the list of its entry points."""
    (folder / f"{name.replace('-', '_')}.py").write_text(module)
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
        for group, points in groups.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield tmp_path
    for name in [path.stem for path in tmp_path.glob("*.py")]:
        sys.modules.pop(name, None)
