"""Typed questions about each row: ``decide``, and the questions that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from penstock.ai.decisions.decide_column import decide_column
from penstock.ai.decisions.questions import Question, checked_questions, choice, score, yes_no
from penstock.ai.option_types import DecisionOptions, documented
from penstock.ai.provider import Provider
from penstock.expr.column import Expression
from penstock.expr.public_functions import function, method
from penstock.functions.ai import check_messages, message_parts

__all__ = ["choice", "decide", "score", "yes_no"]

function(yes_no)
function(choice)
function(score)


@method
@documented(DecisionOptions)
def decide(
    messages: Expression | str | Sequence[Any],
    questions: Mapping[str, Question],
    *,
    provider: str | Provider | None = None,
    model: str | None = None,
    **options: Unpack[DecisionOptions],
) -> Expression:
    """Answer typed questions about each row, with a probability for every option.

    The result is a struct with the answer to each question: ``value``, ``probability`` (of yes, or of the value),
    ``probabilities`` of all options, and ``refused``. The answer to a score has the mean level as ``score``. All
    questions about a row are one request, if the model answers several. See ``docs/guides/decisions.md``.

    >>> from penstock.functions import choice, yes_no
    >>> server = getfixture("model_server")  # finds the option that the text names
    >>> ps.set_provider("openai", base_url=server.openai_url, api_key="test")
    >>> df = ps.from_pydict({"text": ["a bug, and yes, I want a refund"]})
    >>> asked = {"refund": yes_no("A refund?"), "topic": choice("About what?", ["billing", "bug"])}
    >>> df = df.with_column("d", decide("{text}", asked, model="gpt-6-luna"))
    >>> df.where(ps.col("d")["refund"]["probability"] > 0.5).select(ps.col("d")["topic"]["value"]).to_pydict()
    {'value': ['bug']}
    """
    parts = message_parts("decide", messages)
    return decide_column(parts, checked_questions(questions), provider, model, options, check_messages)
