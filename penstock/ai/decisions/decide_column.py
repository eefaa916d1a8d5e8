"""A column of decisions, and one request for several such columns with the same input and model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.ai.decisions.composed_decider import RemoteDecider
from penstock.ai.decisions.decision_format import DecisionFormat, Groups, distinct
from penstock.ai.decisions.questions import Questions
from penstock.ai.dialogue import PromptSettings
from penstock.ai.model_columns import prompt_column, resolve_call
from penstock.ai.provider import Deciding, Model, Provider
from penstock.ai.provider_registry import find_provider
from penstock.ai.providers.remote_prompter import ApiPrompter
from penstock.expr.column import Expression
from penstock.expr.nodes import UdfCall
from penstock.expr.udf import JoinedCall, UdfSpec


@dataclass(frozen=True)
class DecideCall:
    """A call of ``decide`` as the user wrote it, by which several become one."""

    provider: Provider
    model: str | None
    options: Mapping[str, Any]
    groups: Groups

    def column(self, parts: Sequence[Any], check: Callable[..., None]) -> Expression:
        call = resolve_call(Deciding, self.model, self.provider, self.options, {"questions": distinct(self.groups)})
        paid = call.options.settings
        settings = PromptSettings(
            call.provider,
            output=DecisionFormat.of_groups(self.groups),
            max_reasks=0,
            price=paid.price,
            is_batch=paid.batch is not None,
        )
        column = prompt_column(call, settings, parts, check)
        if not is_service(call.model):
            return column
        node = column._node
        assert isinstance(node, UdfCall)
        return Expression(replace(node, udf=replace(node.udf, builtin=replace(node.udf.builtin, joins=self))))

    def joined(self, spec: UdfSpec, other: UdfSpec) -> JoinedCall | None:
        asked = other.builtin.joins
        if not isinstance(asked, DecideCall) or len(asked.groups) > 1 or replace(asked, groups=self.groups) != self:
            return None
        added = (str(len(self.groups)), asked.groups[0][1])
        groups = (("0", self.groups[0][1]), *self.groups[1:], added)
        check = spec.builtin.check
        assert check is not None
        column = replace(self, groups=groups).column((), check)
        node = column._node
        assert isinstance(node, UdfCall)
        return JoinedCall(node.udf, None if len(self.groups) > 1 else "0", added[0])


def is_service(model: Model) -> bool:
    """Return True for a service for decisions: a further question costs a few tokens, not a call."""
    return isinstance(model, ApiPrompter) or (isinstance(model, RemoteDecider) and model.is_service)


def decide_column(
    parts: Sequence[Any],
    questions: Questions,
    provider: str | Provider | None,
    model: str | None,
    options: Mapping[str, Any],
    check: Callable[..., None],
) -> Expression:
    """Return a column of answers to ``questions`` about ``parts``, the parts of a message."""
    found = find_provider(provider, Deciding.function)
    return DecideCall(found, model, options, (("", questions),)).column(parts, check)
