"""The usage of earlier calls, from the ledger that holds their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from penstock.ai.client.addresses import shown
from penstock.ai.conversation import Request, recorded_answers
from penstock.ai.decisions.openai_decisions import OpenAIDecisionWire
from penstock.ai.decisions.system_one import SystemOneWire
from penstock.ai.dialogue import PromptSettings, usage_fields
from penstock.ai.providers.anthropic import MessagesWire
from penstock.ai.providers.chat_completions import ChatWire, CompletionsWire
from penstock.ai.providers.google import GenerateWire
from penstock.ai.providers.prompt_keys import CallKeys
from penstock.ai.providers.remote_prompter import ApiPrompter
from penstock.ai.providers.responses import ResponsesWire
from penstock.ai.providers.wire import PromptWire
from penstock.cache.ordinals import with_ordinal
from penstock.cost.prices import cost_of
from penstock.protocols import Ledger

WIRES: Mapping[str, type[PromptWire]] = {
    "chat": ChatWire,
    "decisions": OpenAIDecisionWire,
    "system one": SystemOneWire,
    "completions": CompletionsWire,
    "generate": GenerateWire,
    "messages": MessagesWire,
    "responses": ResponsesWire,
}
"""Wires by the name that a job's folder has for them."""

MAX_EQUAL_CALLS = 16
"""Equal requests may have different answers; this many of them are compared with the answer of the row."""


def described_calls(model: ApiPrompter, settings: PromptSettings) -> dict[str, Any] | None:
    """Return what determines the keys and the cost of the calls of a model, as JSON values.

    None if one row takes several calls, or if a part is a secret or not JSON.
    """
    keys = model.keys
    name = next((name for name, wire in WIRES.items() if wire is type(keys.wire)), None)
    has_one_call = not settings.tools and settings.num_answers is None
    if name is None or not has_one_call or shown(keys.base_url) != keys.base_url:
        return None
    described = {
        "provider": keys.provider,
        "base_url": keys.base_url,
        "wire": name,
        "fields": [keys.wire.model, keys.wire.body, keys.wire.extra_body, keys.wire.row_names],
        "price": settings.price,
        "is_batch": settings.is_batch,
    }
    try:
        found: dict[str, Any] = orjson.loads(orjson.dumps(described))
    except TypeError:
        return None
    return found


def recorded_usage(
    described: Mapping[str, Any], request: Request, answer: object, ledger: Ledger
) -> dict[str, Any] | None:
    """Return model, tokens, cost and time of the call that gave ``answer``; None if it is not in the ledger."""
    wire = WIRES[described["wire"]](*described["fields"])
    key = CallKeys(described["provider"], described["base_url"], wire).key(request)
    keys = [with_ordinal(key, number) for number in range(MAX_EQUAL_CALLS)]
    found = ledger.get(keys)
    calls = [recorded_answers(found[key])[0] for key in keys if key in found]
    call = calls[0] if len(calls) == 1 else next((each for each in calls if each.text == answer), None)
    if call is None:
        return None
    price, is_batch = described["price"], described["is_batch"]
    usage = usage_fields([call], cost_of(described["provider"], call.model, call.usage, price=price, is_batch=is_batch))
    return {name: value for name, value in usage.items() if value is not None}
