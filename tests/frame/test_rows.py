"""Verbs that choose and multiply rows."""

from __future__ import annotations

import math

import numpy as np
import pytest

import penstock as ps
from penstock import col


def test_where_drops_false_and_null() -> None:
    df = ps.from_pydict({"a": [1, 2, None, 4]})
    assert df.where(col("a") > 1).to_pydict() == {"a": [2, 4]}
    assert df.filter(~(col("a") > 1)).to_pydict() == {"a": [1]}


def test_where_takes_a_function_of_a_row() -> None:
    assert ps.range(5).filter(lambda row: row["id"] % 2).to_pydict() == {"id": [1, 3]}


def test_where_nothing_left_keeps_the_columns() -> None:
    assert ps.range(5).where(col("id") > 9).to_pydict() == {"id": []}


@pytest.mark.parametrize("num", [0, 1, 5, 99, np.int64(3)])
def test_limit_and_offset_part_the_rows(num: int) -> None:
    df = ps.range(5)
    assert df.limit(num).to_pydict()["id"] + df.offset(num).to_pydict()["id"] == [0, 1, 2, 3, 4]


def test_limits_and_offsets_apply_in_order() -> None:
    assert ps.range(10).offset(2).limit(3).to_pydict() == {"id": [2, 3, 4]}
    assert ps.range(10).limit(3).offset(2).to_pydict() == {"id": [2]}


def test_limit_stops_the_work_above_it() -> None:
    seen: list[int] = []
    counted = ps.range(10_000).into_batches(10).filter(lambda row: seen.append(row["id"]) or True, concurrency=1)
    assert counted.limit(5).count_rows() == 5
    assert len(seen) < 5_000


def test_explode_walks_columns_together_and_keeps_empty_lists_as_null() -> None:
    df = ps.from_pydict({"k": ["p", "q", "r"], "a": [[1, 2], [], None], "b": [["x", "y"], [], None]})
    assert df.explode("a", "b").to_pydict() == {
        "k": ["p", "p", "q", "r"],
        "a": [1, 2, None, None],
        "b": ["x", "y", None, None],
    }


def test_explode_of_an_expression_leaves_the_column_it_came_from() -> None:
    df = ps.from_pydict({"t": ["a b", "c"]})
    assert df.explode(col("t").split(" ").alias("word")).to_pydict() == {
        "t": ["a b", "a b", "c"],
        "word": ["a", "b", "c"],
    }


def test_explode_of_lists_of_unequal_length_says_so() -> None:
    df = ps.from_pydict({"a": [[1, 2]], "b": [[1]]})
    with pytest.raises(ValueError, match=r"'a' has 2 elements and 'b' 1; .* equal length"):
        df.explode("a", "b").collect()


def test_drop_null_looks_at_the_columns_given_or_at_all() -> None:
    df = ps.from_pydict({"a": [1, None, 3], "b": ["x", "y", None]})
    assert df.drop_null("a").to_pydict()["a"] == [1, 3]
    assert df.drop_null().to_pydict() == {"a": [1], "b": ["x"]}


def test_drop_nan_leaves_null_and_other_types_alone() -> None:
    df = ps.from_pydict({"a": [1.0, math.nan, None], "s": ["x", "y", "z"]})
    assert df.drop_nan().to_pydict() == {"a": [1.0, None], "s": ["x", "z"]}
    assert df.drop_nan(col("a")).count_rows() == 2


def test_rows_are_numbered_in_input_order_across_batches() -> None:
    df = ps.range(1000).into_batches(7).where(col("id") % 2 == 0).monotonically_increasing_id("n")
    assert df.to_pydict()["n"] == list(range(500))


def test_unpivot_gives_a_row_for_each_value_column() -> None:
    df = ps.from_pydict({"k": ["p", "q"], "a": [1, 2], "b": [0.5, None]})
    assert df.unpivot("k", ["a", "b"], variable_name="var", value_name="val").to_pylist() == [
        {"k": "p", "var": "a", "val": 1.0},
        {"k": "p", "var": "b", "val": 0.5},
        {"k": "q", "var": "a", "val": 2.0},
        {"k": "q", "var": "b", "val": None},
    ]
