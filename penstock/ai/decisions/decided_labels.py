"""Labels of ``classify_text`` and ``classify_image`` by a decision: a choice among the labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.ai.decisions.decide_column import decide_column
from penstock.ai.decisions.decision_services import SystemOneProvider
from penstock.ai.decisions.openai_decisions import MODELS
from penstock.ai.decisions.questions import choice
from penstock.ai.provider import Provider
from penstock.ai.provider_registry import find_provider
from penstock.ai.providers.remote_provider import RemoteProvider
from penstock.expr.column import Expression, call


def is_decided(function: str, provider: Any, model: Any, *, has_scores: bool = False) -> bool:
    """Return True if a decision picks the labels: the model is for decisions, or a remote one must give scores."""
    if isinstance(provider, Expression) or isinstance(model, Expression):
        return False  # an error, for who reads the other arguments
    found = find_provider(provider, function)
    if isinstance(found, SystemOneProvider):
        return True
    return isinstance(found, RemoteProvider) and (has_scores or model in MODELS)


def decided_label(
    column: Expression | str,
    what: str,
    labels: tuple[str, ...],
    provider: str | Provider | None,
    model: str | None,
    options: Mapping[str, Any],
    check: Callable[..., None],
) -> Expression:
    """Return a column of ``scored_label``: the most likely label, its probability, and the probabilities of all
    labels.
    """
    question = choice(f"Which label fits the {what} best?", labels)
    chosen = find_provider(provider, "classify_text")
    answer = decide_column((column,), (("label", question),), chosen, model, options, check)["label"]
    fields = {"label": "value", "score": "probability", "scores": "probabilities"}
    return call("to_struct", *(answer[field] for field in fields.values()), names=tuple(fields))
