"""Gallery of recipes: families with all their options under one name, one TOML file each in the folder `gallery`."""

from typing import Any, NamedTuple

from topologies.errors import GraphError


class GalleryEntry(NamedTuple):
    """Recipe of a graph.

    Attributes
    ----------
    family : str
        A key of `FAMILIES` or `TIME_VARYING`.
    n : int
        Number of devices.
    description : str
        Purpose of the graph.
    reference : str
        Source of the graph.
    options : dict
        Options of the family.

    Examples
    --------
    >>> import topologies
    >>> entry = topologies.read_recipe("ring-16")
    >>> entry.family, entry.n
    ('ring', 16)
    """

    family: str
    n: int
    description: str
    reference: str
    options: dict[str, Any]


def recipes() -> list[str]:
    """List the names of all recipes in the gallery.

    Examples
    --------
    >>> import topologies
    >>> topologies.recipes()[:3]
    ['clustered-hubs-100', 'd-cliques-100', 'davis']
    """
    return sorted(entry.name[: -len(".toml")] for entry in _folder().iterdir() if entry.name.endswith(".toml"))


def read_recipe(name: str) -> GalleryEntry:
    """Read a recipe of the gallery.

    Raises
    ------
    GraphError
        If the name is unknown.

    Examples
    --------
    >>> import topologies
    >>> topologies.read_recipe("torus-8x8").options
    {'rows': 8}
    """
    import tomllib

    known = recipes()
    key = str(name).replace("_", "-").lower()
    if key not in known:
        raise GraphError(f"gallery recipe is {name!r}; expected one of: {', '.join(known)}")
    return GalleryEntry(**tomllib.loads((_folder() / f"{key}.toml").read_text("utf-8")))


def _folder() -> Any:
    from importlib.resources import files

    return files("topologies") / "gallery"
