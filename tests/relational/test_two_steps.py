"""Aggregates over parts of the rows, then over the results, give those of all rows."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest

import penstock as ps
from penstock.plan.relations import Aggregate, AggregateColumn, Distinct
from penstock.relational.two_steps import computed, in_two_steps
from penstock.types import Schema

COUNTS = [AggregateColumn(f"count {mode}", "count", ("x",), (("mode", mode),)) for mode in ("valid", "all", "null")]
COLUMNS = tuple(AggregateColumn(name, name, ("x",)) for name in ("sum", "mean", "min", "max"))
VALUES = {
    "int8": pa.array([100, 100, None, -3, None, 100], pa.int8()),
    "uint64": pa.array([2**63, 1, None, 2, None, 3], pa.uint64()),
    "float32": pa.array([0.1, math.nan, None, 2.5, None, 1e30], pa.float32()),
    "decimal": pa.array(
        [Decimal("1.25"), Decimal("2.50"), None, Decimal("0.01"), None, Decimal(3)], pa.decimal128(9, 2)
    ),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_two_steps_give_what_one_gives(values: pa.Array) -> None:
    rows = pa.record_batch({"k": ["a", "b", "a", None, "c", "a"], "x": values})
    relation = Aggregate(("k",), (*COLUMNS, *COUNTS))
    steps = in_two_steps(relation, Schema.from_arrow(rows.schema))
    assert steps is not None
    halves = [computed(steps[0], rows.slice(*half)) for half in ((0, 3), (3, 3))]
    found = computed(steps[1], pa.Table.from_batches(halves).combine_chunks().to_batches()[0])
    column = ps.col("x")
    functions = [column.sum(), column.mean(), column.min(), column.max()]
    counts = [column.count(mode) for mode in ("valid", "all", "null")]
    named = [each.alias(c.name) for each, c in zip([*functions, *counts], relation.columns, strict=True)]
    expected = ps.from_arrow(pa.table(rows)).groupby("k").agg(*named).to_arrow()
    assert found.schema.types == expected.schema.types
    assert str(pa.table(found).sort_by("k").to_pylist()) == str(expected.sort_by("k").to_pylist())  # NaN is not NaN


def test_a_median_needs_all_rows() -> None:
    schema = Schema.from_pydict({"k": "string", "x": "int64"})
    assert in_two_steps(Aggregate(("k",), (AggregateColumn("m", "median", ("x",)),)), schema) is None
    assert in_two_steps(Distinct(("k",)), schema) is None
