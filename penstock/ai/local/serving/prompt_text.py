"""The text of a request, and its tokens, as the model of an engine gets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.ai.conversation import Request
from penstock.ai.local import chat


def prompt_text(
    tokenizer: Any, request: Request, options: Mapping[str, Any], template_arguments: Mapping[str, Any] | None
) -> tuple[str, bool]:
    """Return the text of a request, and True if a chat template wrote it."""
    messages = chat.messages_of(request, takes_images=bool(chat.encoded_images(request)))
    template = options.get("chat_template") or tokenizer.chat_template
    if not template or options.get("use_completions"):
        return chat.plain(messages), False
    return chat.rendered(tokenizer, messages, **{**(template_arguments or {}), "chat_template": template}), True


def token_ids(tokenizer: Any, text: str, is_chat: bool) -> list[int]:
    """Return the tokens of a text. A chat template writes the special tokens itself."""
    found: list[int] = tokenizer(text, add_special_tokens=not is_chat)["input_ids"]
    return found
