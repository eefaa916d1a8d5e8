"""The prompts of rows, rendered as they were sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expr.evaluate import Program
from penstock.expr.nodes import Alias, Call, ColumnRef, Expr, Literal, UdfCall, columns_of, unalias
from penstock.observe.dashboard.cells import Cell, CellLimits, binary_cell, text_cell
from penstock.plan.nodes import Filter, IntoBatches, Limit, Plan, Project, Repartition, Sample
from penstock.storage.file import File
from penstock.types import Schema

if TYPE_CHECKING:
    from penstock.ai.conversation import Part, Turn

# Functions of texts that may be computed again: they give the same value, without files and without the network.
PURE = {
    *("format", "add", "concat", "concat_ws", "coalesce", "get_item", "to_struct"),
    *("strip", "upper", "lower", "substr", "replace"),
}
SAME_ROWS = (Filter, Limit, Sample, IntoBatches, Repartition)


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The system message of a prompt, and expressions for its parts and then for the options of a row."""

    parts: tuple[Expr, ...]
    system: str | None
    row_options: tuple[str, ...]

    @staticmethod
    def of(call: Expr) -> PromptTemplate | None:
        """Return the template of a call of ``prompt``; None of anything else, and of a call for some rows alone."""
        from penstock.ai.exchange import PromptSettings

        if isinstance(call, UdfCall) and call.condition is None:
            for each in call.udf.target.init_args:
                if isinstance(each, PromptSettings):
                    return PromptTemplate(call.args, each.system, each.row_options)
        return None

    def messages(self, row: pa.RecordBatch, limits: CellLimits) -> list[dict[str, Any]]:
        """Return the messages for a batch of one row; none if nothing was sent for it."""
        from penstock.ai.exchange import PromptSettings
        from penstock.ai.messages.message import message_of

        settings = PromptSettings(system=self.system, row_options=self.row_options)
        named = [Alias(part, str(number)) for number, part in enumerate(self.parts)]
        try:
            values = [each.to_pylist()[0] for each in Program(named, Schema.from_arrow(row.schema)).run(row).columns]
            parts, options = settings.split([str(each) if isinstance(each, File) else each for each in values])
            message = message_of(parts)
        except (PenstockError, KeyError) as exc:
            return [{"role": "error", "parts": [{"text": f"The prompt cannot be shown: {exc}"}]}]
        if message is None:
            return []
        request = settings.request(message, options)
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

    Left out are those that the rows of the result cannot fill: a column that they read is dropped or changed later, or
    they call a function that must not run again, such as one of the user.
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
                        found[expr.name] = {"parts": parts, "system": template.system, "row_options": options}
            kept = passed
        plan = plan.child
    return found


def read_prompts(described: Mapping[str, Any]) -> dict[str, PromptTemplate]:
    """Return the templates that ``described_prompts`` has described."""
    return {
        column: PromptTemplate(tuple(map(_expression, each["parts"])), each["system"], tuple(each["row_options"]))
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
