"""Convert the values of one row to a message for a model.

    text unchanged numbers, dates ... as text images (pixels) PNG, above a megapixel JPEG dicts, lists JSON bytes, File
    by content: images, PDF, audio and video unchanged, text as text [{"role": ..., "content": ...}] chat messages, see
    ``chat_messages``

A null value makes the whole row null, as in SQL: no call is made. An empty list, or chat messages with a system message
only, are an error of the row.
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
from penstock.ai.messages.chat_messages import chat_turns, is_chat, is_text_chat, joined
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
    """The turns of a request, and the system message if the row has one.

    ``system_parts`` are the parts of the system message, if one of them has a ``cache_control``.
    """

    turns: tuple[Turn, ...]
    system: str | None = None
    system_parts: tuple[Text, ...] = ()

    @property
    def has_cache_control(self) -> bool:
        for turn in self.turns:  # this runs for every call
            if isinstance(turn, UserTurn):
                for part in turn.parts:
                    if part.cache_control:
                        return True
        return bool(self.system_parts)


async def read_message(values: Sequence[Any]) -> Message | None:
    """Return the message of a row, or None if one of its values is null.

    Plain values are converted at once. Values that may block (files to download, images to encode) are converted on
    a thread of the loop's executor, which bounds their number.
    """
    if len(values) == 1 and type(values[0]) is str:
        return Message((UserTurn((Text(values[0]),)),))
    if all(is_quick(value) for value in values):
        return message_of(values)
    return await asyncio.to_thread(message_of, values)


def message_of(values: Sequence[Any]) -> Message | None:
    """Return the message of a row, converted on the calling thread."""
    if any(value is None for value in values):
        return None
    turns: list[Turn] = []
    systems: list[list[Text]] = []
    parts: list[Part] = []
    for value in values:
        if not is_chat(value):
            parts += _parts(value)
            continue
        if parts:
            turns.append(UserTurn(tuple(parts)))
            parts = []
        chat = chat_turns(value, _parts)
        if chat is None:
            return None
        turns += chat.turns
        systems += chat.systems
    if parts:
        turns.append(UserTurn(tuple(parts)))
    if not turns:
        raise RequestRefusedError(
            "prompt: a conversation has only system messages; add a message of the user."
            if systems
            else "prompt: an empty list has nothing to send; use null to skip a row."
        )
    system_parts = tuple(part for texts in systems for part in texts)
    is_marked = any(part.cache_control for part in system_parts)
    return Message(tuple(turns), "\n\n".join(map(joined, systems)) or None, system_parts if is_marked else ())


def check_message_types(dtypes: Iterable[tuple[str, DataType]]) -> None:
    """Raise TypeMismatchError for a column that no model can read. Takes the name and type of each column.

    Columns of Python objects pass: chat messages with mixed contents have no other type.
    """
    for name, dtype in dtypes:
        if dtype.is_embedding():
            raise TypeMismatchError(
                f"prompt: {name!r} is {dtype}, which a language model cannot read; prompt with the original "
                f"text or image, or cast it to a list to send its numbers as text."
            )
        if dtype.is_tensor() and not may_be_image(dtype):
            raise TypeMismatchError(
                f"prompt: {name!r} is {dtype}, which is not an image; an image has shape (height, width) or (height, "
                "width, 1 to 4 channels) and values of uint8, uint16 or float. Accepted are " + ACCEPTED + "."
            )
        if dtype.is_struct():
            check_message_types(
                (f"{name}.{field}", inner) for field, inner in dtype.fields.items() if inner.is_tensor()
            )
            if media := [field for field, inner in dtype.fields.items() if _is_media(inner)]:
                raise TypeMismatchError(
                    f"prompt: {name!r} is a struct with {media[0]!r} of {dtype.fields[media[0]]}, which JSON cannot "
                    f"hold; pass the fields as separate parts: [{name}[{media[0]!r}], ...]."
                )


def is_quick(value: Any) -> bool:
    """Return True if a value needs no download and no encoding."""
    if type(value) is list:
        return is_text_chat(value) or all(type(item) in _SCALARS for item in value)
    return type(value) in _QUICK


def _is_media(dtype: DataType) -> bool:
    return dtype.is_binary() or dtype.is_image() or dtype.is_file() or dtype.is_tensor()


def may_be_image(dtype: DataType) -> bool:
    shape, inner = dtype.shape, dtype.inner
    is_pixel = inner.is_float() or inner in (DataType.uint8(), DataType.uint16())
    return is_pixel and (shape is None or len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 2, 3, 4)))


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
        f"prompt: a value of type {type(value).__name__} cannot be sent to a model; accepted are {ACCEPTED}."
    )


def _json(value: Any) -> str:
    import orjson

    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY).decode()
    except TypeError as exc:
        reason = exc.__cause__ or exc
        raise TypeMismatchError(f"prompt: a {type(value).__name__} cannot be written as JSON: {reason}") from exc


def _plain(value: Any) -> Any:
    if isinstance(value, (Decimal, datetime.timedelta)):
        return str(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeMismatchError(f"it holds a {type(value).__name__}; pass that as a separate part")
