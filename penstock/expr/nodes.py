"""Expression nodes: frozen data, compared by structure. ``Expression`` in ``column`` is the shell users hold."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal as Choice

import pyarrow as pa

from penstock.expr.udf import UdfSpec
from penstock.types import DataType
from penstock.types.frozen import frozen, values_of


class _Structural:
    """Equality by structure that visits a shared part once.

    An expression used twice is one object, so a tree of forty levels may have too many paths to visit. The hash is
    cached and not pickled, because hashes of strings differ between processes.
    """

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            assert isinstance(self, Expr)
        for node in bottom_up(self):
            if not isinstance(node, PythonValue):  # its value may be unhashable
                object.__setattr__(node, "_hash", hash((type(node), *values_of(node))))
        return self._hash

    def __eq__(self, other: object) -> bool:
        pending: list[tuple[Any, Any]] = [(self, other)]
        seen: set[tuple[int, int]] = set()
        while pending:
            left, right = pending.pop()
            if left is right or (id(left), id(right)) in seen:
                continue
            if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
                pending.extend(zip(left, right, strict=True))
            elif not isinstance(left, _Structural) or isinstance(left, PythonValue):
                if left != right:
                    return False
            elif type(left) is type(right) and hash(left) == hash(right):
                seen.add((id(left), id(right)))
                pending.extend(zip(values_of(left), values_of(right), strict=True))
            else:
                return False
        return True


@frozen
class Expr(_Structural):
    """One node of an expression tree."""

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """Return the node with other children, in the order of ``children``."""
        return self

    @property
    def name(self) -> str:
        """The name of the resulting column, taken from the first named part: ``upper(col("a"))`` is ``a``."""
        part = self._named_by()
        while isinstance(part, Expr):
            part = part._named_by()
        return part

    def _named_by(self) -> Expr | str:
        """Return the node's own name, or the child that names it."""
        return next((child for child in self.children if not isinstance(child, Literal)), "literal")

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as a list of nodes, children first, because pickle is recursive and an expression may be deep."""
        if not self.children:
            return object.__reduce_ex__(self, protocol)
        nodes = bottom_up(self)
        positions = {id(node): position for position, node in enumerate(nodes)}
        parts = [_part(node, [positions[id(child)] for child in node.children]) for node in nodes]
        return _rebuilt, (parts,)


@frozen
class ColumnRef(Expr):
    column: str

    def __eq__(self, other: object) -> bool:
        return type(other) is ColumnRef and self.column == other.column

    def __hash__(self) -> int:
        return hash(self.column)

    @property
    def name(self) -> str:
        return self.column

    def _named_by(self) -> Expr | str:
        return self.column


@frozen
class Literal(Expr):
    """A constant. Held as an Arrow scalar because Python's ``1 == True == 1.0`` would merge distinct constants."""

    scalar: pa.Scalar

    def __reduce__(self) -> Any:
        # Unpickling a scalar imports pandas, which takes a worker longer than its start, or fails for extension types.
        return _literal, (pa.repeat(self.scalar, 1),)


def _literal(values: pa.Array) -> Literal:
    return Literal(values[0])


@frozen
class UnaryExpr(Expr):
    """A node with one child."""

    child: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.child,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, child=children[0])


@frozen
class Alias(UnaryExpr):
    """An expression under another name."""

    alias: str

    def _named_by(self) -> Expr | str:
        return self.alias


@frozen
class Cast(UnaryExpr):
    """A conversion; with ``is_strict`` false, a value that does not fit becomes null."""

    dtype: DataType
    is_strict: bool = True


@frozen
class FunctionExpr(Expr):
    """A named function on arguments; ``options`` are constants, frozen and sorted by name."""

    function: str
    args: tuple[Expr, ...]
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return replace(self, args=children)


@frozen
class Call(FunctionExpr):
    """A function of the registry, computed row by row."""

    def _named_by(self) -> Expr | str:
        """A field of a struct and a value of a map are named after their key."""
        keys = [value for _, value in self.options] if self.function in ("get_item", "struct_get") else []
        return keys[0] if keys and isinstance(keys[0], str) else Expr._named_by(self)


@frozen
class ListApply(UnaryExpr):
    """``body``, an expression over ``element()``, computed for every element of a list column."""

    body: Expr
    verb: Choice["map", "filter"]


@frozen
class PythonValue(Expr):
    """A Python object passed to a UDF unchanged; compared by identity, because it may have no usable ``==``."""

    value: Any

    __eq__ = object.__eq__
    __hash__ = object.__hash__


@frozen
class UdfCall(Expr):
    """A user-defined function on arguments; the planner gives each call its own stage.

    With a ``condition`` only the rows for which it is true are passed to the function; the others are null.
    """

    udf: UdfSpec
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...] = ()
    condition: Expr | None = None

    @property
    def arguments(self) -> tuple[Expr, ...]:
        return (*self.args, *(value for _, value in self.kwargs))

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.arguments if self.condition is None else (*self.arguments, self.condition)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        num_args = len(self.args)
        kwargs = tuple((name, value) for (name, _), value in zip(self.kwargs, children[num_args:], strict=False))
        condition = None if self.condition is None else children[-1]
        return replace(self, args=children[:num_args], kwargs=kwargs, condition=condition)

    def _named_by(self) -> Expr | str:
        constant = (Literal, PythonValue)
        return next((child for child in self.children if not isinstance(child, constant)), self.udf.name)


@frozen
class Aggregation(FunctionExpr):
    """A function of AGGREGATES over all rows of a group; only valid in ``agg``, or with ``over``."""


@frozen
class WindowCall(Expr):
    """An aggregate or window function for each row, over the rows of its partition; only valid in select lists.

    ``directions`` says for each key whether it descends and whether null comes first. ``frame`` is the SQL of the rows
    around the current one; None means the whole partition. With fewer than ``min_periods`` rows the result is null.
    """

    function: str
    args: tuple[Expr, ...]
    options: tuple[tuple[str, Any], ...]
    partition_by: tuple[Expr, ...]
    order_by: tuple[Expr, ...]
    directions: tuple[tuple[bool, bool], ...]
    frame: str | None = None
    min_periods: int = 1

    @property
    def children(self) -> tuple[Expr, ...]:
        return (*self.args, *self.partition_by, *self.order_by)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        num_args, num_ordered = len(self.args), len(self.order_by)
        partition_by = children[num_args : len(children) - num_ordered]
        order_by = children[len(children) - num_ordered :]
        return replace(self, args=children[:num_args], partition_by=partition_by, order_by=order_by)

    def _named_by(self) -> Expr | str:
        return next((arg for arg in self.args if not isinstance(arg, Literal)), self.function)


@frozen
class Unnest(UnaryExpr):
    """Every field of a struct as a separate column; only valid alone in a select list."""


@frozen
class Star(Expr):
    """Every column except those excluded; only valid alone in a select list."""

    exclude: tuple[str, ...] = ()

    def _named_by(self) -> Expr | str:
        return "*"


ELEMENT = ColumnRef("element()")  # the column that ListApply.body reads


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield the node and its descendants, parents first; a shared node comes once."""
    pending, seen = [expr], set[int]()
    while pending:
        node = pending.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            pending.extend(reversed(node.children))


def bottom_up(expr: Expr) -> list[Expr]:
    """Return the node and its descendants, children first; a shared node comes once.

    This is a loop because an expression may be deeper than the stack of Python.
    """
    if not expr.children:
        return [expr]
    pending, seen, ordered = [expr], set[int](), list[Expr]()
    while pending:
        node = pending[-1]
        waiting = [child for child in node.children if id(child) not in seen]
        if waiting and id(node) not in seen:
            pending.extend(reversed(waiting))
            continue
        pending.pop()
        if id(node) not in seen:
            seen.add(id(node))
            ordered.append(node)
    return ordered


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return the tree with ``change`` applied to every node, children first; the same object if nothing changed."""
    if not expr.children:
        return change(expr)
    done: dict[int, Expr] = {}
    for node in bottom_up(expr):
        children = node.children
        changed = tuple(done[id(child)] for child in children)
        is_new = any(new is not old for new, old in zip(changed, children, strict=True))
        done[id(node)] = change(node.with_children(changed) if is_new else node)
    return done[id(expr)]


_Part = tuple[type[Expr], tuple[Any, ...], list[int]]


def _part(node: Expr, children: list[int]) -> Expr | _Part:
    """Return the class of a node, its fields with ELEMENT for each child, and the positions of its children."""
    if not children:
        return node
    return type(node), values_of(node.with_children((ELEMENT,) * len(children))), children


def _rebuilt(parts: list[Expr | _Part]) -> Expr:
    nodes: list[Expr] = []
    for part in parts:
        if isinstance(part, Expr):
            nodes.append(part)
        else:
            kind, values, children = part
            nodes.append(kind(*values).with_children(tuple(nodes[child] for child in children)))
    return nodes[-1]


def columns_of(expr: Expr) -> set[str]:
    """Return the names of the input columns that the expression reads."""
    if isinstance(expr, ColumnRef):
        return {expr.column}
    return {node.column for node in walk(expr) if isinstance(node, ColumnRef)}


def has_udf(expr: Expr) -> bool:
    return not isinstance(expr, ColumnRef) and any(isinstance(node, UdfCall) for node in walk(expr))


def unalias(expr: Expr) -> Expr:
    while isinstance(expr, Alias):
        expr = expr.child
    return expr


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip
