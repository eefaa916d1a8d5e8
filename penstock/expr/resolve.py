"""Compute the types of expressions when the plan is built, so that errors appear on the line of the user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from penstock.errors import ColumnNotFoundError, InvalidArgumentError, PenstockError, TypeMismatchError
from penstock.expr.expression_text import describe
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
    bottom_up,
    columns_of,
)
from penstock.expr.registry import lookup
from penstock.types import DataType, Field, Schema


def dtype_of(expr: Expr, schema: Schema) -> DataType:
    """Return the type of ``expr`` over ``schema``, or raise an error that names the column and the alternatives."""
    dtypes: dict[int, DataType] = {}
    try:
        for node in bottom_up(expr):
            dtypes[id(node)] = _dtype(node, [dtypes[id(child)] for child in node.children], schema)
    except ColumnNotFoundError as exc:
        for node in bottom_up(expr):
            if isinstance(node, Call) and node.function == "format" and ColumnRef(exc.column) in node.children:
                place = f"{describe(node)}, where {{{{ and }}}} are braces"
                raise ColumnNotFoundError(exc.column, schema.names, place) from None
        raise
    return dtypes[id(expr)]


def _dtype(expr: Expr, dtypes: list[DataType], schema: Schema) -> DataType:
    """Return the type of one node, given the types of its children."""
    match expr:
        case ColumnRef(column):
            if column not in schema:
                if expr == ELEMENT:
                    raise InvalidArgumentError("element() is only valid inside list_map and list_filter")
                raise ColumnNotFoundError(column, schema.names)
            return schema[column].dtype
        case Literal(scalar):
            return DataType.from_arrow_type(scalar.type)
        case PythonValue():
            return DataType.null()  # unused: only a UDF takes one
        case Alias():
            return dtypes[0]
        case Cast(_, dtype, is_strict):
            try:
                return lookup("cast").resolve(dtypes[0], dtype=dtype, is_strict=is_strict)
            except TypeMismatchError as exc:
                raise TypeMismatchError(f"{describe(expr)}: {exc}") from None
        case ListApply(_, body, verb):
            return _list_apply_dtype(expr, dtypes[0], body, verb)
        case UdfCall(udf):
            if udf.builtin.check is not None:
                with _naming(expr, dtypes):
                    udf.builtin.check(*dtypes)
            return udf.return_dtype
        case Call(function, _, options):
            with _naming(expr, dtypes):
                return lookup(function).resolve(*dtypes, **dict(options))
        case Aggregation():
            raise InvalidArgumentError(
                f"{describe(expr)} combines rows; use it in agg(...) or groupby(...).agg(...), or as a window function "
                "with .over(...)"
            )
        case WindowCall():
            raise InvalidArgumentError(f"{describe(expr)} is only valid in select, with_column and with_columns")
        case Unnest() | Star():
            raise InvalidArgumentError(
                f"{describe(expr)} returns several columns; use it alone in select or with_columns"
            )
    raise AssertionError(f"no type rule for {type(expr).__name__}")


@contextmanager
def _naming(expr: Expr, dtypes: list[DataType]) -> Iterator[None]:
    """Add the expression and the types of its arguments to an error."""
    try:
        yield
    except TypeMismatchError as exc:
        given = ", ".join(f"{describe(arg)} is {dtype}" for arg, dtype in zip(expr.children, dtypes, strict=True))
        raise TypeMismatchError(f"{describe(expr)}: {exc}" + (f" ({given})" if given else "")) from None
    except (pa.ArrowException, ArithmeticError, AttributeError, TypeError, ValueError) as exc:
        if isinstance(exc, PenstockError):
            raise
        raise InvalidArgumentError(f"{describe(expr)} cannot be computed: {exc}") from exc


def _list_apply_dtype(expr: Expr, dtype: DataType, body: Expr, verb: str) -> DataType:
    if not (dtype.is_list() or dtype.is_embedding() or dtype.is_null()):
        raise TypeMismatchError(f"{describe(expr)}: expected a list, got {dtype}")
    element = dtype if dtype.is_null() else dtype.inner
    if outside := columns_of(body) - {ELEMENT.column}:
        raise InvalidArgumentError(
            f"{describe(expr)}: the inner expression may only read element(), not {', '.join(sorted(outside))}"
        )
    inner = dtype_of(body, Schema([Field(ELEMENT.column, element)]))
    if verb == "filter":
        if not (inner.is_boolean() or inner.is_null()):
            raise TypeMismatchError(f"{describe(expr)}: the inner expression must be bool, got {inner}")
        return DataType.list(element)
    return DataType.list(inner)


def expand(exprs: Iterable[Expr], schema: Schema | None) -> tuple[Expr, ...]:
    """Return the select list with stars and unnests expanded, unless they need an unknown schema."""
    expanded: list[Expr] = []
    for expr in exprs:
        match expr:
            case Star(exclude) if schema is not None:
                for name in exclude:
                    if name not in schema:
                        raise ColumnNotFoundError(name, schema.names)
                expanded.extend(ColumnRef(name) for name in schema.names if name not in exclude)
            case Unnest(child) if schema is not None or isinstance(child, UdfCall):
                dtype = child.udf.return_dtype if isinstance(child, UdfCall) else dtype_of(child, schema or Schema([]))
                if not dtype.is_struct():
                    raise TypeMismatchError(f"{describe(expr)}: expected a struct, got {dtype}")
                expanded.extend(Alias(Call("struct_get", (child,), (("name", n),)), n) for n in dtype.fields)
            case _:
                expanded.append(expr)
    return tuple(expanded)


def schema_of(exprs: Sequence[Expr], schema: Schema) -> Schema:
    """Return the schema of an expanded select list; refuse a name used twice."""
    known = {field.name: field for field in schema}
    fields: dict[str, Field] = {}
    for expr in exprs:
        field = known.get(expr.column) if isinstance(expr, ColumnRef) else None
        field = field or Field(expr.name, dtype_of(expr, schema))
        if field.name in fields:
            raise InvalidArgumentError(f"Two columns have the name {field.name!r}; rename one with .alias(...)")
        fields[field.name] = field
    return Schema(fields.values())
