"""Render requests by the chat template of a model, or as plain text if it has none."""

from __future__ import annotations

import io
import json
from typing import Any

from penstock.ai.conversation import Audio, Document, Image, ModelTurn, Request, Text, ToolTurn, UserTurn
from penstock.errors import RequestRefusedError

Message = dict[str, Any]


def messages_of(request: Request, *, takes_images: bool) -> list[Message]:
    """Return a request as messages for a chat template.

    The content of a message is a text, or a list of parts for models that take images. Raises RequestRefusedError for
    parts that the model does not take.
    """
    if request.tools:
        raise RequestRefusedError("Local models do not call tools; use a provider that does, such as 'openai'.")
    messages: list[Message] = []
    if system := system_text(request):
        messages.append(_message("system", [{"type": "text", "text": system}], takes_images))
    for turn in request.turns:
        match turn:
            case UserTurn(parts):
                messages.append(_message("user", [_part(part, takes_images) for part in parts], takes_images))
            case ModelTurn(text):
                messages.append(_message("assistant", [{"type": "text", "text": text}], takes_images))
            case ToolTurn():
                raise RequestRefusedError(
                    "Local models do not call tools, so a conversation cannot contain results of tools."
                )
    return messages


def system_text(request: Request) -> str:
    """Return the system message: the user's, followed by the schema of a structured output."""
    parts = [request.system] if request.system else []
    if request.output is not None:
        schema = json.dumps(request.output.schema, ensure_ascii=False)
        parts.append(f"Answer with one JSON value that is valid against this JSON schema, and nothing else:\n{schema}")
    return "\n\n".join(parts)


def rendered(tokenizer: Any, messages: list[Message], **arguments: Any) -> str:
    """Return the text that the model continues. ``arguments`` are arguments of the template, such as
    enable_thinking."""
    if not (arguments.get("chat_template") or tokenizer.chat_template):
        return plain(messages)
    import jinja2

    def apply(conversation: list[Message]) -> str:
        text = tokenizer.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False, **arguments)
        return str(text)

    try:
        return apply(messages)
    except jinja2.TemplateError:
        if messages[0]["role"] != "system" or len(messages) < 2:
            raise
        return apply(_without_system(messages))  # some templates have no system message


def plain(messages: list[Message]) -> str:
    """Return messages as text without a template."""
    return "\n\n".join(_text_of(message) for message in messages)


def images_of(request: Request) -> list[Any]:
    """Return the decoded images of a request."""
    from penstock.media.images.packages import pillow

    return [pillow().open(io.BytesIO(data)).convert("RGB") for data in encoded_images(request)]


def encoded_images(request: Request) -> list[bytes]:
    """Return the images of a request in the order of its messages."""
    parts = [part for turn in request.turns if isinstance(turn, UserTurn) for part in turn.parts]
    return [part.data for part in parts if isinstance(part, Image)]


def split_reasoning(text: str) -> tuple[str, str | None]:
    """Return an answer without its reasoning, and the reasoning.

    >>> split_reasoning("<think>2 and 2</think>\\n\\n4")
    ('4', '2 and 2')
    """
    reasoning, end, answer = text.partition("</think>")
    if not end:
        return text, None
    return answer.lstrip(), reasoning.strip().removeprefix("<think>").strip() or None


def _message(role: str, parts: list[Message], takes_images: bool) -> Message:
    if takes_images:
        return {"role": role, "content": parts}
    return {"role": role, "content": "\n".join(part["text"] for part in parts)}


def _part(part: Any, takes_images: bool) -> Message:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Image() if takes_images:
            return {"type": "image"}
        case Image() | Audio() | Document():
            kind = type(part).__name__.lower()
            takes = "texts and images" if takes_images else "texts only"
            raise RequestRefusedError(f"The model takes {takes}; the prompt has a part of kind {kind}.")
        case _:
            raise RequestRefusedError(f"The prompt has a part of unknown kind {type(part).__name__}.")


def _text_of(message: Message) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _without_system(messages: list[Message]) -> list[Message]:
    """Return messages whose first user message starts with the text of the system message."""
    system, first, *rest = messages
    if isinstance(first["content"], str):
        return [{**first, "content": f"{_text_of(system)}\n\n{first['content']}"}, *rest]
    return [{**first, "content": [*system["content"], *first["content"]]}, *rest]
