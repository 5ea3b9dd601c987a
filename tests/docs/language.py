"""Checks of the language of code and pages: ``python -m tests.docs.language [PATH ...]`` lists what breaks the rules.

The rules are in CONTRIBUTING.md. Checked are the first word of docstrings, phrases that are not English of the field,
names that say nothing, and the length of sentences in user pages.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("p2pkm", "topologies")
FIRST_WORDS = {"What", "Who", "Whom", "How", "Which", "Whose", "Where", "Why", "When", "Let", "Refuse", "That"}
FIRST_PHRASES = re.compile(r"Return (what|who|which|why|where|whether and|how|so)\b|Do (so|the same|it)\b")
PHRASES = re.compile(
    r"\b(but for|of no meaning|so many|so much|beside|anew|in the place of|nobody|whoever|of (one's|your) own"
    r"|(is|are|was|were) no(?= \w)(?! (longer|more|less))|(go|goes|went) on\b|as (it is|they are)(?=[.,;:)]|$))",
    re.IGNORECASE,
)
NAMES = {
    *{
        "scene",
        "keeper",
        "handed",
        "told",
        "played",
        "found",
        "asked",
        "wanted",
        "given",
        "which",
        "who",
        "whose",
        "whom",
    },
    *{
        "one",
        "ones",
        "some",
        "here",
        "there",
        "theirs",
        "mine",
        "ours",
        "own",
        "others",
        "whole",
        "word",
        "apart",
        "near",
    },
    *{"beside", "news", "kept", "taken", "nobody", "alike", "again", "both", "such", "much", "anew", "went", "came"},
}  # names of variables, parameters, fields and functions that do not say what a value is
LONGEST = 40  # words of a sentence in a user page; the guide asks for 25


class Finding(NamedTuple):
    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text}"


def check_docstrings(path: Path, nodes: list[ast.AST]) -> Iterator[Finding]:
    """Yield docstrings whose first words do not name the thing or the action."""
    for node in nodes:
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            continue
        text = ast.get_docstring(node)
        if text and (text.split()[0].strip(",.:;") in FIRST_WORDS or FIRST_PHRASES.match(text)):
            yield Finding(path, node.body[0].lineno, f"docstring begins with {' '.join(text.split()[:3])!r}")


def check_phrases(path: Path, source: str) -> Iterator[Finding]:
    """Yield phrases of rule R7 in docstrings, comments and messages of a source file."""
    # Finding the tokens takes longer than all other rules.
    if not any(map(PHRASES.search, source.splitlines())):
        return
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts = (token for token in tokens if token.type in (tokenize.STRING, tokenize.COMMENT))
    for text in texts:
        for number, line in enumerate(text.string.splitlines(), text.start[0]):
            yield from (Finding(path, number, f"phrase {match.group()!r}") for match in PHRASES.finditer(line))


def check_names(path: Path, nodes: list[ast.AST]) -> Iterator[Finding]:
    """Yield definitions of names that say nothing of a value."""
    for node in nodes:
        for name in _defined(node):
            if name.strip("_") in NAMES:
                yield Finding(path, node.lineno, f"name {name!r}")


def _defined(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.arg):
        yield node.arg


def check_page(path: Path) -> Iterator[Finding]:
    """Yield long sentences and phrases of rule R7 in a page."""
    for line, paragraph in _paragraphs(path.read_text("utf-8")):
        for match in PHRASES.finditer(paragraph):
            yield Finding(path, line, f"phrase {match.group()!r}")
        for sentence in re.split(r"(?<=[.!?:])\s+", re.sub(r"\$\$.*?\$\$", "formula", paragraph)):
            words = len(re.sub(r"`[^`]*`|\$\$.*?\$\$|\$[^$]*\$", "code", sentence).split())
            if words > LONGEST:
                yield Finding(path, line, f"sentence of {words} words: {' '.join(sentence.split()[:6])} ...")


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield line number and text of paragraphs and list items, without code blocks, tables and headings."""
    fenced, start, lines = False, 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        mark = line.lstrip().startswith(("```", ":::", "~~~"))
        fenced ^= mark
        skip = mark or fenced or not line.strip() or line.lstrip().startswith(("|", "#", "<", "!["))
        item = bool(re.match(r"\s*([-*]|\d+\.) ", line))
        if lines and (skip or item):
            yield start, " ".join(lines)
            lines = []
        if not skip:
            start = start if lines else number
            lines.append(line.strip())


def sources(paths: list[str]) -> Iterator[Path]:
    """Yield the source files under the given paths, by default of both packages."""
    for home in paths or PACKAGES:
        path = ROOT / home
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def check(path: Path) -> Iterator[Finding]:
    """Yield all findings in a file."""
    if path.suffix == ".md":
        yield from check_page(path)
    else:
        source = path.read_text("utf-8")
        nodes = [*ast.walk(ast.parse(source))]
        yield from check_docstrings(path, nodes)
        yield from check_phrases(path, source)
        yield from check_names(path, nodes)


if __name__ == "__main__":
    for file in sources(sys.argv[1:]):
        for finding in check(file):
            print(finding)
