"""Write into the pages what is made from measured values and from the program: ``python docs/write_pages.py``.

Pages are read where they stand, without a build. So they contain measured values (see measured.py) and tables, between
``<!-- made: NAME -->`` and ``<!-- end -->``; the pages of methods are written as a whole. With ``--check`` nothing is
written, and pages that would change are listed.
"""

import re
import sys
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# The program beside these pages, not another copy that is installed, whose pages would be written here in silence.
sys.path.insert(0, str(ROOT))

import benchmark  # noqa: E402
import front_page  # noqa: E402
import measured  # noqa: E402
import reference_pages  # noqa: E402
import verdicts  # noqa: E402

METHOD_PAGES = HERE / "ref" / "methods"
PART = re.compile(r"(<!-- made: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


@cache
def make_parts() -> dict[str, str]:
    """Make all tables, by the name of the part of a page that shows them."""
    papers = verdicts.count_verdicts(ROOT / "examples" / "reproduce" / "RESULTS.md")
    results = benchmark.make_tables() | front_page.make_tables()
    return reference_pages.make_tables() | measured.make_tables() | results | {"verdicts": papers}


def write_page(text: str, page: Path) -> str:
    """Return the text of a page with its current parts and values.

    Raises
    ------
    KeyError
        If a part or the row of a value has an unknown name.
    """
    text = PART.sub(lambda match: f"{match[1]}\n{make_parts()[match[2]].strip()}\n\n{match[3]}", text)
    return measured.write_values(text, page)


def make_pages() -> dict[Path, str]:
    """Make the texts of all pages, those of methods included."""
    pages = [ROOT / "README.md", *sorted(HERE.glob("*.md")), *sorted(HERE.glob("[!_]*/*.md"))]
    texts = {page: write_page(page.read_text("utf-8"), page) for page in pages}
    return texts | {
        METHOD_PAGES / f"{name}.md": reference_pages.describe_method(name) for name in reference_pages.list_pages()
    }


def list_outdated() -> list[Path]:
    """List the pages that would change, and pages of methods that are not there any more."""
    made = make_pages()
    changed = [page for page, text in made.items() if not page.exists() or page.read_text("utf-8") != text]
    return changed + sorted(set(METHOD_PAGES.glob("*.md")) - made.keys())


def main(words: list[str]) -> int:
    """Write the pages, or list those that would change."""
    if unknown := [word for word in words if word != "--check"]:
        sys.exit(f"unknown word {unknown[0]!r}; known: --check")
    outdated = list_outdated()
    for page in outdated:
        print(page.relative_to(ROOT).as_posix())
    if "--check" in words:
        return min(len(outdated), 1)
    METHOD_PAGES.mkdir(exist_ok=True)
    for page in outdated:
        if page in make_pages():
            page.write_text(make_pages()[page], "utf-8")
        else:
            page.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
