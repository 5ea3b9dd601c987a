"""The verdicts on what papers printed of a method, counted from what the full runs printed."""

import re
from pathlib import Path


def count_verdicts(results: Path) -> str:
    """Return a table in Markdown: a row for each figure, with how many of its values are as published.

    Verdicts in parentheses are about what was not printed there, or not of that method: they do not count.
    """
    lines, figure, scores = ["| figure | script | as published | other |", "|---|---|---|---|"], "", {}
    for line in results.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            scores[paper := f"**{line[3:]}**", ""] = None
        elif line.startswith("### "):
            figure, _, script = line[4:].partition(": ")
            scores[figure, script.split(" ")[0].strip("`"), paper] = [0, 0]
        elif found := re.search(r"\s(as published|differs by \S+)$", line):
            scores[list(scores)[-1]][found[1] != "as published"] += 1
    judged = {paper for (_, _, *papers), counts in scores.items() if counts and any(counts) for paper in papers}
    for (name, script, *_), counts in scores.items():
        if counts is None and name in judged:
            lines.append(f"| {name} | | | |")
        elif counts and any(counts):
            lines.append(f"| {name} | `{script}` | {counts[0]} | {counts[1] or ''} |")
    return "\n".join(lines) + "\n"
