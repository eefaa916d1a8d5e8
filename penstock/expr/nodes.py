"""Expression nodes: frozen data, compared by structure. ``Expression`` in ``column`` is the shell users hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal as Choice

import pyarrow as pa

from penstock.expr.udf import UdfSpec
from penstock.types import DataType


@dataclass(frozen=True, slots=True)
class Expr:
    """One node of an expression tree."""

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """Return the node over other children, in the order of ``children``."""
        return self

    @property
    def name(self) -> str:
        """The column this expression gives: that of its first named part, as in SQL's ``select upper(a)`` -> ``a``."""
        return next((child.name for child in self.children if not isinstance(child, Literal)), "literal")

    def __str__(self) -> str:
        return describe(self)


@dataclass(frozen=True, slots=True)
class ColumnRef(Expr):
    column: str

    @property
    def name(self) -> str:
        return self.column


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    """A constant. Held as an Arrow scalar because Python's ``1 == True == 1.0`` would merge distinct constants."""

    scalar: pa.Scalar


@dataclass(frozen=True, slots=True)
class Alias(Expr):
    child: Expr
    alias: str

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.child,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, child=children[0])

    @property
    def name(self) -> str:
        return self.alias


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """A conversion; with ``is_strict`` false, what cannot be converted becomes null."""

    child: Expr
    dtype: DataType
    is_strict: bool = True

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.child,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, child=children[0])


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """A registered function on arguments; ``options`` are constants, frozen and sorted by name."""

    function: str
    args: tuple[Expr, ...]
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, args=children)


@dataclass(frozen=True, slots=True)
class ListApply(Expr):
    """``body``, an expression over ``element()``, computed for every element of a list column."""

    child: Expr
    body: Expr
    verb: Choice["map", "filter"]

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.child,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, child=children[0])


@dataclass(frozen=True, slots=True, eq=False)
class PythonValue(Expr):
    """A Python object handed to a UDF as it is; compared by identity, as it may not be comparable otherwise."""

    value: Any

    __eq__ = object.__eq__
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class UdfCall(Expr):
    """A user-defined function on arguments. The planner gives each one a stage of its own."""

    udf: UdfSpec
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...] = ()

    @property
    def children(self) -> tuple[Expr, ...]:
        return (*self.args, *(value for _, value in self.kwargs))

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        args = children[: len(self.args)]
        values = children[len(self.args) :]
        return replace(self, args=args, kwargs=tuple((n, v) for (n, _), v in zip(self.kwargs, values, strict=True)))

    @property
    def name(self) -> str:
        constant = (Literal, PythonValue)
        return next((child.name for child in self.children if not isinstance(child, constant)), self.udf.name)


@dataclass(frozen=True, slots=True)
class Unnest(Expr):
    """Every field of a struct as a column of its own; stands alone in a select list."""

    child: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.child,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, child=children[0])


@dataclass(frozen=True, slots=True)
class Star(Expr):
    """Every column but those excluded; stands alone in a select list."""

    exclude: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "*"


ELEMENT = ColumnRef("element()")  # what ListApply.body refers to


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield the node and all below it, parents first."""
    yield expr
    for child in expr.children:
        yield from walk(child)


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return the tree with ``change`` applied to every node, children first; the same object if nothing changed."""
    children = expr.children
    changed = tuple(rewrite(child, change) for child in children)
    if any(new is not old for new, old in zip(changed, children, strict=True)):
        expr = expr.with_children(changed)
    return change(expr)


def columns_of(expr: Expr) -> set[str]:
    """Return the names of the input columns that the expression reads."""
    return {node.column for node in walk(expr) if isinstance(node, ColumnRef)}


def has_udf(expr: Expr) -> bool:
    return any(isinstance(node, UdfCall) for node in walk(expr))


def unalias(expr: Expr) -> Expr:
    return unalias(expr.child) if isinstance(expr, Alias) else expr


_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "modulo": "%", "power": "**",
    "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
    "and": "&", "or": "|", "xor": "^",
}  # fmt: skip


def describe(expr: Expr) -> str:
    """Return the expression as people write it.

    >>> describe(Call("add", (ColumnRef("a"), Literal(pa.scalar(1)))))
    'col(a) + 1'
    """
    match expr:
        case ColumnRef(column):
            return column if expr == ELEMENT else f"col({column})"
        case Literal(scalar):
            return _shortened(repr(scalar.as_py()))
        case PythonValue(value):
            return f"<{type(value).__name__}>"
        case Alias(child, alias):
            return f"{describe(child)} as {alias}"
        case Cast(child, dtype, is_strict):
            return f"{_operand(child)}.{'cast' if is_strict else 'try_cast'}({dtype})"
        case Call("not", (child,)):
            return f"~{_operand(child)}"
        case Call(function, (left, right)) if function in _INFIX:
            return f"{_operand(left)} {_INFIX[function]} {_operand(right)}"
        case Call(function, args, options):
            parts = [describe(arg) for arg in args] + [f"{k}={_shortened(repr(v))}" for k, v in options]
            return f"{function}({', '.join(parts)})"
        case ListApply(child, body, verb):
            return f"list_{verb}({describe(child)}, {describe(body)})"
        case UdfCall(udf, args, kwargs):
            parts = [describe(arg) for arg in args] + [f"{k}={describe(v)}" for k, v in kwargs]
            return f"{udf.name}({', '.join(parts)})"
        case Unnest(child):
            return f"unnest({describe(child)})"
        case Star(exclude):
            return f"* except {', '.join(exclude)}" if exclude else "*"
    raise AssertionError(f"no text for {type(expr).__name__}")


def _operand(expr: Expr) -> str:
    text = describe(expr)
    is_infix = isinstance(expr, Call) and expr.function in _INFIX
    return f"({text})" if is_infix or isinstance(expr, Alias) else text


def _shortened(text: str, width: int = 40) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
