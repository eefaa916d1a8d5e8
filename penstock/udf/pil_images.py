"""Parameters annotated with Pillow's ``Image``: a row function gets such images where the column holds pixels."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.expr.nodes import UdfCall


def pil_parameters(call: UdfCall) -> set[int]:
    """Return which arguments, by number, are for parameters annotated with a class of Pillow's."""
    spec = call.udf
    function = spec.target if spec.method is None else getattr(spec.target, spec.method)
    try:
        hints = typing.get_type_hints(function)
        names = list(inspect.signature(function).parameters)[0 if spec.method is None else 1 :]
    except (NameError, TypeError, ValueError):  # names only a type checker knows, or a function of C
        return set()
    given = [*names[: len(call.args)], *(name for name, _ in call.kwargs)]
    return {number for number, name in enumerate(given) if _is_pil(hints.get(name))}


def _is_pil(hint: Any) -> bool:
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if isinstance(kind, type)]
    return any(kind.__module__.startswith("PIL.") and kind.__name__ == "Image" for kind in kinds)


def as_pil(values: Sequence[Any]) -> list[Any]:
    """Return pixels as images of Pillow; what is none, such as null, stays as it is."""
    from PIL import Image  # type: ignore[import-not-found, unused-ignore]

    return [Image.fromarray(_squeezed(value)) if isinstance(value, np.ndarray) else value for value in values]


def _squeezed(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return one channel as a matrix, which is what Pillow takes for grey."""
    return pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
