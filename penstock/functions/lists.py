"""Whole lists. Kernels compute the elements of all rows at once, never row by row."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidArgumentError, TypeMismatchError, check_choice
from penstock.expr.arrays import (
    Numbers,
    elements_of,
    masked,
    on_arrays,
    storage_of,
    to_lists,
    validity,
)
from penstock.expr.casting import cast
from penstock.expr.column import Expression, call
from penstock.expr.conditions import compare, comparison_problem
from penstock.expr.items import element_at
from penstock.expr.kinds import ANY, BOOL, FLOAT64, INT64, LIST, LISTS, STRING, TEXT, UINT64, Kind, is_vector
from penstock.expr.nodes import ListApply, has_udf
from penstock.expr.public_functions import function, method
from penstock.expr.registry import Kernel, Resolve, kernel
from penstock.expr.signatures import common_type, dtypes_of, element_type, strict, takes
from penstock.functions.table import Builder, FunctionTable
from penstock.relational.scalar import evaluate
from penstock.types import DataType
from penstock.types.plain import arrow_array, numpy_values

_table = FunctionTable(__name__)

NUMBERS = Kind("a list of numbers", is_vector)
ORDERED = Kind("a list whose elements can be compared", lambda d: LIST.accepts(d) and d.inner.is_comparable())
TEXTS = Kind(
    "a list of strings",
    lambda d: LIST.accepts(d) and (d.inner.is_string() or d.inner.is_null()),
    'convert it with .cast("list[string]")',
)


def _list_type(dtype: DataType, *_: DataType, **__: Any) -> DataType:
    return dtype if dtype.is_null() else DataType.list(dtype.inner)


def _parents(lengths: Numbers) -> Numbers:
    """Return the row of each element."""
    return np.repeat(np.arange(len(lengths)), lengths)


# --- making and changing ----------------------------------------------------------------------------------------------


@function
def to_list(*items: Any) -> Expression:
    """Combine several values in a list.

    >>> ps.from_pydict({"x": [1, 2], "y": [3, None]}).select(to_list(ps.col("x"), ps.col("y"))).to_pydict()
    {'x': [[1, 3], [2, None]]}
    """
    if not items:
        raise InvalidArgumentError("to_list takes one or more items")
    return call("to_list", *items)


@kernel("to_list", lambda *dtypes: DataType.list(common_type(*dtypes)))
@on_arrays
def _to_list(*arrays: pa.Array) -> pa.Array:
    dtype = common_type(*dtypes_of(*arrays))
    num_rows = len(arrays[0])
    laid_out = pa.concat_arrays([cast(array, dtype=dtype, is_strict=True) for array in arrays])
    by_row = np.arange(len(laid_out)).reshape(len(arrays), num_rows).T.reshape(-1)
    return to_lists(laid_out.take(arrow_array(by_row)), np.full(num_rows, len(arrays)))


@method
def explode(lists: Expression, ignore_empty_and_null: bool = False) -> Expression:
    """Make a row of each element and repeat the other columns; only valid alone in ``select`` or ``with_column``.

    An empty list, or null, makes one row of null, or none with ``ignore_empty_and_null``.

    >>> ps.from_pydict({"a": [1, 2], "b": [[10, 20], [30]]}).select("a", explode(ps.col("b"))).to_pydict()
    {'a': [1, 1, 2], 'b': [10, 20, 30]}
    """
    return call("explode", lists, **({"ignore": True} if ignore_empty_and_null else {}))


def _refuse(*dtypes: DataType) -> DataType:
    raise InvalidArgumentError("explode changes the number of rows; use it alone in select or with_column")


kernel("explode", _refuse)(pc.list_flatten)


@method
def list_map(list_expr: Expression, mapper: Expression) -> Expression:
    """Compute an expression over ``element()`` for every element.

    >>> ps.from_pydict({"a": [[1, 2]]}).select(list_map(ps.col("a"), ps.element() * 10)).to_pydict()
    {'a': [[10, 20]]}
    """
    return _over_elements("map", list_expr, mapper)


@method
def list_filter(list_expr: Expression, predicate: Expression) -> Expression:
    """Keep the elements for which an expression over ``element()`` holds.

    >>> ps.from_pydict({"a": [[1, 2, 3]]}).select(list_filter(ps.col("a"), ps.element() > 1)).to_pydict()
    {'a': [[2, 3]]}
    """
    return _over_elements("filter", list_expr, predicate)


def _over_elements(verb: Literal["map", "filter"], lists: Expression, body: Expression) -> Expression:
    if has_udf(body._node):
        raise InvalidArgumentError(
            f"list_{verb} takes no function calls, such as {body!r}; use explode, or a function of whole lists"
        )
    return Expression(ListApply(lists._node, body._node, verb))


@method
def list_sort(list_expr: Expression, desc: bool = False, nulls_first: bool | None = None) -> Expression:
    """Sort each list. Null counts as larger than any value unless ``nulls_first`` says otherwise.

    >>> ps.from_pydict({"a": [[3, 1, 2]]}).select(list_sort(ps.col("a"), desc=True)).to_pydict()
    {'a': [[3, 2, 1]]}
    """
    return call("list_sort", list_expr, desc=desc, nulls_first=desc if nulls_first is None else nulls_first)


@strict("list_sort", takes(ORDERED, returns=_list_type))
@on_arrays
def _list_sort(lists: pa.Array, *, desc: bool, nulls_first: bool) -> pa.Array:
    elements, lengths = elements_of(lists)
    is_null = ~validity(elements)
    table = pa.table({"row": _parents(lengths), "is_null": is_null, "value": _sortable(elements)})
    nulls, values = ("descending" if nulls_first else "ascending"), ("descending" if desc else "ascending")
    order = pc.sort_indices(table, sort_keys=[("row", "ascending"), ("is_null", nulls), ("value", values)])
    return to_lists(elements.take(order), lengths, validity(lists))


def _sortable(elements: pa.Array) -> pa.Array:
    """Return the elements in a type that Arrow sorts, which float16 is not."""
    return elements.cast(pa.float32()) if pa.types.is_float16(elements.type) else elements


@on_arrays
def _list_distinct(lists: pa.Array) -> pa.Array:
    elements, lengths = elements_of(lists)
    if pa.types.is_null(elements.type):
        return to_lists(elements[:0], np.zeros_like(lengths), validity(lists))
    codes = elements.dictionary_encode().indices
    rows = _parents(lengths)
    keys = rows * (len(elements) + 1) + numpy_values(codes.fill_null(len(elements)))
    firsts = np.sort(np.unique(keys, return_index=True)[1])
    firsts = firsts[validity(elements)[firsts]]
    return to_lists(
        elements.take(arrow_array(firsts)), np.bincount(rows[firsts], minlength=len(lists)), validity(lists)
    )


list_distinct = _table.strict(
    "list_distinct", {"list_expr": ORDERED}, _list_type, _list_distinct,
    "Keep the first of equal elements and drop nulls.", ([2, 1, 2, None],), [2, 1],
)  # fmt: skip


@on_arrays
def _list_flatten(lists: pa.Array) -> pa.Array:
    inner, lengths = elements_of(lists)
    if pa.types.is_null(inner.type):
        return arrow_array([None if row is None else [] for row in lists.to_pylist()], pa.list_(pa.null()))
    elements, inner_lengths = elements_of(inner)
    before = np.concatenate([[0], np.cumsum(inner_lengths)])
    ends = np.cumsum(lengths)
    return to_lists(elements, before[ends] - before[ends - lengths], validity(lists))


list_flatten = _table.strict(
    "list_flatten", {"list_expr": LISTS}, lambda dtype: _list_type(element_type(dtype)), _list_flatten,
    "Join the inner lists of each list of lists, ignoring null lists.", ([[1], None, [2, 3]],), [1, 2, 3],
)  # fmt: skip


@on_arrays
def _list_join(lists: pa.Array, delimiters: pa.Array) -> pa.Array:
    elements, lengths = elements_of(lists)
    return pc.binary_join(to_lists(elements.cast(pa.string()).fill_null(""), lengths, validity(lists)), delimiters)


list_join = _table.strict(
    "list_join", {"list_expr": TEXTS, "delimiter": TEXT}, STRING, _list_join,
    "Join the texts of each list; null counts as empty text.", (["x", None, "y"], "-"), "x--y",
)  # fmt: skip


# --- searching and counting -------------------------------------------------------------------------------------------


list_length = _table.build(
    "list_length", {"list_expr": LIST}, lambda list_expr: call("list_count", list_expr, mode="all"),
    "Count the elements of each list, including nulls.", ([1, None],), 2,
)  # fmt: skip


@method
def list_count(list_expr: Expression, mode: Literal["all", "valid", "null"] = "valid") -> Expression:
    """Count the elements of each list: all elements, the valid elements (not null), or the nulls.

    >>> ps.from_pydict({"a": [[1, None], []]}).select(list_count(ps.col("a"))).to_pydict()
    {'a': [1, 0]}
    """
    check_choice("list_count: mode", mode, ("all", "valid", "null"))
    return call("list_count", list_expr, mode=mode)


@strict("list_count", takes(LIST, returns=INT64))
@on_arrays
def _list_count(lists: pa.Array, *, mode: str) -> pa.Array:
    if mode == "all" or (mode == "valid" and not storage_of(lists).values.null_count):
        return pc.list_value_length(storage_of(lists)).cast(pa.int64())
    elements, lengths = elements_of(lists)
    wanted = validity(elements) if mode == "valid" else ~validity(elements)
    return masked(np.bincount(_parents(lengths)[wanted], minlength=len(lists)), validity(lists), pa.int64())


def _contains_type(dtype: DataType, item: DataType) -> DataType:
    LIST.check(dtype)
    if problem := comparison_problem(element_type(dtype), item):
        raise TypeMismatchError(problem)
    return BOOL


@strict("list_contains", _contains_type)
@on_arrays
def _list_contains(lists: pa.Array, items: pa.Array) -> pa.Array:
    elements, lengths = elements_of(lists)
    rows = _parents(lengths)
    valid = validity(lists, items)
    if pa.types.is_null(elements.type):
        return masked(np.zeros(len(lists), bool), valid)
    is_item = compare("equal", elements, items.take(arrow_array(rows))).fill_null(False).to_numpy(zero_copy_only=False)
    return masked(np.bincount(rows[is_item], minlength=len(lists)) > 0, valid)


_CONTAINS = "Check whether each list has an element equal to ``item``."
list_contains = _table.call("list_contains", {"list_expr": LIST, "item": ANY}, _CONTAINS, ([1, 2], 2), True)


# --- reducing ---------------------------------------------------------------------------------------------------------


def _sum_type(dtype: DataType) -> DataType:
    inner = element_type(dtype)
    if inner.is_integer():
        return UINT64 if str(inner).startswith("uint") else INT64
    return inner if inner.is_decimal() else FLOAT64


def _in_duckdb(name: str, sql: str, returns: DataType | Resolve) -> Kernel:
    """Return a kernel that reduces lists of numbers by DuckDB."""

    @on_arrays
    def kernel(lists: pa.Array) -> pa.Array:
        dtype, inner = DataType(lists.type), DataType(lists.type).inner
        result = returns if isinstance(returns, DataType) else returns(dtype)
        known = DataType.float32() if inner.is_null() or inner == DataType.float16() else inner
        numbers = cast(lists, dtype=DataType.list(known), is_strict=True)
        whole = {INT64: "::bigint", UINT64: "::ubigint"}.get(result, "")  # else a sum would be a float in Arrow
        return cast(evaluate(name, sql + whole, [numbers]), dtype=result, is_strict=True)

    return kernel


def _extreme(name: str, desc: bool) -> Kernel:
    of_numbers = _in_duckdb(name, f"{name}(a)", element_type)

    @on_arrays
    def kernel(lists: pa.Array) -> pa.Array:
        if DataType(lists.type).inner.is_numeric():
            return of_numbers(lists)
        ordered = _list_sort(lists, desc=desc, nulls_first=False)
        return element_at(ordered, arrow_array(np.zeros(len(lists), np.int64)))

    return kernel


def _reduction(name: str, kind: Kind, returns: Any, kernel: Kernel, doc: str, given: list[Any], result: Any) -> Builder:
    doc = f"{doc} of each list, ignoring nulls; null without elements."
    return _table.strict(name, {"list_expr": kind}, returns, kernel, doc, (given,), result)


_SUM, _MEAN = _in_duckdb("list_sum", "list_sum(a)", _sum_type), _in_duckdb("list_mean", "list_avg(a)", FLOAT64)
_LEAST, _MOST = _extreme("list_min", desc=False), _extreme("list_max", desc=True)
list_sum = _reduction("list_sum", NUMBERS, _sum_type, _SUM, "Return the sum", [1, 2, None], 3)
list_mean = _reduction("list_mean", NUMBERS, FLOAT64, _MEAN, "Return the mean", [1, 2, None], 1.5)
list_min = _reduction("list_min", ORDERED, element_type, _LEAST, "Return the smallest element", [2, 1, None], 1)
list_max = _reduction("list_max", ORDERED, element_type, _MOST, "Return the largest element", [2, 1, None], 2)
