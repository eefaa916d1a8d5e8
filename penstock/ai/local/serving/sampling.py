"""Options of a request as engines take them. Pure functions; the engine checks the values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.ai.conversation import Request
from penstock.ai.local.constraint import closed
from penstock.ai.providers.wire import extra_body_of, max_tokens_of, stops_of

PASSED_ON = (
    *("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty", "repetition_penalty"),
    "logit_bias",
)
ROW_OPTIONS = (*PASSED_ON, "max_output_tokens", "max_tokens", "stop", "extra_body", "lora")

GUIDED = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar"}
"""Older names of the fields of ``structured_outputs``."""


@dataclass(frozen=True)
class EngineSampling:
    """vLLM's sampling parameters, a constraint on the answer, arguments for the chat template, and a LoRA adapter."""

    fields: Mapping[str, Any]
    constraint: Mapping[str, Any] | None = None
    template: Mapping[str, Any] | None = None
    lora: str | None = None

    @staticmethod
    def of(options: Mapping[str, Any], request: Request) -> EngineSampling:
        """Return the sampling of a request. ``extra_body`` has fields of the engine, as for its server.

        >>> sampling = EngineSampling.of({"extra_body": {"guided_choice": ["yes", "no"], "min_p": 0.1}}, Request(()))
        >>> sampling.fields["min_p"], sampling.constraint
        (0.1, {'choice': ['yes', 'no']})
        """
        extra = dict(extra_body_of(options))
        fields: dict[str, Any] = {name: options[name] for name in PASSED_ON if options.get(name) is not None}
        # None: up to the maximum length of the model, as the servers of the engines do
        fields |= {"max_tokens": max_tokens_of(options), "n": request.num_answers}
        if options.get("logprobs"):
            fields["logprobs"] = options.get("top_logprobs", 0)
        if stops := stops_of(options):
            fields["stop"] = stops
        constraint = extra.pop("structured_outputs", None)
        for name, new in GUIDED.items():
            if name in extra:
                constraint = {new: extra.pop(name)}
        if constraint is None and request.output is not None:
            constraint = {"json": closed(request.output.schema)}
        template = extra.pop("chat_template_kwargs", None)
        return EngineSampling({**fields, **extra}, constraint, template, options.get("lora"))
