"""Window functions: partitions, orders, frames, and the rules of Daft."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError
from penstock.functions import dense_rank, lag, rank, row_number

DATA = {"g": [1, 1, 1, 2], "v": [1, 2, 2, 5]}
BY_V = ps.Window().partition_by("g").order_by("v")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (rank().over(BY_V), [1, 2, 2, 1]),
        (dense_rank().over(BY_V), [1, 2, 2, 1]),
        (row_number().over(BY_V), [1, 2, 3, 1]),
        (rank().over(ps.Window().order_by("v", desc=True)), [4, 2, 2, 1]),
        (ps.col("v").sum().over(ps.Window().partition_by("g")), [5, 5, 5, 5]),
        (ps.col("v").sum().over(BY_V), [5, 5, 5, 5]),
        (ps.col("v").sum().over(BY_V.rows_between(ps.Window.unbounded_preceding, ps.Window.current_row)), [1, 3, 5, 5]),
        (ps.col("v").sum().over(BY_V.rows_between(-1, 0)), [1, 3, 4, 5]),
        (ps.col("v").sum().over(BY_V.rows_between(-1, 0, min_periods=2)), [None, 3, 4, None]),
        (ps.when(ps.col("v") > 1, ps.col("v")).sum().over(BY_V.rows_between(-1, 0, min_periods=2)), [None, 2, 4, None]),
        (lag(ps.col("v")).over(BY_V), [None, 1, 2, None]),
        (ps.col("v").lead(2, default=-1).over(BY_V), [2, -1, -1, -1]),
        (ps.col("v").last_value().over(BY_V), [2, 2, 2, 5]),
        (ps.col("v").mean().over(ps.Window().partition_by(ps.col("v") % 2)), [3.0, 2.0, 2.0, 3.0]),
        (ps.col("v") - ps.col("v").min().over(ps.Window().partition_by("g")), [0, 1, 1, 0]),
        (ps.col("v").list_agg().over(ps.Window().partition_by("g")).list_length(), [3, 3, 3, 1]),
        (ps.col("v").product().over(ps.Window().partition_by("g")), [4, 4, 4, 5]),
    ],
)
def test_values(expression: ps.Expression, expected: list[Any]) -> None:
    df = ps.from_pydict(DATA).monotonically_increasing_id("n")
    result = df.with_column("w", expression).sort(["g", "v", "w"])
    assert result.to_pydict()["w"] == expected
    assert result.columns == ["n", "g", "v", "w"]
    assert result.schema.to_arrow().equals(result.to_arrow().schema)


def test_a_function_may_read_and_be_read_by_a_window() -> None:
    @ps.func
    def double(x: int) -> int:
        return x * 2

    df = ps.from_pydict(DATA)
    total = double(ps.col("v")).sum().over(ps.Window().partition_by("g"))
    assert df.select("g", double(total).alias("t")).distinct().sort("g").to_pydict() == {"g": [1, 2], "t": [20, 20]}


def test_columns_are_unknown_after_map_batches() -> None:
    df = ps.range(4).map_batches(lambda batch: {"x": batch["id"]})
    result = df.with_column("r", rank().over(ps.Window().order_by("x", desc=True))).sort("x")
    assert result.to_pydict() == {"x": [0, 1, 2, 3], "r": [4, 3, 2, 1]}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ps.col("v").over(BY_V), "over takes one aggregate"),
        (lambda: ps.col("v").sum().over("g"), r"over takes a ps\.Window"),
        (lambda: rank().over(ps.Window().partition_by("g")), "rank needs an order"),
        (lambda: ps.from_pydict(DATA).agg(rank()), "is a window function"),
        (lambda: ps.from_pydict(DATA).where(ps.col("v").sum().over(BY_V) > 1), "only valid in select"),
        (lambda: ps.Window().rows_between("a"), "A bound of a window"),
        (lambda: ps.Window().order_by("a", desc=[True, False]), "for each of the 1 keys"),
        (lambda: lag(ps.col("v"), "x"), "whole number of rows"),
    ],
)
def test_mistakes(build: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        build()


def test_structs_inside_structs_that_explode_made() -> None:
    """They are slices of one array, which DuckDB does not take as they are."""
    lists = [[{"n": number, "row": {"id": number}}, {"n": -number, "row": {"id": -number}}] for number in range(200)]
    df = ps.from_pydict({"item": lists}).into_batches(20).explode("item").with_column("n", ps.col("item")["n"])
    found = df.with_column("place", row_number().over(ps.Window().order_by("n", desc=True))).where(ps.col("place") <= 2)
    assert [item["row"]["id"] for item in found.sort("place").to_pydict()["item"]] == [199, 198]
