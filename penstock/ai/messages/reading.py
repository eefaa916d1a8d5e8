"""From the values of one row to what a model is asked.

    text                             as it is                         numbers, dates ...   their text
    images (pixels)                  PNG, past a megapixel JPEG       dicts, lists         JSON
    bytes, File                      by their content: images, PDF, sound and video as they are, text as text
    [{"role": ..., "content": ...}]  a conversation, see ``dialogue``

A null among the values makes the whole row null, as it does in SQL: no call is made for it. An empty list, and a
conversation in which only the system speaks, are that row's error.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import NoneType
from typing import Any
from uuid import UUID

import numpy as np

from penstock.ai.conversation import Part, Text, Turn, UserTurn
from penstock.ai.messages.attachments import ACCEPTED, part_of_bytes, part_of_file, part_of_pil, part_of_pixels
from penstock.ai.messages.dialogue import dialogue_turns, is_dialogue, is_plain_dialogue
from penstock.errors import RequestRefusedError, TypeMismatchError
from penstock.storage.file import File
from penstock.types import DataType
from penstock.types.encode import is_pil_image

_DATES = (datetime.date, datetime.datetime, datetime.time, datetime.timedelta)
_SCALARS = {str, int, float, bool, NoneType, Decimal, *_DATES}
_QUICK = {*_SCALARS, dict}
_MEDIA = (bytes, bytearray, memoryview, np.ndarray, File)


@dataclass(frozen=True, slots=True)
class Message:
    """What one row asks: the turns of a request, and a system message where the row brings one."""

    turns: tuple[Turn, ...]
    system: str | None = None


async def read_message(values: Sequence[Any]) -> Message | None:
    """Return what the values of a row ask, or None where one of them is null.

    Plain values are read at once. Whatever may block (files are fetched, images encoded) waits on a thread of the
    loop's executor, which bounds how many do so at a time.
    """
    if len(values) == 1 and type(values[0]) is str:
        return Message((UserTurn((Text(values[0]),)),))
    if all(is_quick(value) for value in values):
        return message_of(values)
    return await asyncio.to_thread(message_of, values)


async def request_parts(values: Sequence[Any]) -> tuple[Part, ...] | None:
    """Return the parts of one user turn that holds the values, or None where one of them is null."""
    if len(values) == 1 and type(values[0]) is str:
        return (Text(values[0]),)
    if all(is_quick(value) for value in values):
        return parts_of(values)
    return await asyncio.to_thread(parts_of, values)


def message_of(values: Sequence[Any]) -> Message | None:
    """Do what ``read_message`` does, on the calling thread."""
    if any(value is None for value in values):
        return None
    turns: list[Turn] = []
    systems: list[str] = []
    parts: list[Part] = []
    for value in values:
        if not is_dialogue(value):
            parts += _parts(value)
            continue
        if parts:
            turns.append(UserTurn(tuple(parts)))
            parts = []
        told = dialogue_turns(value, _parts)
        if told is None:
            return None
        turns += told.turns
        systems += told.systems
    if parts:
        turns.append(UserTurn(tuple(parts)))
    if not turns:
        raise RequestRefusedError(
            "prompt: a conversation has a system message and nobody asks anything; add a message of the user."
            if systems
            else "prompt: an empty list asks nothing; give null for rows that are not to be asked."
        )
    return Message(tuple(turns), "\n\n".join(systems) or None)


def parts_of(values: Sequence[Any]) -> tuple[Part, ...] | None:
    """Do what ``request_parts`` does, on the calling thread."""
    if any(value is None for value in values):
        return None
    return tuple(part for value in values for part in _parts(value))


def check_message_types(dtypes: Iterable[tuple[str, DataType]]) -> None:
    """Refuse columns that no model can read, with what to do about it. Takes the name and type of each.

    Columns of Python objects pass: conversations whose contents are text here and a list there have no other type.
    """
    for name, dtype in dtypes:
        if dtype.is_embedding():
            raise TypeMismatchError(
                f"prompt: {name!r} is {dtype}, numbers that mean nothing to a language model; prompt with the text or "
                f"image that it was made of, or cast it to a list to send its numbers as text."
            )
        if dtype.is_tensor() and not may_be_image(dtype):
            raise TypeMismatchError(
                f"prompt: {name!r} is {dtype}, which is no image; an image has shape (height, width) or (height, "
                "width, 1 to 4 channels) and numbers of uint8, uint16 or float. Accepted are " + ACCEPTED + "."
            )
        if dtype.is_struct():
            check_message_types(
                (f"{name}.{field}", inner) for field, inner in dtype.fields.items() if inner.is_tensor()
            )
            if media := [field for field, inner in dtype.fields.items() if _is_media(inner)]:
                raise TypeMismatchError(
                    f"prompt: {name!r} is a struct with {media[0]!r} of {dtype.fields[media[0]]}, which JSON cannot "
                    f"hold; give the fields as parts of their own: [{name}[{media[0]!r}], ...]."
                )


def is_quick(value: Any) -> bool:
    """Whether nothing has to be fetched or encoded for a value."""
    if type(value) is list:
        return is_plain_dialogue(value) or all(type(item) in _SCALARS for item in value)
    return type(value) in _QUICK


def _is_media(dtype: DataType) -> bool:
    return dtype.is_binary() or dtype.is_image() or dtype.is_file() or dtype.is_tensor()


def may_be_image(dtype: DataType) -> bool:
    shape, inner = dtype.shape, dtype.inner
    is_pixel = inner.is_float() or inner in (DataType.uint8(), DataType.uint16())
    return is_pixel and (shape is None or len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 2, 3, 4)))


# --- one value --------------------------------------------------------------------------------------------------------


def _parts(value: Any) -> list[Part]:
    match value:
        case str():
            return [Text(value)]
        case bool():
            return [Text("true" if value else "false")]
        case int() | float() | Decimal() | datetime.date() | datetime.time() | datetime.timedelta() | UUID():
            return [Text(str(value))]
        case np.generic():
            return _parts(value.item())
        case bytes() | bytearray() | memoryview():
            return [part_of_bytes(bytes(value))]
        case File():
            return [part_of_file(value)]
        case np.ndarray():
            return [part_of_pixels(value)]
        case list() | tuple() if any(isinstance(item, _MEDIA) or is_pil_image(item) for item in value):
            return [part for item in value if item is not None for part in _parts(item)]
        case list() | tuple():
            return [Text(_json(value))] if value else []
        case dict():
            return [Text(_json(value))]
    if is_pil_image(value):
        return [part_of_pil(value)]
    if hasattr(value, "model_dump"):  # a pydantic model
        return [Text(_json(value.model_dump(mode="json")))]
    raise TypeMismatchError(
        f"prompt: a value of type {type(value).__name__} is nothing to ask; accepted are {ACCEPTED}."
    )


def _json(value: Any) -> str:
    import orjson

    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode()
    except TypeError as exc:
        reason = exc.__cause__ or exc
        raise TypeMismatchError(f"prompt: a {type(value).__name__} cannot be told as JSON: {reason}") from exc


def _plain(value: Any) -> Any:
    if isinstance(value, (Decimal, datetime.timedelta)):
        return str(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeMismatchError(f"it holds a {type(value).__name__}; give that as a part of its own")
