"""Values of rows as the page shows them: text, or an image."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.observe.printable import format_bytes
from penstock.storage.mime import sniff
from penstock.types.extension import ImageType
from penstock.types.ndarrays import NDArray

SHOWN_IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}  # no SVG: it is markup
SHOWN_NUMBERS = 8  # of a vector
MAX_LISTED = 32  # numbers of a list that are all shown

Cell = dict[str, Any] | None  # None for null


@dataclass(frozen=True, slots=True)
class CellLimits:
    """The most that a cell may hold."""

    max_chars: int
    max_image_nbytes: int
    max_pixels: int  # on the longer side of an image that is encoded for the page
    max_listed: int = MAX_LISTED  # a longer list of numbers is shown by its first ones


IN_TABLE = CellLimits(1_200, 300_000, 320)
ALONE = CellLimits(500_000, 16_000_000, 2_000)


def cells_of(column: pa.Array, limits: CellLimits) -> list[Cell]:
    """Return the cell of each row of a column.

    >>> cells_of(pa.array(["hi", None]), IN_TABLE)
    [{'text': 'hi'}, None]
    >>> cells_of(pa.array([{"answer": "yes", "tokens": 3}]), IN_TABLE)
    [{'text': '{\\n  "answer": "yes",\\n  "tokens": 3\\n}', 'json': True}]
    >>> asked = {"topic": {"value": "bug", "probability": 0.75, "probabilities": {"bug": 0.75, "other": 0.25}}}
    >>> cells_of(pa.array([asked]), IN_TABLE)
    [{'text': 'topic: bug (0.75)'}]
    >>> cells_of(pa.array([[0.5] * 384]), ALONE)
    [{'text': '384 numbers: 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, …'}]
    """
    is_image = isinstance(column.type, ImageType)
    return [_cell(value, is_image, limits) for value in column.to_pylist()]


def _cell(value: Any, is_image: bool, limits: CellLimits) -> Cell:
    match value:
        case None:
            return None
        case str():
            return text_cell(value, limits)
        case bool() | int() | float():
            return {"text": str(value), "number": True}
        case bytes():
            return binary_cell(value, limits)
        case np.ndarray() if is_image:
            return _pixels(value, limits)
        case np.ndarray():
            shape = " by ".join(map(str, value.shape))
            return {"text": f"{shape} {value.dtype}: {_first_numbers(value.ravel())}"}
        case {"value": answer, "input_tokens": _}:  # of a prompt with usage=True
            usage = {name: each for name, each in value.items() if name != "value" and each not in (None, [])}
            return {**(_cell(answer, False, limits) or {"text": "null"}), "usage": _plain_values(usage)}
        case dict() if limits is IN_TABLE and value and all(map(_is_decided, value.values())):
            return text_cell("\n".join(f"{name}: {_decided(answer)}" for name, answer in value.items()), limits)
        case list() if len(value) > limits.max_listed and all(isinstance(each, int | float) for each in value):
            return {"text": f"{len(value):,} numbers: {_first_numbers(value)}"}
        case dict() | list() | tuple():
            options = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
            return {**text_cell(orjson.dumps(value, default=_plain, option=options).decode(), limits), "json": True}
        case _:
            return text_cell(str(value), limits)


def _first_numbers(numbers: Sequence[float] | NDArray) -> str:
    first = numbers[:SHOWN_NUMBERS]
    shown = ", ".join(str(each) if isinstance(each, int) else f"{each:.4g}" for each in first)
    return f"{shown}, …" if len(numbers) > SHOWN_NUMBERS else shown


def _is_decided(answer: Any) -> bool:
    """Return True for the answer of ``decide`` to a question."""
    return isinstance(answer, dict) and {"value", "probability", "probabilities"} <= answer.keys()


def _decided(answer: dict[str, Any]) -> str:
    value = str(answer["value"]).lower() if isinstance(answer["value"], bool) else answer["value"]
    return "refused" if value is None else f"{value} ({answer['probability']:.2f})"


def text_cell(text: str, limits: CellLimits) -> dict[str, Any]:
    if len(text) <= limits.max_chars:
        return {"text": text}
    return {"text": f"{text[: limits.max_chars]}…", "num_chars": len(text)}


def binary_cell(data: bytes, limits: CellLimits) -> Cell:
    kind = sniff(data)
    if kind in SHOWN_IMAGES and len(data) <= limits.max_image_nbytes:
        return _image(data, kind)
    return {"text": f"{kind or 'binary data'}, {format_bytes(len(data))}"}


def _pixels(pixels: NDArray, limits: CellLimits) -> Cell:
    from penstock.media.images.encoder import encoded

    height, width, _ = pixels.shape
    step = -(-max(height, width) // limits.max_pixels)
    try:
        return _image(encoded(pixels[::step, ::step], "PNG", 90), "image/png")
    except (PenstockError, ValueError, TypeError):  # without Pillow, or pixels that PNG cannot hold
        return {"text": f"image, {width} by {height}"}


def _image(data: bytes, kind: str) -> Cell:
    return {
        "text": f"image, {format_bytes(len(data))}",
        "image": f"data:{kind};base64,{base64.b64encode(data).decode()}",
    }


def _plain_values(usage: dict[str, Any]) -> dict[str, str | float]:
    return {name: value if isinstance(value, int | float) else str(value) for name, value in usage.items()}


def _plain(value: Any) -> str:
    return f"{len(value):,} bytes" if isinstance(value, bytes) else str(value)
