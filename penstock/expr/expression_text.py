"""Expressions as text, for plans and error messages."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import shortened
from penstock.expr.nodes import (
    ELEMENT,
    Aggregation,
    Alias,
    Call,
    Cast,
    ColumnRef,
    Expr,
    ListApply,
    Literal,
    PythonValue,
    Star,
    UdfCall,
    Unnest,
    WindowCall,
)
from penstock.expr.udf import UdfSpec

_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "modulo": "%", "power": "**",
    "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
    "and": "&", "or": "|", "xor": "^", "shift_left": "<<", "shift_right": ">>",
}  # fmt: skip

MAX_TEXT = 200  # the most characters of an expression
MAX_CONSTANT = 40
MAX_TEMPLATE = 120
_MAX_DEPTH = 12  # a shared part is described once for each path to it


def describe(expr: Expr) -> str:
    """Return the expression as users write it, shortened if it is very long or deep.

    >>> import pyarrow as pa
    >>> describe(Call("add", (ColumnRef("a"), Literal(pa.scalar(1)))))
    'col(a) + 1'
    """
    return shortened(_text(expr, _MAX_DEPTH), MAX_TEXT)


def _text(expr: Expr, depth: int) -> str:
    """Return the text of an expression, with ``...`` for parts more than ``depth`` levels below."""
    if depth < 0:
        return "..."
    match expr:
        case ColumnRef(column):
            return column if expr == ELEMENT else f"col({column})"
        case Literal(scalar):
            return shortened(repr(scalar.as_py()), MAX_CONSTANT)
        case PythonValue(value):
            return f"<{type(value).__name__}>"
        case Alias(child, alias):
            return f"{_text(child, depth - 1)} as {alias}"
        case Cast(child, dtype, is_strict):
            return f"{_operand(child, depth - 1)}.{'cast' if is_strict else 'try_cast'}({dtype})"
        case Call("not", (child,)):
            return f"~{_operand(child, depth - 1)}"
        case Call(function, (left, right)) if function in _INFIX:
            return f"{_operand(left, depth - 1)} {_INFIX[function]} {_operand(right, depth - 1)}"
        case Call("format", args, (("texts", texts),)):
            return f"format({', '.join(_template(texts, args, depth - 1))})"
        case Call(function, args, options) | Aggregation(function, args, options):
            given = [f"{k}={shortened(repr(v), MAX_CONSTANT)}" for k, v in options]
            return f"{function}({', '.join([*(_text(arg, depth - 1) for arg in args), *given])})"
        case WindowCall(function, args):
            return f"{function}({', '.join(_text(arg, depth - 1) for arg in args)}).over(...)"
        case ListApply(child, body, verb):
            return f"list_{verb}({_text(child, depth - 1)}, {_text(body, depth - 1)})"
        case UdfCall(udf, args) if udf.builtin.identity or udf.builtin.model:
            return f"{udf.name}({', '.join(_model_arguments(udf, args, depth - 1))})"
        case UdfCall(udf, args, kwargs):
            given = [f"{name}={_text(value, depth - 1)}" for name, value in kwargs]
            return f"{udf.name}({', '.join([*(_text(arg, depth - 1) for arg in args), *given])})"
        case Unnest(child):
            return f"unnest({_text(child, depth - 1)})"
        case Star(exclude):
            return f"* except {', '.join(exclude)}" if exclude else "*"
    raise AssertionError(f"no text for {type(expr).__name__}")


def _template(texts: Sequence[str], args: Sequence[Expr], depth: int) -> list[str]:
    """Return the template of ``format`` with the names of its columns, then the arguments that are not columns."""
    fields = [f"{{{arg.column}}}" if isinstance(arg, ColumnRef) else "{}" for arg in args]
    literals = [text.replace("{", "{{").replace("}", "}}") for text in texts]
    template = literals[0] + "".join(field + text for field, text in zip(fields, literals[1:], strict=True))
    return [_quoted(template, MAX_TEMPLATE), *(_text(arg, depth) for arg in args if not isinstance(arg, ColumnRef))]


def _model_arguments(udf: UdfSpec, args: Sequence[Expr], depth: int) -> list[str]:
    """Return the arguments of a model call as users write them: templates and texts, options, and the model."""
    num_parts = len(args) - len(udf.builtin.row_options)
    shown = []
    for arg in args[:num_parts]:
        match arg:
            case Call("format", fields, (("texts", texts),)) if all(isinstance(each, ColumnRef) for each in fields):
                shown += _template(texts, fields, depth)
            case Literal(scalar) if isinstance(text := scalar.as_py(), str):
                shown.append(_quoted(text, MAX_TEMPLATE))
            case _:
                shown.append(_text(arg, depth))
    named = zip(udf.builtin.row_options, args[num_parts:], strict=True)
    shown += [f"{name}={_text(arg, depth)}" for name, arg in named]
    return shown if udf.builtin.model is None else [*shown, f"model={udf.builtin.model}"]


def _quoted(text: str, length: int) -> str:
    return f'"{shortened(text, length)}"'


def _operand(expr: Expr, depth: int) -> str:
    text = _text(expr, depth)
    is_infix = isinstance(expr, Call) and expr.function in _INFIX
    return f"({text})" if (is_infix or isinstance(expr, Alias)) and text != "..." else text
