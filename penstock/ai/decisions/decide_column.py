"""A column of decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.ai.decisions.composed_decider import RemoteDecider
from penstock.ai.decisions.decision_format import DECISIONS
from penstock.ai.decisions.questions import Questions
from penstock.ai.dialogue import USAGE, PromptSettings
from penstock.ai.model_columns import prompt_column, resolve_call
from penstock.ai.provider import Deciding, Model, Provider
from penstock.ai.provider_registry import find_provider
from penstock.ai.providers.remote_prompter import ApiPrompter
from penstock.cost.prices import Price, price_of
from penstock.expr.column import Expression, call


def decide_column(
    parts: Sequence[Any],
    questions: Questions,
    provider: str | Provider | None,
    model: str | None,
    options: Mapping[str, Any],
    check: Callable[..., None],
    has_usage: bool = False,
) -> Expression:
    """Return a column of answers to ``questions`` about ``parts``, the parts of a message."""
    chosen = find_provider(provider, Deciding.function)
    found = resolve_call(Deciding, model, chosen, options, {"questions": questions})
    paid = found.options.settings
    settings = PromptSettings(
        found.provider,
        output=DECISIONS,
        has_usage=has_usage,
        max_reasks=0,
        price=paid.price or _price_of(found.model),
        is_batch=paid.batch is not None,
    )
    given = prompt_column(found, settings, parts, check)
    if not has_usage:
        return call("decisions", given, questions=questions)
    answers = call("decisions", given["value"], questions=questions)
    return call("to_struct", answers, *(given[name] for name in USAGE), names=("value", *USAGE))


def _price_of(model: Model) -> Price | None:
    """Return the price of a model's decisions, which may differ from the price of its texts; None if it is unknown."""
    billed = model.billed_as if isinstance(model, ApiPrompter | RemoteDecider) else None
    return None if billed is None else price_of(*billed)
