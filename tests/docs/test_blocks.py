"""Code blocks of README and docs: each is marked, and the quick ones print what the page shows."""

import subprocess
import sys

import pytest

from tests.docs import check_blocks
from tests.support.run_cli import environment


@pytest.fixture
def write_page(tmp_path, monkeypatch):
    """Return a function that writes a page of the documentation and returns its path."""
    monkeypatch.setattr(check_blocks, "ROOT", tmp_path)
    for name in ("examples", "tests"):
        (tmp_path / name).mkdir()

    def write(text):
        path = tmp_path / "page.md"
        path.write_text(text)
        return path

    return write


def faults(page, slow=False):
    return check_blocks.check_page(page, slow=slow).faults


@pytest.mark.slow
def test_all_pages():
    """One process for all: the blocks that are quick, and the marks of the others."""
    command = [sys.executable, "-m", "tests.docs.check_blocks"]
    done = subprocess.run(
        command, cwd=check_blocks.ROOT, env=environment(), capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_block_without_a_mark_is_a_fault(write_page):
    (fault,) = faults(write_page("```bash\nls\n```\n"))
    assert "page.md:1" in fault and "['norun', 'run']" in fault
    assert "reason" in faults(write_page("```python norun\n1\n```\n"))[0]
    assert "nothing that is run prints this" in faults(write_page("```text output\n1\n```\n"))[0]


OUTPUT = "```python run\nprint('ratio', 1.0011, '540 kB in 0.3 s')\n```\n\n```text output{}\n{}\n```\n"


@pytest.mark.parametrize(
    ("words", "shown", "good"),
    [
        ("", "ratio 1.0011 540 kB in 0.3 s", True),
        ("", "ratio  1.0011 540 kB in 12.5 s", True),  # seconds and spaces are not compared
        ("", "ratio 1.0036 1897 kB in 0.3 s", False),
        ("", "ratio 1.0012 540 kB in 0.3 s", False),
        (" tol=1e-3", "ratio 1.0012 540 kB in 0.3 s", True),
        (" tol=1e-3", "ratio 1.0036 540 kB in 0.3 s", False),
        ("", "cost 1.0011 540 kB in 0.3 s", False),
        ("", "ratio 1.0011 ...", True),
        ("", "ratio 1.0012 ...", False),
    ],
)
@pytest.mark.sample(3)
def test_what_is_shown_is_compared_with_what_is_printed(write_page, words, shown, good):
    assert (faults(write_page(OUTPUT.format(words, shown))) == []) == good


@pytest.mark.parametrize(
    ("words", "shown", "good"),
    [
        ("", "a\nb\nc", True),
        ("", "a\nc", False),
        ("", "a\nb", False),
        ("", "a\n...", True),
        ("", "a\n...\nc", True),
        (" part", "a\nc", True),
        (" part", "c\na", False),
    ],
)
@pytest.mark.sample(3)
def test_lines_that_may_be_left_out(write_page, words, shown, good):
    page = write_page(f"```python run\nprint('a\\nb\\nc')\n```\n\n```text output{words}\n{shown}\n```\n")
    assert (faults(page) == []) == good


def test_blocks_of_a_page_share_a_folder_and_names(write_page):
    page = "```python file=own.py\nx = 3\n```\n```python run\nimport own\ny = own.x\n```\n```bash run\nls own.py\n```\n"
    assert (
        faults(write_page(page + "```text output\nown.py\n```\n```python run\nprint(y)\n```\n```text output\n3\n```\n"))
        == []
    )


def test_exit_codes_and_unknown_options_are_noticed(write_page):
    assert "exit code 2; expected 0" in faults(write_page("```bash run\npython -m p2pkm --graph rnig\n```\n"))[0]
    assert faults(write_page("```bash run code=2\npython -m p2pkm --graph rnig\n```\n")) == []
    assert "--grph" in faults(write_page('```bash norun reason="long"\npython -m p2pkm --grph ring\n```\n'))[0]


def test_slow_blocks_wait_for_their_turn(write_page):
    page = write_page("```bash run slow\nfalse\n```\n\n```text output\n1\n```\n")
    assert faults(page) == []
    assert "exit code 1" in faults(page, slow=True)[0]


def test_an_output_names_a_command_of_the_page(write_page):
    page = '```bash norun reason="long"\necho 1\n```\n```text output of="echo {}"\n1\n```\n'
    assert faults(write_page(page.format(1))) == []
    assert "does not show the command" in faults(write_page(page.format(2)))[0]


def test_update_writes_what_is_printed(write_page):
    page = write_page("```python run\nprint('a 1\\nb 2\\nc 3')\n```\n\n```text output part\na 0\nc 9\n```\n\nend\n")
    difference = check_blocks.update_page(page, check_blocks.check_page(page, slow=False).printed)
    assert "-a 0" in difference and page.read_text().endswith("```text output part\na 1\nc 3\n```\n\nend\n")
    assert faults(page) == []
