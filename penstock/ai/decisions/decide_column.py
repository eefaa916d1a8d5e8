"""A column of decisions, and one request for several such columns with the same input and model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from penstock.expr.nodes import UdfCall
from penstock.expr.udf import JoinedCall, UdfSpec


@dataclass(frozen=True)
class DecideCall:
    """A call of ``decide`` as the user wrote it. Several of them can become one call."""

    provider: Provider
    model: str | None
    options: Mapping[str, Any]
    questions: Questions
    has_usage: bool = False

    def probabilities(self, parts: Sequence[Any], check: Callable[..., None]) -> Expression:
        """Return the column of probabilities, which the model gives, in a struct with the usage if wanted."""
        found = resolve_call(Deciding, self.model, self.provider, self.options, {"questions": self.questions})
        paid = found.options.settings
        settings = PromptSettings(
            found.provider,
            output=DECISIONS,
            has_usage=self.has_usage,
            max_reasks=0,
            price=paid.price or _price_of(found.model),
            is_batch=paid.batch is not None,
        )
        column = prompt_column(found, settings, parts, check)
        if self.has_usage or not is_service(found.model):
            return column
        node = node_of(column)
        return Expression(replace(node, udf=replace(node.udf, builtin=replace(node.udf.builtin, joins=self))))

    def joined(self, spec: UdfSpec, other: UdfSpec) -> JoinedCall | None:
        asked = other.builtin.joins
        if not isinstance(asked, DecideCall) or replace(asked, questions=self.questions) != self:
            return None
        questions = all_of(self.questions, asked.questions)
        check = spec.builtin.check
        assert check is not None
        udf = node_of(replace(self, questions=questions).probabilities((), check)).udf
        starts = dict(zip((question for _, question in questions), starts_of(questions), strict=True))
        positions = [starts[each] + number for _, each in asked.questions for number in range(len(each.options))]
        return JoinedCall(udf, tuple(positions))


def node_of(column: Expression) -> UdfCall:
    node = column._node
    assert isinstance(node, UdfCall)
    return node


def starts_of(questions: Questions) -> Sequence[int]:
    """Return the position of the first option of each question."""
    return list(itertools.accumulate((len(question.options) for _, question in questions[:-1]), initial=0))


def all_of(first: Questions, second: Questions) -> Questions:
    """Return the questions of two calls without duplicates, each under a name of its own.

    >>> from penstock.ai.decisions.questions import yes_no
    >>> [name for name, _ in all_of((("q", yes_no("Old?")),), (("q", yes_no("New?")), ("r", yes_no("Old?"))))]
    ['q', 'q_2']
    """
    found = list(first)
    for name, question in second:
        if all(question != known for _, known in found):
            names = {known for known, _ in found}
            unused = (f"{name}_{number}" for number in itertools.count(2))
            found.append((name if name not in names else next(each for each in unused if each not in names), question))
    return tuple(found)


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
    has_usage: bool = False,
) -> Expression:
    """Return a column of answers to ``questions`` about ``parts``, the parts of a message."""
    found = find_provider(provider, Deciding.function)
    given = DecideCall(found, model, options, questions, has_usage).probabilities(parts, check)
    if not has_usage:
        return call("decisions", given, questions=questions)
    answers = call("decisions", given["value"], questions=questions)
    return call("to_struct", answers, *(given[name] for name in USAGE), names=("value", *USAGE))


def _price_of(model: Model) -> Price | None:
    """Return the price of a model's decisions, which may differ from the price of its texts; None if it is unknown."""
    billed = model.billed_as if isinstance(model, ApiPrompter | RemoteDecider) else None
    return None if billed is None else price_of(*billed)
