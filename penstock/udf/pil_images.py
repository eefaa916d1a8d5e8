"""Parameters annotated with Pillow's ``Image``: a row function gets such images where the column holds pixels."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.expr.nodes import UdfCall
from penstock.media.images.packages import pillow


def pil_parameters(function: Callable[..., Any], is_method: bool) -> tuple[int | str, ...]:
    """Return which parameters are annotated with Pillow's class, by position and by name.

    Asked where the function is decorated: a worker's copy of it may lack the names that its annotations use.
    """
    try:
        hints = typing.get_type_hints(function)
        names = list(inspect.signature(function).parameters)[1 if is_method else 0 :]
    except (NameError, TypeError, ValueError):  # names only a type checker knows, or a function of C
        return ()
    found = [(position, name) for position, name in enumerate(names) if _is_pil(hints.get(name))]
    return tuple(key for pair in found for key in pair)


def _is_pil(hint: Any) -> bool:
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if isinstance(kind, type)]
    return any(kind.__module__.startswith("PIL.") and kind.__name__ == "Image" for kind in kinds)


def pil_arguments(call: UdfCall) -> set[int]:
    """Return which arguments of a call, by number, are for such parameters."""
    keys = [*range(len(call.args)), *(name for name, _ in call.kwargs)]
    return {number for number, key in enumerate(keys) if key in call.udf.target.pil_parameters}


def as_pil(values: Sequence[Any]) -> list[Any]:
    """Return pixels as images of Pillow; what is none, such as null, stays as it is."""
    return [pillow().fromarray(_squeezed(value)) if isinstance(value, np.ndarray) else value for value in values]


def _squeezed(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return one channel as a matrix, which is what Pillow takes for grey."""
    return pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
