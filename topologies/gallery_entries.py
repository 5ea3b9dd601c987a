"""The gallery: graphs with all their options under one name, as data in the folder `gallery`."""

from typing import Any, NamedTuple

from topologies.errors import GraphError


class GalleryEntry(NamedTuple):
    """A graph in one file of the gallery.

    Attributes
    ----------
    family : str
        A key of `FAMILIES` or `TIME_VARYING`.
    n : int
        The number of devices.
    description, reference : str
        What it is good for, and where it comes from.
    options : dict
        The options of the family.

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
    """List the names in the gallery.

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
        If there is none of this name.

    Examples
    --------
    >>> import topologies
    >>> topologies.read_recipe("torus-8x8").options
    {'rows': 8}
    """
    import tomllib

    known, key = recipes(), str(name).replace("_", "-").lower()
    if key not in known:
        raise GraphError(f"the gallery has no {name!r}; known: {', '.join(known)}")
    return GalleryEntry(**tomllib.loads((_folder() / f"{key}.toml").read_text("utf-8")))


def _folder() -> Any:
    from importlib.resources import files

    return files("topologies") / "gallery"
