"""Functions of a program as values of options and parameters: their names, their content, and what they return."""

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Literal, TypeGuard

from p2pkm.core.errors import ContractError


def name_function(function: Callable[..., Any]) -> str:
    """Return the name of a function; of a partial call that of its function, of another object that of its class."""
    if isinstance(function, partial):
        return name_function(function.func)
    return getattr(function, "__name__", type(function).__name__)


def is_function(value: object) -> TypeGuard[Callable[..., Any]]:
    """Check whether a value is a function, a partial call or an object that can be called, and no class."""
    return callable(value) and not isinstance(value, type)


def list_content(function: Callable[..., Any]) -> list[Any]:
    """List what distinguishes a function from others: source, default values and the values that it refers to.

    Two functions with equal content return the same in every process. Values that the function reads from its module
    are covered by the source of the module only.
    """
    if isinstance(function, partial):
        return ["partial", list_value(function.func), list_value(function.args), list_value(function.keywords)]
    if isinstance(function, MethodType):
        return ["method", list_content(function.__func__), list_value(function.__self__)]
    kind = type(function)
    # Functions of NumPy and of other extensions have neither a source nor attributes.
    if isinstance(function, BuiltinFunctionType) or not hasattr(function, "__dict__"):
        return ["built in", kind.__name__, getattr(function, "__module__", ""), name_function(function)]
    if not isinstance(function, FunctionType):
        return ["object", f"{kind.__module__}.{kind.__qualname__}", read_source(kind), list_value(vars(function))]
    cells = [_list_cell(cell) for cell in function.__closure__ or ()]
    content = [function.__module__, function.__qualname__, read_source(function), cells]
    # Several lambdas of a module have one name.
    code = _list_code(function.__code__) if "<lambda>" in function.__qualname__ else []
    return [*content, list_value(function.__defaults__), list_value(function.__kwdefaults__), code]


def read_source(thing: Any) -> bytes | list[str]:
    """Return the source of the module of a class or function; of a script or a notebook its classes and functions.

    Code without source, such as that of an interactive session, is described by its instructions.
    """
    module = sys.modules.get(thing.__module__)
    try:
        if module is not None and thing.__module__ != "__main__" and module.__file__:
            with open(module.__file__, "rb") as file:
                return file.read()
        defined = [value for value in vars(module).values() if isinstance(value, (type, FunctionType))]
        return sorted(inspect.getsource(value) for value in {thing, *defined} if value.__module__ == thing.__module__)
    except (OSError, TypeError, AttributeError):
        if isinstance(thing, FunctionType):
            return [repr(_list_code(thing.__code__))]
        functions = sorted((name, part) for name, part in vars(thing).items() if isinstance(part, FunctionType))
        return [repr((name, _list_code(part.__code__))) for name, part in functions]


def _list_cell(cell: Any) -> Any:
    try:
        return list_value(cell.cell_contents)
    except ValueError:
        return "empty"


def list_value(value: Any) -> Any:
    """Return a value in which functions are replaced by their content."""
    if is_function(value):
        return list_content(value)
    if isinstance(value, Mapping):
        return [(str(name), list_value(part)) for name, part in sorted(value.items(), key=lambda item: str(item[0]))]
    if isinstance(value, (list, tuple)):
        return [list_value(part) for part in value]
    return value


def _list_code(code: Any) -> list[Any]:
    constants = [_list_code(part) if hasattr(part, "co_code") else repr(part) for part in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), list(code.co_varnames), constants]


def check_returned(
    value: Any, shape: tuple[int, ...], what: str, meaning: str, kind: Literal["float64", "int64", "bool"] = "float64"
) -> Any:
    """Convert what a function of a program returned to an array.

    Parameters
    ----------
    value : object
    shape : tuple of int
        Expected shape.
    what : str
        The function, for the message, such as ``"robust=clip_far"``.
    meaning : str
        What the array stands for.
    kind : {"float64", "int64", "bool"}

    Returns
    -------
    array of `shape`

    Raises
    ------
    ContractError
        If the shape or the type is wrong, or a number is NaN.
    """
    import numpy as np

    array = np.asarray(value)
    if array.shape != shape or array.dtype.kind not in {"float64": "iuf", "int64": "iu", "bool": "b"}[kind]:
        described = f"an array of {array.dtype} and shape {array.shape}" if array.shape else f"{value!r}"
        raise ContractError(f"{what} returned {described}; expected {kind} of shape {shape}, {meaning}")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise ContractError(f"{what} returned NaN; expected numbers, {meaning}")
    return array.astype(kind)
