"""Completions, OpenAI's first protocol: a text is continued as it is, without a chat template. vLLM still speaks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.ai.conversation import Generation, Request
from penstock.ai.provider import ModelTask, check_options
from penstock.ai.remote.wires.bodies import extra_body_of, merged
from penstock.ai.remote.wires.chat import ROW_OPTIONS, fields_of
from penstock.ai.remote.wires.wire import ApiCall, check_row_options, field_of, usage_of
from penstock.errors import InvalidArgumentError


@dataclass(frozen=True)
class CompletionsWire:
    """``POST /completions``. ``body`` is what is the same for all rows, ``extra_body`` is merged into it."""

    body: Mapping[str, Any]
    extra_body: Mapping[str, Any]
    takes_options: ClassVar[bool] = True

    @staticmethod
    def of(task: ModelTask, provider: str, model: str, options: Mapping[str, Any]) -> CompletionsWire:
        check_options(task, provider, ROW_OPTIONS)
        return CompletionsWire({"model": model, **_fields(options)}, extra_body_of(options))

    def call(self, request: Request) -> ApiCall:
        if request.text is None or request.system or request.tools or request.output is not None:
            raise InvalidArgumentError(
                "Without a chat template a prompt is one text that is continued; conversations, system messages, "
                "images, tools and forms of answers need the template."
            )
        body, extra_body = {**self.body, "prompt": request.text}, self.extra_body
        if request.options:
            check_row_options(request.options, ROW_OPTIONS)
            body |= _fields(request.options)
            extra_body = merged(extra_body, extra_body_of(request.options))
        if request.num_answers > 1:
            body["n"] = request.num_answers
        return ApiCall("/completions", merged(body, extra_body) if extra_body else body)

    def read(self, body: Mapping[str, Any]) -> list[Generation]:
        input_tokens, output_tokens, cached_tokens = usage_of(
            body.get("usage"), "prompt_tokens", "completion_tokens", "prompt_tokens_details"
        )
        found = []
        for choice in field_of(body, "choices", list):
            text, reason = field_of(choice, "text", str), choice.get("finish_reason")
            found.append(Generation(text, body.get("model"), input_tokens, output_tokens, cached_tokens, reason))
            input_tokens = output_tokens = cached_tokens = None  # those of all answers stand with the first
        return found


def _fields(options: Mapping[str, Any]) -> dict[str, Any]:
    fields = fields_of(options)
    if "max_completion_tokens" in fields:  # the chat's name for it
        fields["max_tokens"] = fields.pop("max_completion_tokens")
    return fields
