"""Tables whose rows are played in one test: to pytest each test costs more than a short row."""

from collections.abc import Callable, Iterable
from typing import Any

from _pytest.mark import ParameterSet


def each(names: Any, rows: Iterable[Any], ids: Any = None) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Play all rows in one test, which tells all that fail; written as `pytest.mark.parametrize`, without fixtures."""
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    is_bare = isinstance(names, str) and len(words) == 1  # a row is the value itself
    table = list(rows)

    def decorate(function: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            assert table, "a table without rows"
            failed = []
            for row in table:
                values = row.values if isinstance(row, ParameterSet) else (row,) if is_bare else row
                given = dict(zip(words, values, strict=True))
                try:
                    function(**given)
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # pytest.fail raises no Exception
                    error.add_note(f"row: {given!r}"[:1000])
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(table)} rows", failed)

        test.__name__, test.__doc__, test.__module__ = function.__name__, function.__doc__, function.__module__
        return test

    return decorate
