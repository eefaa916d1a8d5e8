"""Statements about rows, such as ``"{text} complains about delivery"``, and a model that says yes or no to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock.ai.decisions.decide_column import decide_column
from penstock.ai.decisions.decided_labels import is_decided
from penstock.ai.decisions.questions import yes_no
from penstock.ai.dialogue import PromptSettings
from penstock.ai.model_columns import prompt_column, resolve_call
from penstock.ai.provider import Prompting, Provider
from penstock.ai.structured.return_formats import OutputFormat
from penstock.errors import InvalidArgumentError, shortened
from penstock.expr.column import Expression, col, lit
from penstock.expr.templates import split_template

Check = Callable[..., None]


@dataclass(frozen=True)
class Statement:
    """A statement as a model reads it: ``[text] complains about delivery``, and the columns that it names."""

    text: str
    columns: tuple[str, ...]

    @staticmethod
    def of(template: Any) -> Statement:
        """Read a template.

        >>> Statement.of("{left} cites {right}, and {left} is older")
        Statement(text='[left] cites [right], and [left] is older', columns=('left', 'right'))
        """
        if not isinstance(template, str):
            raise InvalidArgumentError(
                f"ask: the statement is a text such as '{{text}} complains about delivery'; got {template!r}."
            )
        texts, fields = split_template("ask", template)
        if not fields or "" in fields:
            raise InvalidArgumentError(
                f"ask: {shortened(repr(template), 60)} needs the name of a column, as in '{{text}} is a complaint'."
            )
        parts = [f"[{field}]{text}" for field, text in zip(fields, texts[1:], strict=True)]
        return Statement(texts[0] + "".join(parts), tuple(dict.fromkeys(fields)))

    @property
    def question(self) -> str:
        known = "" if len(self.columns) > 1 else f" ([{self.columns[0]}] is the input.)"
        return f"Is this true? {self.text}{known}"

    def parts(self) -> Sequence[Any]:
        """Return the message about a row: the column, or several columns, each after its name."""
        if len(self.columns) == 1:
            return [col(self.columns[0])]
        return [part for name in self.columns for part in (lit(f"[{name}]:"), col(name))]


@dataclass(frozen=True)
class StatementModel:
    """A model that says whether statements are true, with the options of its calls. ``check`` checks input types."""

    provider: Provider
    name: str | None
    options: Mapping[str, Any]
    check: Check

    def answer(self, statement: Statement) -> Expression:
        """Return whether a statement is true of each row. A decision model decides, another one answers in words.

        So a language model may reason first. A model on this machine decides, because that needs no generated text.
        """
        provider, name = self.provider, self.name or self.provider.default_models.get("decide")
        if "wire" in self.options or provider.has_workers or is_decided("decide", provider, name):
            return self.decision(statement)["value"]
        call = resolve_call(Prompting, self.name, provider, self.options, {})
        instructions = f"{statement.question}\nAnswer yes or no."
        settings = PromptSettings(call.provider, instructions, OutputFormat.of(Literal["yes", "no"]))
        return prompt_column(call, settings, statement.parts(), self.check) == "yes"

    def decision(self, statement: Statement) -> Expression:
        """Return the answer of ``decide``, whose ``probability`` says how likely the statement is true of a row."""
        questions = (("true", yes_no(statement.question)),)
        answers = decide_column(statement.parts(), questions, self.provider, self.name, self.options, self.check)
        return answers["true"]
