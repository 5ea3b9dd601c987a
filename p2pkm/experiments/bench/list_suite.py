"""Lists of suites, tasks and entries for users."""

from typing import Any

from p2pkm.core.units import count
from p2pkm.experiments.bench.entries import Entry, count_entries, list_entries, split_list
from p2pkm.experiments.bench.suites import list_suites, read_suite


def describe_suites(name: str | None) -> list[dict[str, Any]]:
    """Describe all suites by name, version, title and size or, with a name, one suite with tasks and entries.

    Raises
    ------
    ExperimentError
        If the suite is unknown.
    """
    described = []
    for suite in map(read_suite, list_suites() if name is None else [name]):
        listed: dict[str, Any] = {"suite": suite.name, "version": suite.version, "title": suite.title}
        if name is None:
            listed["tasks"] = len(suite.tasks)
        else:
            listed["tasks"] = [
                {
                    "task": task.name,
                    "data": task.file or task.options.data,
                    "clusters": task.options.clusters,
                    "devices": task.options.devices,
                    "partition": task.options.partition,
                    "graphs": list(task.graphs),
                    "seeds": list(task.seeds),
                    "known": dict(task.known),
                }
                for task in suite.tasks
            ]
            listed["entries"] = [
                _describe_entry(entry) for entry in list_entries(split_list(suite.algorithm), suite.variants)
            ]
        described.append(listed)
    return described


def _describe_entry(entry: Entry) -> dict[str, Any]:
    """Describe an entry, with the options of its runs as on the command line."""
    options = {key: value if isinstance(value, int | float) else str(value) for key, value in entry.options.items()}
    return entry._asdict() | {"options": options}


def format_suites(described: list[dict[str, Any]]) -> str:
    """Format the description of suites as text."""
    if not isinstance(described[0]["tasks"], list):
        width = max(len(suite["suite"]) for suite in described)
        return "\n".join(
            f"{suite['suite']:{width}}  version {suite['version']}, {count(suite['tasks'], 'task')}: {suite['title']}"
            for suite in described
        )
    suite = described[0]
    lines = [f"{suite['suite']}, version {suite['version']}: {suite['title']}", ""]
    for task in suite["tasks"]:
        place = f"{task['devices']} devices, {task['partition']}, {' and '.join(task['graphs'])}"
        size = count(len(task["seeds"]), "seed")
        lines.append(f"  {task['task']}: {task['data']}, k = {task['clusters']}, {place}, {size}")
    names = ", ".join(entry["name"] for entry in suite["entries"])
    return "\n".join([*lines, "", f"{count_entries(len(suite['entries']))}: {names}"])
