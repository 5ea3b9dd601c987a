"""What is handed out: one version, a wheel with all that it needs and nothing else, and names for a shell."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import p2pkm
from p2pkm.cli.run import command
from tests.support.each import each
from tests.support.run_cli import environment, here

ROOT = Path(__file__).parents[2]
DATA = {".toml", ".css", ".js", ".json", ".typed", ".pyi"}  # suffixes of what a package has beside its modules


def test_package_citation_and_changelog_agree_on_the_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"] and "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "p2pkm/core/version.py"
    version = p2pkm.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", version)
    assert re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE) == [version]
    newest = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    if ".dev" in version:
        assert newest == f"{version.partition('.dev')[0]} (unreleased)"
    else:
        assert re.fullmatch(rf"\[?{re.escape(version)}\]? - \d{{4}}-\d\d-\d\d", newest)
    assert here("--version").out == f"p2pkm, version {version}\n"


def _tracked(*folders):
    """Return the files below folders that git knows."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout:
        pytest.skip("not a git checkout: the list of files is not known")
    return {name for name in done.stdout.splitlines() if (ROOT / name).exists()}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build wheel and sdist from a copy of the checkout, and return their paths."""
    pytest.importorskip("hatchling")
    copy = tmp_path_factory.mktemp("copy")
    for name in _tracked("."):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    program = "from hatchling.build import build_sdist, build_wheel; print(build_wheel('out'), build_sdist('out'))"
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=copy, capture_output=True, text=True, check=True, timeout=200)
    return [copy / "out" / name for name in done.stdout.split()]


def test_the_wheel_holds_the_packages_with_their_data_and_nothing_else(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = wheel.namelist()
        metadata = wheel.read(next(name for name in names if name.endswith("/METADATA"))).decode()
        entries = wheel.read(next(name for name in names if name.endswith("/entry_points.txt"))).decode()
    inside = {name for name in names if ".dist-info/" not in name}
    assert inside == _tracked("p2pkm", "topologies")
    assert {name for name in inside if not name.endswith(".py")} == {n for n in inside if Path(n).suffix in DATA}
    assert {"p2pkm/py.typed", "topologies/py.typed", "topologies/gallery/karate.toml"} <= inside
    assert any(name.endswith("/LICENSE") for name in names)
    assert f"Version: {p2pkm.__version__}\n" in metadata and "p2pkm = p2pkm.cli.main:run_program" in entries


def test_the_sdist_can_be_tested_and_cited(built):
    with tarfile.open(built[1]) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    assert _tracked("p2pkm", "topologies", "tests", "examples", "launch", "docs") <= inside
    assert {"README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "SECURITY.md", "pyproject.toml"} <= inside


@pytest.mark.slow
def test_the_wheel_runs_outside_the_checkout(built, tmp_path):
    with zipfile.ZipFile(built[0]) as wheel:
        wheel.extractall(tmp_path / "site")
    words = "-m p2pkm --graph gallery:karate --data grid16:points=5 --rounds 2 --out none --no-baselines -q".split()
    known = environment(PYTHONPATH=str(tmp_path / "site"))
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=known, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    program = [sys.executable, "-c", "import p2pkm, topologies; print(p2pkm.__file__, topologies.__file__)"]
    found = subprocess.run(program, cwd=tmp_path, env=known, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.split() == [str(tmp_path / "site" / name / "__init__.py") for name in ("p2pkm", "topologies")]


# Shell completion


def _completed(line):
    """Return what a shell is told at the end of a line: kind and value of each entry."""
    *words, typed = line.split(" ")[1:]
    shell = ShellComplete(command, {}, "p2pkm", "_P2PKM_COMPLETE")
    return [(item.type, item.value) for item in shell.get_completions(words, typed)]


@each(
    ("line", "names"),
    [
        ("p2pkm --graph small", ["small-world"]),
        ("p2pkm --algorithm fk", ["fkm", "fkmeanscb"]),
        ("p2pkm run --data gr", ["grid16"]),
        ("p2pkm --partition di", ["dirichlet"]),
        ("p2pkm --init l", ["leader", "local"]),
        ("p2pkm --link-model la", ["lan"]),
        ("p2pkm --init g", ["global"]),
        ("p2pkm --schedule ", ["colored", "jacobi", "async"]),
        ("p2pkm --graph nothing-like-it", []),
        ("p2pkm compare --algorithm gtvmin,fec", ["gtvmin,feca"]),
        ("p2pkm compare --graph ring,kara", ["ring,karate"]),
        ("p2pkm topology describe kara", ["karate"]),
        ("p2pkm topology compare ring kara", ["karate"]),
        ("p2pkm algorithms kf", ["kfed"]),
        ("p2pkm swe", ["sweep"]),
        ("p2pkm --ini", ["--init"]),
    ],
)
def test_names_are_completed(line, names):
    assert sorted(_completed(line)) == sorted(("plain", name) for name in names)


def test_data_that_is_no_name_is_a_file():
    assert _completed("p2pkm --data my") == [("file", "my")]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(tmp_path):
    (tmp_path / "p2pkm").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m p2pkm "$@"\n')
    (tmp_path / "p2pkm").chmod(0o755)
    script = (
        'eval "$(_P2PKM_COMPLETE=bash_source p2pkm)"; COMP_WORDS=(p2pkm --graph kar); COMP_CWORD=2; '
        '_p2pkm_completion p2pkm; echo "${COMPREPLY[@]}"'
    )
    known = environment() | {"PATH": f"{tmp_path}:{environment()['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=known, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "karate\n", done.stderr
