"""Chat messages in a column: lists of ``{"role": ..., "content": ...}``, as in chat APIs and datasets."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote_to_bytes

from penstock.ai.conversation import ModelTurn, Part, Text, ToolCall, ToolResult, ToolTurn, Turn, UserTurn
from penstock.ai.messages.attachments import MAX_ATTACHMENT_NBYTES, part_of_bytes
from penstock.errors import TypeMismatchError
from penstock.storage.access import access_inside_values
from penstock.storage.file import File
from penstock.storage.transfer import BoundFile
from penstock.storage.urls import REMOTE, redacted, scheme_of

ROLES = ("system", "developer", "user", "assistant", "model", "tool")
PARTS = ("text", "image_url", "input_image", "image", "file", "input_file", "document", "input_audio")
Reader = Callable[[Any], Sequence[Part]]  # from a value to its parts


@dataclass(slots=True)
class ChatTurns:
    """The turns of a conversation, and its system messages in parts."""

    turns: list[Turn] = field(default_factory=list)
    systems: list[list[Text]] = field(default_factory=list)


def is_chat(value: Any) -> bool:
    """Return True for a list of messages that each have a role and a content."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and isinstance(item.get("role"), str) and "content" in item for item in value)
    )


def is_text_chat(value: Any) -> bool:
    """Return True for chat messages of text alone, which need no download."""
    return is_chat(value) and all(type(item["content"]) is str for item in value)


def chat_turns(messages: Sequence[Mapping[str, Any]], parts_of: Reader) -> ChatTurns | None:
    """Return chat messages as turns and system messages; None if the content of a user is null.

    ``parts_of`` converts content other than text.
    """
    chat = ChatTurns()
    calls: dict[str, ToolCall] = {}
    for message in messages:
        role = message["role"]
        if message.get("cache_control") is not None:
            raise _misplaced_control(role)
        if role in ("system", "developer"):
            chat.systems.append(_texts(message, parts_of))
        elif role == "user" and message["content"] is None:
            return None
        elif role == "user":
            chat.turns.append(UserTurn(tuple(_content(message["content"], parts_of))))
        elif role in ("assistant", "model"):
            turn = ModelTurn(_text(message, parts_of), _tool_calls(message))
            calls.update((call.id, call) for call in turn.tool_calls)
            chat.turns.append(turn)
        elif role == "tool":
            _add_result(chat.turns, message, calls, parts_of)
        else:
            raise TypeMismatchError(
                f"prompt: a message of a conversation has role {role!r}; the roles are {', '.join(ROLES)}."
            )
    return chat


def joined(texts: Sequence[Text]) -> str:
    return "\n".join(part.text for part in texts)


def _text(message: Mapping[str, Any], parts_of: Reader) -> str:
    texts = _texts(message, parts_of)
    if any(part.cache_control for part in texts):
        raise _misplaced_control(message["role"])
    return joined(texts)


def _texts(message: Mapping[str, Any], parts_of: Reader) -> list[Text]:
    parts = _content(message["content"], parts_of)
    texts = [part for part in parts if isinstance(part, Text)]
    if len(texts) < len(parts):
        raise TypeMismatchError(
            f"prompt: a {message['role']} message holds something other than text; only user and tool messages may."
        )
    return texts


def _misplaced_control(role: str) -> TypeMismatchError:
    return TypeMismatchError(
        f"prompt: a message of role {role!r} has a 'cache_control' that cannot be sent there; put it into a part of "
        "the content of a system or user message: {'type': 'text', 'text': ..., 'cache_control': {'type': "
        "'ephemeral'}}."
    )


def _content(content: Any, parts_of: Reader) -> list[Part]:
    match content:
        case None:  # a model turn that only calls tools
            return []
        case str():
            return [Text(content)]
        case dict():
            return _content([content], parts_of)
        case list() | tuple():
            return [part for item in content if item is not None for part in _marked_item(item, parts_of)]
        case _:
            return list(parts_of(content))


def _marked_item(item: Any, parts_of: Reader) -> Sequence[Part]:
    """Return the parts of an item, the last with its ``cache_control``."""
    parts = _item(item, parts_of)
    control = item.get("cache_control") if isinstance(item, dict) else None
    if control is None or not parts:
        return parts
    if not isinstance(control, dict):
        raise TypeMismatchError(
            f"prompt: cache_control takes a dict, such as {{'type': 'ephemeral'}}; got {control!r}."
        )
    given = {name: value for name, value in control.items() if value is not None}  # a struct column fills with nulls
    return [*parts[:-1], replace(parts[-1], cache_control=given)] if given else parts


def _item(item: Any, parts_of: Reader) -> Sequence[Part]:
    """Convert one part of a content, in the notation of OpenAI, Anthropic or Hugging Face."""
    match item:
        case {"text": str(text), "type": "text" | "input_text" | "output_text"}:
            return [Text(text)]
        case {"type": "image_url" | "input_image", "image_url": {"url": str(url)} | str(url)}:
            return parts_of(_fetchable(url))
        case {"type": "file", "file": dict(file)}:
            return _file(file, parts_of)
        case {"type": "input_file"}:
            return _file(item, parts_of)
        case {"type": "input_audio", "input_audio": {"data": str(data)}}:
            return parts_of(_decoded(data))
        case {"type": "image" | "document", "source": {"type": "base64", "data": str(data)}}:
            return parts_of(_decoded(data))
        case {"type": "image" | "document", "source": {"type": "url", "url": str(url)}}:
            return parts_of(_fetchable(url))
        case {"type": "image", "image": image} if image is not None:
            return parts_of(_fetchable(image) if isinstance(image, str) else image)
        case dict():
            given = item.get("type", "no type")
            raise TypeMismatchError(
                f"prompt: a part of a conversation has type {given!r} and fields {', '.join(map(str, item))}, which is "
                f"not supported; the types are {', '.join(PARTS)}, each as its provider documents it."
            )
        case _:
            return parts_of(item)


def _file(file: Mapping[str, Any], parts_of: Reader) -> Sequence[Part]:
    if isinstance(url := file.get("file_url"), str):
        return parts_of(_fetchable(url))
    if not isinstance(data := file.get("file_data"), str):
        raise TypeMismatchError(
            "prompt: a file of a conversation has neither 'file_data' nor 'file_url'; a 'file_id' is valid "
            "at one provider only, so send the content."
        )
    content = _data_url(data) if data.startswith("data:") else _decoded(data)
    return [part_of_bytes(content, str(file.get("filename") or ""))]


def _fetchable(url: str) -> bytes | File:
    """Return the content of a URL in a message. The URL comes from the data, so an access rule applies."""
    if url.startswith("data:"):
        return _data_url(url)
    if scheme_of(url) not in REMOTE:
        raise TypeMismatchError(
            f"prompt: {redacted(url)[:100]!r} in a conversation is not a URL of https, a store, or data:; "
            "pass local files as separate parts: prompt([conversation, file(path)])."
        )
    return BoundFile(url, access_inside_values(MAX_ATTACHMENT_NBYTES))


def _data_url(url: str) -> bytes:
    head, comma, content = url.partition(",")
    if not comma:
        raise TypeMismatchError(f"prompt: {url[:40]!r} is not a data: URL; the form is data:<type>;base64,<content>.")
    return _decoded(content) if head.endswith(";base64") else unquote_to_bytes(content)


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError) as exc:
        raise TypeMismatchError(f"prompt: a part of a conversation is not base64: {exc}.") from exc


def _tool_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    found = []
    for call in message.get("tool_calls") or ():
        match call:
            case {"id": str(id), "function": {"name": str(name), "arguments": str(arguments)}}:
                found.append(ToolCall(id, name, arguments))
            case _:
                raise TypeMismatchError(
                    "prompt: a tool call of a conversation needs 'id' and 'function' with 'name' and 'arguments' (JSON "
                    f"as text); got {str(call)[:100]}."
                )
    return tuple(found)


def _add_result(turns: list[Turn], message: Mapping[str, Any], calls: Mapping[str, ToolCall], parts_of: Reader) -> None:
    """Add the result of a tool to the turn that answers the model's calls."""
    call = calls.get(message.get("tool_call_id") or "")
    if call is None:
        raise TypeMismatchError(
            f"prompt: a tool message answers call {message.get('tool_call_id')!r}, which no message before it made."
        )
    result = ToolResult(call, _text(message, parts_of))
    if isinstance(last := turns[-1], ToolTurn):
        turns[-1] = ToolTurn((*last.results, result))
    else:
        turns.append(ToolTurn((result,)))
