"""The order of rows by numbers is that of Python's stable sort, or there is none."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from penstock.relational.number_order import order_of_numbers

KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 3) | st.integers(0, 2**64 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.float64(), st.sampled_from([0.0, -0.0, 1.5]) | st.floats(allow_nan=False)),
    (pa.timestamp("us"), st.datetimes()),
    (pa.date32(), st.dates()),
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[pa.Array], list[bool]]:
    num_rows = draw(st.integers(1, 9))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    columns = [pa.array(draw(st.lists(s, min_size=num_rows, max_size=num_rows)), dtype) for dtype, s in kinds]
    return columns, [draw(st.booleans()) for _ in columns]


@given(tables())
def test_the_order_is_stable(table: tuple[list[pa.Array], list[bool]]) -> None:
    columns, descending = table
    found = order_of_numbers(columns, descending)
    if found is None:
        assert len(columns) > 1
        return
    expected = list(range(len(columns[0])))
    for column, is_descending in reversed(list(zip(columns, descending, strict=True))):
        values = column.to_pylist()
        expected.sort(key=values.__getitem__, reverse=is_descending)
    assert found.tolist() == expected


@pytest.mark.parametrize("column", [[1, None], [1.0, float("nan")], ["a", "b"], [True, False]])
def test_other_columns_have_no_order(column: list[Any]) -> None:
    assert order_of_numbers([pa.array(column)], [False]) is None
