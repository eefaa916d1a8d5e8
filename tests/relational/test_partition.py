"""Parts of the rows of a relation: every row is in one part, equal keys are together, ranges are in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.plan.nodes import Relate
from penstock.plan.relations import SortKey
from penstock.relational.partition import HashParts, RangeParts, bounds_of, divided, parts_of, sampled

NAN = float("nan")
ROWS = ps.from_pydict({"a": [1], "b": ["x"], "c": [0.5]})
BY_A, BY_AB = ps.Window().partition_by("a"), ps.Window().partition_by("a", "b")


def relation_of(df: ps.DataFrame) -> Relate:
    plan = df._plan
    while not isinstance(plan, Relate):
        plan = plan.children[0]
    return plan


@pytest.mark.parametrize(
    ("df", "expected"),
    [
        (ROWS.sort("a", desc=True), RangeParts((SortKey("a", True, True),))),
        (ROWS.sort("a").limit(1), RangeParts((SortKey("a"),))),  # the optimizer makes it a sort of one row
        (ROWS.shuffle(), None),
        (ROWS.groupby("a", "b").sum("c"), HashParts((("a", "b"),))),
        (ROWS.sum("c"), None),
        (ROWS.distinct("b"), HashParts((("b",),))),
        (ROWS.with_column("n", ps.col("c").sum().over(BY_AB)), HashParts((("a", "b"),))),
        (ROWS.select(ps.col("c").sum().over(BY_A).alias("m"), ps.col("c").max().over(BY_AB)), HashParts((("a",),))),
        (ROWS.with_column("n", ps.functions.row_number().over(ps.Window().order_by("a"))), None),
        (ROWS.intersect(ROWS), HashParts((("a", "b", "c"),) * 2)),
        (ROWS.join(ROWS, on="a"), HashParts((("a",), ("a",)), (ps.DataType.int64(),))),
        (ROWS.join(ROWS, left_on="a", right_on="c"), HashParts((("a",), ("c",)), (ps.DataType.float64(),))),
        (ROWS.join(ROWS, how="cross"), None),
    ],
)
def test_a_relation_is_divided_by_its_keys(df: ps.DataFrame, expected: Any) -> None:
    node = relation_of(df)
    assert parts_of(node.relation, [child.schema for child in node.children]) == expected


def test_equal_keys_of_both_sides_are_in_the_same_part() -> None:
    parts = HashParts((("x",), ("y",)), (ps.DataType.float64(),))
    left = pa.record_batch({"x": pa.array([3, None, 0, 7], pa.int32()), "n": range(4)})
    right = pa.record_batch({"y": [None, NAN, 7.0, -0.0, 3.0, -NAN]})
    found = [divided(left, parts, 5, 0), divided(right, parts, 5, 1)]
    assert sorted(number for part in found[0] for number in part["n"].to_pylist()) == [0, 1, 2, 3]
    for x, y in [(3, 3.0), (None, None), (0, 0.0), (7, 7.0)]:
        (place,) = [number for number, part in enumerate(found[0]) if x in part["x"].to_pylist()]
        assert y in found[1][place]["y"].to_pylist()
    assert sorted(sum(value != value for value in part["y"].to_pylist()) for part in found[1])[-1] == 2  # both NaN


def test_parts_of_keys_with_several_columns_and_any_types() -> None:
    rows = pa.record_batch({"a": [[1], [2], None, [1]] * 25, "b": [{"x": 1}, None] * 50, "c": range(100)})
    found = divided(rows, HashParts((("a", "b"),)), 4)
    assert [part.num_rows for part in divided(rows, HashParts((("c",),)), 4)] != [100, 0, 0, 0]
    keys = [{str(row) for row in part.select(["a", "b"]).to_pylist()} for part in found]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 4
    assert all(part["c"].to_pylist() == sorted(part["c"].to_pylist()) for part in found)


@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("is_nulls_first", [False, True])
def test_ranges_follow_each_other(is_descending: bool, is_nulls_first: bool) -> None:
    numbers = np.random.default_rng(0).permutation(1000)
    values = [None if number % 10 == 0 else NAN if number % 10 == 1 else float(number // 2) for number in numbers]
    rows = pa.record_batch({"x": values, "n": numbers})
    keys = (SortKey("x", is_descending, is_nulls_first), SortKey("n"))
    bounds = bounds_of([key for start in (0, 500) for key in sampled(rows.slice(start, 500), keys)], 4)
    found = divided(rows, RangeParts(keys, bounds), 4)
    assert all(100 < part.num_rows < 400 for part in found)
    options = ["x", "n"], [is_descending, False], [is_nulls_first, False]
    (whole, *ordered) = [ps.from_arrow(pa.table(each)).sort(*options).to_pydict()["n"] for each in (rows, *found)]
    assert [number for part in ordered for number in part] == whole


def test_one_key_makes_one_range() -> None:
    rows = pa.record_batch({"x": [5] * 100})
    keys = (SortKey("x"),)
    found = divided(rows, RangeParts(keys, bounds_of(sampled(rows, keys), 4)), 4)
    assert [part.num_rows for part in found] == [0, 0, 0, 100]
