"""Complete HTML page with inlined style and scripts, which loads nothing from a network."""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import NamedTuple

from p2pkm.storage.save import write_bytes
from p2pkm.viz.report.html import Content, Html, tag

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
$title
<style>$style</style>
</head>
<body>
<main>
$body
</main>
$scripts
</body>
</html>
""")


class Page(NamedTuple):
    """Report as one HTML page, which a notebook displays in a frame.

    Attributes
    ----------
    html : str
    """

    html: str

    def __repr__(self) -> str:
        return f"<Page of {len(self.html):,} letters; save(path) writes it, and a notebook displays it>"

    def _repr_html_(self) -> str:
        return tag(
            "iframe", srcdoc=self.html, title="report of a run", sandbox="allow-scripts", loading="lazy",
            style="width:100%;height:80vh;min-height:32rem;border:1px solid #888",
        ).text  # fmt: skip

    def save(self, path: str | Path) -> Path:
        """Write the page to a file, which appears only when it is complete."""
        target = Path(path)
        write_bytes(target.parent, target.name, lambda file: file.write(self.html.encode("utf-8", "replace")))
        return target


def render_page(title: str, body: Sequence[Content], scripts: Sequence[str] = ()) -> str:
    """Render the page as a string.

    Its content security policy allows only these scripts, identified by their hashes, and no loading from elsewhere.

    Parameters
    ----------
    title : str
    body : sequence of str or Html
    scripts : sequence of str, default=()
        File names in the folder `assets` of this package.
    """
    texts = [_read(name) for name in scripts]
    hashes = "".join(f" 'sha256-{_digest(text)}'" for text in texts) or " 'none'"
    return _PAGE.substitute(
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src{hashes}",
        title=tag("title", title).text,
        style=_read("page.css"),
        body="\n".join(part.text if isinstance(part, Html) else tag("p", part).text for part in body),
        scripts="\n".join(f"<script>{text}</script>" for text in texts),
    )


def _read(name: str) -> str:
    return (files("p2pkm.viz.report") / "assets" / name).read_text("utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
