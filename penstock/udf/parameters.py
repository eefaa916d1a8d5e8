"""Parameters whose annotation asks for a conversion: ``File`` and Pillow's ``Image``.

Annotations are read in the user's process, since a worker may not know the names they use.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.expr.nodes import Cast, Expr, PythonValue, UdfCall
from penstock.expr.udf import UdfSpec
from penstock.media.images.packages import pillow
from penstock.storage.file import File
from penstock.types import DataType


def parameter_hints(function: Callable[..., Any], is_method: bool) -> dict[str, Any]:
    """Return the annotation of each parameter in order, None for a parameter without annotation; nothing if they cannot
    be read.
    """
    try:
        hints = typing.get_type_hints(function)
        names = list(inspect.signature(function).parameters)[1 if is_method else 0 :]
    except (NameError, TypeError, ValueError):  # names that only a type checker knows, or a function in C
        return {}
    return {name: hints.get(name) for name in names}


def pil_parameters(hints: dict[str, Any]) -> tuple[int | str, ...]:
    """Return the positions and the names of the parameters annotated with Pillow's class."""
    found = [(position, name) for position, (name, hint) in enumerate(hints.items()) if _is_pil(hint)]
    return tuple(key for pair in found for key in pair)


def pil_arguments(call: UdfCall) -> set[int]:
    """Return the positions of the arguments in a call that such parameters receive."""
    keys = [*range(len(call.args)), *(name for name, _ in call.kwargs)]
    return {number for number, key in enumerate(keys) if key in call.udf.target.pil_parameters}


def as_pil(values: Sequence[Any]) -> list[Any]:
    """Return arrays of pixels as Pillow images, other values unchanged."""
    return [pillow().fromarray(_squeezed(value)) if isinstance(value, np.ndarray) else value for value in values]


def with_files(
    spec: UdfSpec, hints: dict[str, Any], args: tuple[Expr, ...], kwargs: tuple[tuple[str, Expr], ...]
) -> UdfCall:
    """Return a call whose arguments for ``File`` parameters, such as paths, are cast to files."""
    dtypes = (
        {} if spec.target.is_batch else {name: dtype for name, hint in hints.items() if (dtype := _file_dtype(hint))}
    )
    if not dtypes:
        return UdfCall(spec, args, kwargs)
    positional = [_as_file(arg, dtypes.get(name)) for arg, name in zip(args, hints, strict=False)]
    named = tuple((name, _as_file(arg, dtypes.get(name))) for name, arg in kwargs)
    return UdfCall(spec, (*positional, *args[len(positional) :]), named)


def _as_file(argument: Expr, dtype: DataType | None) -> Expr:
    return argument if dtype is None or isinstance(argument, PythonValue) else Cast(argument, dtype)


def _file_dtype(hint: Any) -> DataType | None:
    """Return the type for ``File``, its subclasses and ``File | None``; None for others, such as ``File | str``."""
    options = [option for option in typing.get_args(hint) or (hint,) if option is not type(None)]
    if len(options) == 1 and isinstance(options[0], type) and issubclass(options[0], File):
        return DataType.from_hint(options[0])
    return None


def _is_pil(hint: Any) -> bool:
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if isinstance(kind, type)]
    return any(kind.__module__.startswith("PIL.") and kind.__name__ == "Image" for kind in kinds)


def _squeezed(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return one channel as a matrix, as Pillow expects grey images."""
    return pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
