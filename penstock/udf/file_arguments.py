"""Arguments for parameters annotated with ``File``: paths and bytes are made files on the way to the function.

It is decided when the call is built, in the user's process: what an annotation names may be unknown in a worker.
"""

from __future__ import annotations

import inspect
import typing
from typing import Any

from penstock.expr.nodes import Cast, Expr, PythonValue
from penstock.expr.udf import UdfSpec
from penstock.storage.file import File
from penstock.types import DataType


def with_files(
    spec: UdfSpec, args: tuple[Expr, ...], kwargs: tuple[tuple[str, Expr], ...]
) -> tuple[tuple[Expr, ...], tuple[tuple[str, Expr], ...]]:
    """Return the arguments of a call, those for ``File`` parameters converted to that type."""
    dtypes = {} if spec.target.is_batch else _file_parameters(spec)
    if not dtypes:
        return args, kwargs
    names = list(dtypes)
    positional = tuple(_as_file(arg, dtypes[name]) for arg, name in zip(args, names, strict=False))
    return (*positional, *args[len(names) :]), tuple((name, _as_file(arg, dtypes.get(name))) for name, arg in kwargs)


def _as_file(argument: Expr, dtype: DataType | None) -> Expr:
    return argument if dtype is None or isinstance(argument, PythonValue) else Cast(argument, dtype)


def _file_parameters(spec: UdfSpec) -> dict[str, DataType | None]:
    """Return the parameters in order, with the type of those annotated with ``File``; nothing if there are none."""
    function: Any = spec.target.function
    is_bound = False
    if spec.target.method is not None:
        is_bound = not isinstance(inspect.getattr_static(function, spec.target.method), staticmethod | classmethod)
        function = getattr(function, spec.target.method)
    try:
        hints = typing.get_type_hints(function)
        names = list(inspect.signature(function).parameters)[int(is_bound) :]
    except (NameError, TypeError, ValueError):  # names only a type checker knows, or a function of C
        return {}
    dtypes = {name: _file_dtype(hints.get(name)) for name in names}
    return dtypes if any(dtypes.values()) else {}


def _file_dtype(hint: Any) -> DataType | None:
    """Return the type for ``File``, ``File | None`` and its kinds; None for any other hint, as for ``File | str``."""
    options = [option for option in typing.get_args(hint) or (hint,) if option is not type(None)]
    if len(options) == 1 and isinstance(options[0], type) and issubclass(options[0], File):
        return DataType.from_hint(options[0])
    return None
