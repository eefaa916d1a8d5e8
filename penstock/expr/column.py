"""``Expression``: the shell around one expression node that users hold.

It has the operators and the basic methods. Most functions of ``penstock.functions`` are methods too: see ``Methods``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidArgumentError, TypeMismatchError
from penstock.expr.expression_text import describe
from penstock.expr.methods import Methods
from penstock.expr.nodes import (
    ELEMENT,
    Aggregation,
    Alias,
    Call,
    Cast,
    ColumnRef,
    Expr,
    Literal,
    Star,
    Unnest,
)
from penstock.types import DataType, to_arrow_array

_NOT_GIVEN = object()


def _operator(name: str) -> Callable[[Expression, Any], Expression]:
    """Return an operator that calls the function ``name``."""
    return lambda self, other: call(name, self, other)


def _operators(name: str) -> tuple[Callable[[Expression, Any], Expression], Callable[[Expression, Any], Expression]]:
    """Return an operator and its reflection, which ``2 + column`` needs."""
    return _operator(name), lambda self, other: call(name, other, self)


class Expression(Methods):
    """A column to compute, built by ``col``, ``lit``, operators and functions and evaluated a batch at a time."""

    __slots__ = ("_node",)
    __hash__ = object.__hash__
    """Hash by identity, because ``==`` builds an expression: as dictionary keys, two expressions are never equal."""
    __array_ufunc__ = None  # so that ``array * column`` is an expression, not an array of expressions

    def __init__(self, node: Expr) -> None:
        self._node = node

    def __repr__(self) -> str:
        return describe(self._node)

    def name(self) -> str:
        """Return the name of the resulting column.

        >>> ps.col("a").alias("b").name()
        'b'
        """
        return self._node.name

    def is_column(self) -> bool:
        """Return True if the expression is just a column."""
        return isinstance(self._node, ColumnRef)

    def column_name(self) -> str | None:
        """Return the column's name if the expression is just a column, else None."""
        return self._node.column if isinstance(self._node, ColumnRef) else None

    def is_literal(self) -> bool:
        """Return True if the expression is a constant."""
        return isinstance(self._node, Literal)

    def as_py(self) -> Any:
        """Return the value of a constant.

        >>> ps.lit(5).as_py()
        5
        """
        if not isinstance(self._node, Literal):
            raise InvalidArgumentError(f"{self!r} is not a constant, so it has no Python value before the query runs")
        return self._node.scalar.as_py()

    def alias(self, name: str) -> Expression:
        """Rename the result.

        >>> ps.from_pydict({"a": [1]}).select(ps.col("a").alias("b")).to_pydict()
        {'b': [1]}
        """
        return Expression(Alias(self._node, checked_name(name)))

    def cast(self, dtype: DataType | str | type) -> Expression:
        """Convert to another type; a value that does not fit is an error.

        >>> ps.from_pydict({"a": ["1"]}).select(ps.col("a").cast("int64")).to_pydict()
        {'a': [1]}
        """
        return Expression(Cast(self._node, DataType.of(dtype)))

    def try_cast(self, dtype: DataType | str | type) -> Expression:
        """Convert to another type; a value that does not fit becomes null.

        >>> ps.from_pydict({"a": ["1", "x"]}).select(ps.col("a").try_cast("int64")).to_pydict()
        {'a': [1, None]}
        """
        return Expression(Cast(self._node, DataType.of(dtype), is_strict=False))

    def is_null(self) -> Expression:
        """Check whether each value is null.

        >>> ps.from_pydict({"a": [1, None]}).select(ps.col("a").is_null()).to_pydict()
        {'a': [False, True]}
        """
        return call("is_null", self)

    def not_null(self) -> Expression:
        """Check whether each value is not null.

        >>> ps.from_pydict({"a": [1, None]}).select(ps.col("a").not_null()).to_pydict()
        {'a': [True, False]}
        """
        return call("not_null", self)

    def fill_null(self, fill_value: Any) -> Expression:
        """Replace null by ``fill_value``.

        >>> ps.from_pydict({"a": [1, None]}).select(ps.col("a").fill_null(0)).to_pydict()
        {'a': [1, 0]}
        """
        return call("coalesce", self, fill_value)

    def coalesce(self, *others: Any) -> Expression:
        """Return the first value that is not null: of this column, then of ``others``."""
        return call("coalesce", self, *others)

    def is_in(self, other: Iterable[Any]) -> Expression:
        """Check whether each value is one of ``other``; null for null, as in SQL.

        >>> ps.from_pydict({"a": [1, 2]}).select(ps.col("a").is_in([2, 3])).to_pydict()
        {'a': [False, True]}
        """
        if isinstance(other, (str, bytes, Expression)) or not isinstance(other, Iterable):
            raise InvalidArgumentError(f"is_in takes a list of values, not {other!r}; use == for one value")
        return call("is_in", self, lit(list(other)))

    def between(self, lower: Any, upper: Any) -> Expression:
        """Check whether each value lies from ``lower`` to ``upper``, both included.

        >>> ps.from_pydict({"a": [1, 5]}).select(ps.col("a").between(1, 3)).to_pydict()
        {'a': [True, False]}
        """
        return call("and", self >= lower, self <= upper)

    def if_else(self, if_true: Any, if_false: Any) -> Expression:
        """Choose between two values by this condition; null counts as false.

        >>> ps.from_pydict({"a": [1, 5]}).select((ps.col("a") > 2).if_else("big", "small")).to_pydict()
        {'a': ['small', 'big']}
        """
        return call("if_else", self, if_true, if_false)

    def eq_null_safe(self, other: Any) -> Expression:
        """Compare like ``==``, but with null equal to null only.

        >>> ps.from_pydict({"a": [1, None]}).select(ps.col("a").eq_null_safe(None)).to_pydict()
        {'a': [False, True]}
        """
        return call("equal_null_safe", self, other)

    def __getitem__(self, key: int | str | slice) -> Expression:
        """Take an element of a list, a field of a struct, the value of a map key, or a slice of a list.

        ``"*"`` takes all fields of a struct as columns.

        >>> ps.from_pydict({"a": [[1, 2]]}).select(ps.col("a")[0]).to_pydict()
        {'a': [1]}
        """
        if isinstance(key, str) and key == "*":
            return Expression(Unnest(self._node))
        if isinstance(key, slice):
            if key.step is not None:
                raise InvalidArgumentError("A slice of a list column takes no step")
            return call(
                "list_slice", self, 0 if key.start is None else key.start, *([] if key.stop is None else [key.stop])
            )
        return call("get_item", self, key=key)

    def __iter__(self) -> Any:
        raise TypeError(f"An expression has no values to iterate over before it runs: {self!r}")

    def __bool__(self) -> bool:
        raise TypeMismatchError(
            f"An expression has no truth value before it runs: {self!r}. "
            "Use & | ~ for and, or, not, with brackets around comparisons."
        )

    def __format__(self, spec: str) -> str:
        raise TypeError(
            f"An f-string cannot hold the values of {self!r}, which are not known before the query runs. Use "
            "penstock.functions.format('Answer: {}', column); to show the expression itself, write {column!r}."
        )

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("subtract")
    __mul__, __rmul__ = _operators("multiply")
    __truediv__, __rtruediv__ = _operators("divide")
    __floordiv__, __rfloordiv__ = _operators("floor_divide")
    __mod__, __rmod__ = _operators("modulo")
    __pow__, __rpow__ = _operators("power")
    __and__, __rand__ = _operators("and")
    __or__, __ror__ = _operators("or")
    __xor__, __rxor__ = _operators("xor")
    __lshift__, __rlshift__ = _operators("shift_left")
    __rshift__, __rrshift__ = _operators("shift_right")
    __lt__ = _operator("less")
    __le__ = _operator("less_equal")
    __gt__ = _operator("greater")
    __ge__ = _operator("greater_equal")

    # Pyright takes the type of an assigned ``__eq__`` from ``object``, where it is a bool.
    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return call("equal", self, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return call("not_equal", self, other)

    def __neg__(self) -> Expression:
        return call("negate", self)

    def __abs__(self) -> Expression:
        return call("abs", self)

    def __invert__(self) -> Expression:
        return call("not", self)


class When(Expression):
    """A chain of conditions; without ``otherwise`` the remaining rows are null."""

    __slots__ = ("_branches", "_condition")

    def __init__(self, branches: tuple[tuple[Expression, Expression], ...], condition: Expression | None) -> None:
        self._branches = branches
        self._condition = condition
        super().__init__(_if_else_chain(branches, lit(None)))

    def when(self, condition: Expression, then: Any = _NOT_GIVEN) -> When:
        """Add a branch; the first condition that holds wins. Give its value here or with ``.then()``."""
        if self._condition is not None:
            raise InvalidArgumentError("when(...) must be followed by .then(value) before the next .when(...)")
        branch = When(self._branches, lit(condition))
        return branch if then is _NOT_GIVEN else branch.then(then)

    def then(self, value: Any) -> When:
        """Give the value of the branch just added."""
        if self._condition is None:
            raise InvalidArgumentError(".then(value) must follow a when(condition)")
        return When((*self._branches, (self._condition, lit(value))), None)

    def otherwise(self, value: Any) -> Expression:
        """Give the value for rows in which no condition holds."""
        return Expression(_if_else_chain(self._branches, lit(value)))


def _if_else_chain(branches: tuple[tuple[Expression, Expression], ...], rest: Expression) -> Expr:
    result = rest
    for condition, value in reversed(branches):
        result = condition.if_else(value, result)
    return result._node


def when(condition: Expression, then: Any = _NOT_GIVEN) -> When:
    """Start a chain of conditions; give the value of each here or with ``.then()``.

    >>> size = ps.when(ps.col("a") > 2).then("big").otherwise("small")
    >>> ps.from_pydict({"a": [1, 5]}).select(size.alias("size")).to_pydict()
    {'size': ['small', 'big']}
    """
    return When((), None).when(condition, then)


def col(name: str) -> Expression:
    """Refer to a column by name; ``"*"`` means every column.

    >>> ps.from_pydict({"a": [1]}).select(ps.col("a") + 1).to_pydict()
    {'a': [2]}
    """
    return Expression(Star() if name == "*" else ColumnRef(checked_name(name)))


def checked_name(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"The name of a column is text; got {name!r} of type {type(name).__name__}")
    return name


def lit(value: Any) -> Expression:
    """Make a constant column from a Python value.

    >>> ps.from_pydict({"a": [1, 2]}).select(ps.lit("x").alias("b")).to_pydict()
    {'b': ['x', 'x']}
    """
    if isinstance(value, Expression):
        return value
    if isinstance(value, pa.Scalar):
        return Expression(Literal(value))
    return Expression(Literal(to_arrow_array([value], None, what="lit")[0]))


def element() -> Expression:
    """Refer to the current element inside ``list_map`` and ``list_filter``.

    >>> ps.from_pydict({"a": [[1, 2]]}).select(ps.col("a").list_map(ps.element() * 10)).to_pydict()
    {'a': [[10, 20]]}
    """
    return Expression(ELEMENT)


def to_expr(value: Any) -> Expr:
    """Return the node of an expression, or a literal of anything else."""
    return lit(value)._node


def call(function: str, *args: Any, **options: Any) -> Expression:
    """Build a call of a registered function; positional arguments are expressions or constants, options constants."""
    frozen = tuple(sorted((name, _checked_option(function, name, _frozen(value))) for name, value in options.items()))
    return Expression(Call(function, tuple(to_expr(arg) for arg in args), frozen))


def _checked_option(function: str, name: str, value: Any) -> Any:
    """Check an option: it becomes part of the expression, so it must be a constant that can be compared."""
    if isinstance(value, Expression):
        raise InvalidArgumentError(f"{function}: {name} is the same for all rows, so it cannot be {value!r}")
    try:
        hash(value)
    except TypeError:
        raise InvalidArgumentError(f"{function}: {name} cannot be {value!r} of type {type(value).__name__}") from None
    return value


def aggregate(function: str, *args: Any, **options: Any) -> Expression:
    """Build a call of an aggregate function; options are constants."""
    frozen = tuple(sorted((name, _frozen(value)) for name, value in options.items()))
    return Expression(Aggregation(function, tuple(to_expr(arg) for arg in args), frozen))


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, dict):
        return tuple((key, _frozen(item)) for key, item in value.items())
    return value
