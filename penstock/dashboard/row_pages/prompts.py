"""The prompts of rows as Penstock sent them, and the usage of their calls."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.dashboard.row_pages.cells import Cell, CellLimits, binary_cell, text_cell
from penstock.errors import PenstockError
from penstock.expr.evaluate import Program
from penstock.expr.nodes import Alias, Call, ColumnRef, Expr, Literal, UdfCall, columns_of, unalias
from penstock.plan.nodes import Filter, IntoBatches, Limit, Plan, Project, Repartition, Sample
from penstock.storage.file import File
from penstock.types import Schema

if TYPE_CHECKING:
    from penstock.ai.conversation import Part, Request, Turn
    from penstock.protocols import Ledger

# Functions of texts that may be computed again: they give the same value, without files and without the network.
PURE = {
    *("format", "add", "concat", "concat_ws", "coalesce", "get_item", "to_struct"),
    *("strip", "upper", "lower", "substr", "replace"),
}
SAME_ROWS = (Filter, Limit, Sample, IntoBatches, Repartition)


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The system message of a prompt, and expressions for its parts and then for the options of a row.

    ``calls`` describes the calls if they can be made again, and the ledger may hold their usage; see
    ``ai.recorded_usage``. ``schema`` is the JSON schema of the answers.
    """

    parts: tuple[Expr, ...]
    system: str | None
    row_options: tuple[str, ...]
    calls: Mapping[str, Any] | None = None
    schema: Mapping[str, Any] | None = None

    @staticmethod
    def of(call: Expr) -> PromptTemplate | None:
        """Return the template of a ``prompt`` call; None for other calls, and for calls that only some rows make."""
        from penstock.ai.dialogue import PromptSettings

        if not isinstance(call, UdfCall) or call.condition is not None:
            return None
        given = call.udf.target.init_args
        settings = next((each for each in given if isinstance(each, PromptSettings)), None)
        if settings is None:
            return None
        from penstock.ai.providers.recorded_usage import described_calls
        from penstock.ai.providers.remote_prompter import ApiPrompter

        model = next((each for each in given if isinstance(each, ApiPrompter)), None)
        calls = None if model is None else described_calls(model, settings)
        schema = None if settings.output is None else settings.output.value_schema
        return PromptTemplate(call.args, settings.system, settings.row_options, calls, schema)

    def request(self, row: pa.RecordBatch) -> Request | None:
        """Return the first request for a batch of one row; None if nothing was sent for it."""
        from penstock.ai.dialogue import PromptSettings
        from penstock.ai.messages.message import message_of

        settings = PromptSettings(system=self.system, row_options=self.row_options)
        named = [Alias(part, str(number)) for number, part in enumerate(self.parts)]
        values = [each.to_pylist()[0] for each in Program(named, Schema.from_arrow(row.schema)).run(row).columns]
        parts, options = settings.split([str(each) if isinstance(each, File) else each for each in values])
        message = message_of(parts)
        return None if message is None else settings.request(message, options)

    def usage(self, row: pa.RecordBatch, column: str, ledger: Ledger) -> dict[str, Any] | None:
        """Return the usage of the call for a batch of one row, from the ledger of its answers; None if unknown."""
        with suppress(PenstockError, KeyError, TypeError, ValueError):  # or the description is damaged
            if self.calls is not None and (request := self.request(row)) is not None:
                from penstock.ai.providers.recorded_usage import recorded_usage

                return recorded_usage(self.calls, request, row.column(column)[0].as_py(), ledger)
        return None

    def messages(self, row: pa.RecordBatch, limits: CellLimits) -> list[dict[str, Any]]:
        """Return the messages for a batch of one row; none if nothing was sent for it."""
        try:
            request = self.request(row)
        except (PenstockError, KeyError) as exc:
            return [{"role": "error", "parts": [{"text": f"The prompt cannot be shown: {exc}"}]}]
        if request is None:
            return []
        system = [] if request.system is None else [{"role": "system", "parts": [text_cell(request.system, limits)]}]
        return [*system, *({"role": _role(turn), "parts": _cells(turn, limits)} for turn in request.turns)]


def _role(turn: Turn) -> str:
    from penstock.ai.conversation import UserTurn

    return "user" if isinstance(turn, UserTurn) else "assistant"


def _cells(turn: Turn, limits: CellLimits) -> list[Cell]:
    from penstock.ai.conversation import ModelTurn, UserTurn

    match turn:
        case UserTurn(parts):
            return [_cell(part, limits) for part in parts]
        case ModelTurn(text):
            return [text_cell(text, limits)]
        case _:
            return [text_cell(result.content, limits) for result in turn.results]


def _cell(part: Part, limits: CellLimits) -> Cell:
    from penstock.ai.conversation import Text

    return text_cell(part.text, limits) if isinstance(part, Text) else binary_cell(part.data, limits)


# --- in the folder of a job -------------------------------------------------------------------------------------------


def described_prompts(plan: Plan) -> dict[str, Any]:
    """Return the templates of a plan by column, as JSON values.

    Leaves out templates that the rows of the result cannot fill: a column that they read is dropped or changed later,
    or they call a function that must not run again, such as a user's.
    """
    found: dict[str, Any] = {}
    kept = set(plan.schema.names) if plan.schema is not None else set[str]()
    while kept and isinstance(plan, (Project, *SAME_ROWS)):
        if isinstance(plan, Project):
            passed = kept & {expr.column for expr in plan.exprs if isinstance(expr, ColumnRef)}
            for expr in plan.exprs if plan.has_udf else ():
                template = PromptTemplate.of(unalias(expr)) if expr.name in kept else None
                if template is not None and all(columns_of(part) <= passed for part in template.parts):
                    parts = [_data_of(part) for part in template.parts]
                    if None not in parts:
                        options = list(template.row_options)
                        given = {"system": template.system, "row_options": options, "calls": template.calls}
                        given |= {"schema": template.schema}
                        found[expr.name] = {"parts": parts, **given}
            kept = passed
        plan = plan.child
    return found


def read_prompts(described: Mapping[str, Any]) -> dict[str, PromptTemplate]:
    return {
        column: PromptTemplate(
            tuple(map(_expression, each["parts"])),
            each["system"],
            tuple(each["row_options"]),
            each.get("calls"),
            each.get("schema"),
        )
        for column, each in described.items()
    }


def _data_of(expr: Expr) -> Any:
    """Return an expression as JSON values; None if it cannot be read back, or must not be computed again."""
    match expr:
        case ColumnRef(column):
            return {"column": column}
        case Alias(child):
            return _data_of(child)
        case Literal(scalar) if isinstance(value := scalar.as_py(), str | int | float):
            return {"value": value}
        case Call(function, args, options) if function in PURE:
            parts = [_data_of(arg) for arg in args]
            if None not in parts:
                return {"function": function, "args": parts, "options": dict(options)}
    return None


def _expression(data: Mapping[str, Any]) -> Expr:
    match data:
        case {"column": column}:
            return ColumnRef(column)
        case {"value": value}:
            return Literal(pa.scalar(value))
        case {"function": function, "args": args, "options": options} if function in PURE:
            given = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
            return Call(function, tuple(map(_expression, args)), tuple(sorted(given.items())))
    raise ValueError(f"not an expression of a prompt: {data}")
