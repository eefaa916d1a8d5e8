"""``Expression``: the shell around one expression node that users hold.

It has the operators and the basic methods. Most functions of ``penstock.functions`` add themselves here as methods (see
``method``); type checkers read ``column.pyi``, which ``make stubs`` writes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import pyarrow as pa

from penstock.errors import InvalidArgumentError, PenstockError, TypeMismatchError, did_you_mean, shortened
from penstock.expr.instead import way_around
from penstock.expr.nodes import (
    COMPARISONS,
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
from penstock.expr.registry import load_next
from penstock.expr.text import describe
from penstock.types import DataType, to_arrow_array

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])
_NOT_GIVEN = object()


class Expression:
    """A column to compute, built by ``col``, ``lit``, operators and functions and evaluated a batch at a time."""

    __slots__ = ("_node",)
    __hash__ = object.__hash__
    """By identity, because ``==`` builds an expression: as keys, two expressions are never equal."""
    __array_ufunc__ = None  # so that ``array * column`` is an expression, not an array of expressions

    def __init__(self, node: Expr) -> None:
        self._node = node

    def __repr__(self) -> str:
        return describe(self._node)

    def __getattr__(self, name: str) -> Any:
        """Find a method whose module is not loaded yet."""
        if name.startswith("_"):  # libraries often look for their own protocols
            raise AttributeError(f"Expression has no attribute {name!r}.")
        while load_next():
            if hasattr(type(self), name):
                return getattr(self, name)
        methods = [method for method in dir(type(self)) if not method.startswith("_")]
        raise AttributeError(f"Expression has no method {name!r}.{way_around(name) or did_you_mean(name, methods)}")

    def __dir__(self) -> Iterable[str]:
        while load_next():
            pass
        return object.__dir__(self)

    def name(self) -> str:
        """Return the name of the resulting column.

        >>> ps.col("a").alias("b").name()
        'b'
        """
        return self._node.name

    def is_column(self) -> bool:
        """Return True if the expression is a column as it is."""
        return isinstance(self._node, ColumnRef)

    def column_name(self) -> str | None:
        """Return the name of a column as it is, else None."""
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
        return Expression(Alias(self._node, _checked_name(name)))

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
        """Check whether each value is null."""
        return call("is_null", self)

    def not_null(self) -> Expression:
        """Check whether each value is not null."""
        return call("not_null", self)

    def fill_null(self, value: Any) -> Expression:
        """Replace null by ``value``.

        >>> ps.from_pydict({"a": [1, None]}).select(ps.col("a").fill_null(0)).to_pydict()
        {'a': [1, 0]}
        """
        return call("coalesce", self, value)

    def coalesce(self, *others: Any) -> Expression:
        """Return the first value that is not null: of this column, then of ``others``."""
        return call("coalesce", self, *others)

    def is_in(self, values: Iterable[Any]) -> Expression:
        """Check whether each value is one of ``values``; null for null, as in SQL.

        >>> ps.from_pydict({"a": [1, 2]}).select(ps.col("a").is_in([2, 3])).to_pydict()
        {'a': [False, True]}
        """
        if isinstance(values, (str, bytes, Expression)) or not isinstance(values, Iterable):
            raise InvalidArgumentError(f"is_in takes a list of values, not {values!r}; use == for one value")
        return call("is_in", self, lit(list(values)))

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
        """Compare like ``==``, but with null equal to null only."""
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

    def __neg__(self) -> Expression:
        return call("negate", self)

    def __abs__(self) -> Expression:
        return call("abs", self)

    def __invert__(self) -> Expression:
        return call("not", self)


_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "modulo",
    "pow": "power",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "lshift": "shift_left",
    "rshift": "shift_right",
}


def _define_operator(name: str, function: str, *, has_reflection: bool) -> None:
    """Define ``__name__`` and, where ``2 + col`` needs it, ``__rname__`` as calls of ``function``."""

    def operator(self: Expression, other: Any) -> Expression:
        return call(function, self, other)

    def reflected(self: Expression, other: Any) -> Expression:
        return call(function, other, self)

    setattr(Expression, f"__{name}__", operator)
    if has_reflection:
        setattr(Expression, f"__r{name}__", reflected)


for _name, _function in _OPERATORS.items():
    _define_operator(_name, _function, has_reflection=True)
for _name, _compare in COMPARISONS.items():  # Python reflects these by itself: 2 < col is col > 2
    _define_operator(_compare.__name__, _name, has_reflection=False)


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
    return Expression(Star() if name == "*" else ColumnRef(_checked_name(name)))


def _checked_name(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"A column name must be a string; got {name!r} of type {type(name).__name__}")
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
    """Return an option, which is part of the expression and so must be a constant that can be compared."""
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


def method(function: AnyCallable) -> AnyCallable:
    """Add a function of expressions to ``Expression`` as a method."""
    setattr(Expression, function.__name__, checking_arguments(function))
    return function


def checking_arguments(function: AnyCallable) -> AnyCallable:
    """Let a function that builds an expression raise InvalidArgumentError for arguments that it cannot use."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (AttributeError, LookupError, TypeError, ValueError) as exc:
            if isinstance(exc, PenstockError) or not _fit(function, args, kwargs):
                raise
            given = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
            text = shortened(f"{function.__name__}({given})")
            raise InvalidArgumentError(f"{text} has an argument that does not fit: {exc}") from exc

    return cast(AnyCallable, checked)


def _fit(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a function takes arguments of this number and these names."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True
