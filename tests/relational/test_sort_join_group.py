"""Sort, distinct, join and aggregates: the rules for null, NaN, names, types and empty inputs."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import ColumnNotFoundError, InvalidArgumentError, TypeMismatchError

NAN = float("nan")
LARGE = 2**53 + 1  # no float is equal to it
LEFT = {"k": [1.0, 2.0, None, NAN, None], "v": [1, 2, 3, 4, 5]}
RIGHT = {"k": [1.0, None, NAN, 9.0], "v": [10, 20, 30, 40], "w": [1, 2, 3, 4]}


def rows(df: ps.DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows in a fixed order, with NaN as a text."""
    found = [
        tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in row.values()) for row in df.to_pylist()
    ]
    return sorted(found, key=repr)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1, 2, 4, 3, 5]),
        ({"desc": True}, [3, 5, 4, 2, 1]),
        ({"nulls_first": True}, [3, 5, 1, 2, 4]),
        ({"desc": True, "nulls_first": False}, [4, 2, 1, 3, 5]),
    ],
)
def test_null_is_the_largest_value_and_nan_the_largest_number(options: dict[str, bool], expected: list[int]) -> None:
    assert ps.from_pydict(LEFT).sort("k", **options).select("v").to_pydict()["v"] in (expected, _swapped(expected))


def _swapped(order: list[int]) -> list[int]:
    """Return the order with the two rows of equal keys exchanged."""
    return [{3: 5, 5: 3}.get(v, v) for v in order]


def test_several_keys_have_a_direction_each() -> None:
    df = ps.from_pydict({"a": [1, 1, 2], "b": [1, None, 3]})
    sorted_df = df.sort(["a", ps.col("b") + 0], desc=[True, False], nulls_first=[True, True])
    assert sorted_df.to_pylist() == [{"a": 2, "b": 3}, {"a": 1, "b": None}, {"a": 1, "b": 1}]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [(1.0, 1, 10, 1)]),
        ("left", [(1.0, 1, 10, 1), *[(k, v, None, None) for k, v in ((2.0, 2), ("nan", 4), (None, 3), (None, 5))]]),
        ("right", [(1.0, 1, 10, 1), (9.0, None, 40, 4), ("nan", None, 30, 3), (None, None, 20, 2)]),
        ("semi", [(1.0, 1)]),
        ("anti", [(2.0, 2), ("nan", 4), (None, 3), (None, 5)]),
    ],
)  # fmt: skip
def test_null_and_nan_join_nothing(how: Any, expected: list[tuple[Any, ...]]) -> None:
    assert rows(ps.from_pydict(LEFT).join(ps.from_pydict(RIGHT), on="k", how=how)) == sorted(expected, key=repr)


def test_an_outer_join_has_the_rows_of_both_sides() -> None:
    joined = ps.from_pydict(LEFT).join(ps.from_pydict(RIGHT), on="k", how="outer")
    assert joined.columns == ["k", "v", "right.v", "w"]
    assert joined.count_rows() == 8


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"on": "k"}, ["k", "v", "right.v", "w"]),
        ({"on": "k", "suffix": "_r"}, ["k", "v", "v_r", "w"]),
        ({"on": "k", "prefix": "r_"}, ["k", "v", "r_v", "w"]),
        ({"left_on": "v", "right_on": "w"}, ["k", "v", "right.k", "right.v", "w"]),
        ({"on": ps.col("k") + 1}, ["k", "v", "right.k", "right.v", "w"]),
        ({"how": "cross"}, ["k", "v", "right.k", "right.v", "w"]),
        ({"on": "v"}, ["v", "k", "right.k", "w"]),
        ({"on": "v", "how": "semi"}, ["k", "v"]),
    ],
)
def test_columns_of_a_join(options: dict[str, Any], columns: list[str]) -> None:
    joined = ps.from_pydict(LEFT).join(ps.from_pydict(RIGHT), **options)
    assert joined.columns == columns
    assert joined.to_arrow().schema.names == columns


def test_a_new_name_of_a_join_is_not_the_name_of_another_column() -> None:
    right = ps.from_pydict({"k": [1], "v": ["right"], "right.v": ["other"]})
    joined = ps.from_pydict({"k": [1], "v": ["left"]}).join(right, on="k")
    assert joined.to_pydict() == {"k": [1], "v": ["left"], "right.right.v": ["right"], "right.v": ["other"]}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [2]),
        ("left", [2, LARGE]),
        ("right", [2.0, 4.0]),
        ("outer", [2.0, 4.0, float(LARGE)]),
        ("anti", [LARGE]),
    ],
)
def test_keys_of_different_types_keep_the_type_of_their_side(how: Any, expected: list[Any]) -> None:
    left, right = ps.from_pydict({"k": [2, LARGE]}), ps.from_pydict({"k": [2.0, 4.0]})
    found = left.join(right, on="k", how=how).sort("k").to_pydict()["k"]
    assert (found, [type(key) for key in found]) == (expected, [type(key) for key in expected])


def test_groups_count_null_and_nan_as_values() -> None:
    grouped = ps.from_pydict(LEFT).groupby("k").agg(ps.col("v").sum(), ps.col("k").count("null").alias("nulls"))
    assert set(rows(grouped)) == {(1.0, 1, 0), (2.0, 2, 0), ("nan", 4, 0), (None, 8, 2)}


@pytest.mark.parametrize(
    ("function", "arrow_type", "result_type"),
    [
        ("sum", pa.int8(), pa.int64()),
        ("sum", pa.uint8(), pa.uint64()),
        ("sum", pa.float32(), pa.float32()),
        ("sum", pa.decimal128(10, 2), pa.decimal128(38, 2)),
        ("mean", pa.int32(), pa.float64()),
        ("min", pa.date32(), pa.date32()),
        ("max", pa.duration("us"), pa.duration("us")),
        ("count", pa.string(), pa.uint64()),
        ("list_agg", pa.int16(), pa.list_(pa.int16())),
        ("any_value", pa.list_(pa.int8()), pa.list_(pa.int8())),
        ("product", pa.int8(), pa.int64()),
    ],
)
def test_types_of_aggregates(function: str, arrow_type: pa.DataType, result_type: pa.DataType) -> None:
    df = ps.from_arrow(pa.table({"x": pa.nulls(2, arrow_type)}))
    result = df.agg(getattr(ps.col("x"), function)())
    assert result.schema["x"].dtype.arrow == result_type
    assert result.to_arrow().schema.field("x").type == result_type


def test_an_empty_input_gives_one_row_without_keys_and_none_with_keys() -> None:
    empty = ps.from_pydict({"k": [1], "v": [2]}).where(ps.col("k") > 5)
    assert empty.agg(ps.col("v").sum(), ps.col("v").count().alias("n")).to_pydict() == {"v": [None], "n": [0]}
    assert empty.groupby("k").sum().to_pydict() == {"k": [], "v": []}
    assert empty.sort("k").distinct().to_pydict() == {"k": [], "v": []}
    assert empty.join(empty, on="k").to_pydict() == {"k": [], "v": [], "right.v": []}


def test_a_product_of_whole_numbers_is_exact() -> None:
    assert ps.from_pydict({"x": [3037000499, 3037000493]}).product("x").to_pydict() == {"x": [3037000499 * 3037000493]}


def test_a_sum_that_overflows_is_an_error() -> None:
    with pytest.raises(ps.errors.ComputeError, match="sum"):
        ps.from_pydict({"x": [2**62, 2**62]}).sum("x").collect()


def test_expressions_of_aggregates_and_of_udfs() -> None:
    @ps.func
    def score(text: str) -> int:
        return len(text)

    df = ps.from_pydict({"k": ["a", "a", "b"], "t": ["x", "xyz", "xy"]})
    result = df.groupby(ps.col("k").upper()).agg(
        score(ps.col("t")).max().alias("best"), (ps.col("t").count() * 10 + score(ps.col("t")).min()).alias("mix")
    )
    assert rows(result) == [("A", 3, 21), ("B", 2, 12)]


def test_columns_are_unknown_after_map_batches() -> None:
    df = ps.range(10).map_batches(lambda batch: {"x": batch["id"] % 2, "y": batch["id"]})
    assert df.groupby("x").agg(ps.col("y").sum()).sort("x").to_pydict() == {"x": [0, 1], "y": [20, 25]}
    assert df.sort("y", desc=True).limit(1).to_pydict() == {"x": [1], "y": [9]}


def test_all_types_pass_through_unharmed() -> None:
    table = pa.table(
        {
            "k": [2, 1, None],
            "half": pa.array(np.array([1, 2, 3], np.float16)),
            "span": pa.array([timedelta(days=1), None, timedelta(0)], pa.duration("ns")),
            "time": pa.array([1, 2, None], pa.time64("ns")),
            "zoned": pa.array([1, 2, None], pa.timestamp("ns", "Europe/Berlin")),
            "none": pa.nulls(3),
            "nested": pa.array([[{"a": 1}], None, [{"a": None}]]),
            "map": pa.array([[("x", 1)], [], None], pa.map_(pa.string(), pa.int8())),
            "fixed": pa.array([b"ab", b"cd", None], pa.binary(2)),
            "halves": pa.array([[1.0], None, []], pa.list_(pa.float16())),
        }
    )
    df = ps.from_arrow(table).with_columns(
        {
            "embedding": ps.lit(np.arange(3, dtype=np.float32)).cast(ps.DataType.embedding("float32", 3)),
            "file": ps.lit("a.txt").cast(ps.DataType.file()),
        }
    )
    expected = df.to_arrow()
    order = pa.array([1, 0, 2])
    for result in (
        df.sort("k"),
        df.distinct().sort("k"),
        df.join(df.select("half"), on="half").sort("k").select(*df.columns),
    ):
        assert result.to_arrow().equals(expected.take(order))
    assert (
        df.groupby("half").any_value().sort("half").to_arrow().column("embedding").type
        == expected.column("embedding").type
    )


def test_images_pass_through_a_sort() -> None:
    images = [np.full((2, 3, 3), n, np.uint8) for n in range(3)]
    df = ps.from_pydict({"n": [2, 0, 1], "image": [images[2], images[0], images[1]]})
    df = df.with_column("image", ps.col("image").cast(ps.DataType.image("RGB")))
    assert [image.max() for image in df.sort("n").to_pydict()["image"]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda df: df.sort("z"), ColumnNotFoundError, "'z' not found in sort"),
        (lambda df: df.sort([]), InvalidArgumentError, "at least one key"),
        (lambda df: df.sort("k", desc=[True, False]), InvalidArgumentError, "one bool for each key"),
        (lambda df: df.sort("k", "x"), InvalidArgumentError, r"as a list, such as sort\(\['a', 'b'\]\)"),
        (lambda df: df.join(df), InvalidArgumentError, "either on="),
        (lambda df: df.join(df, on="k", how="full"), InvalidArgumentError, "use one of inner"),
        (lambda df: df.join(df.select(k="t"), on="k"), TypeMismatchError, "cast one of them"),
        (lambda df: df.join(3, on="k"), InvalidArgumentError, "must be a DataFrame"),
        (lambda df: df.groupby(), InvalidArgumentError, "at least one key"),
        (lambda df: df.groupby("k").agg(ps.col("t")), InvalidArgumentError, "neither a key nor inside"),
        (lambda df: df.agg(ps.col("k").sum().max()), InvalidArgumentError, "cannot contain another"),
        (lambda df: df.agg("k"), InvalidArgumentError, "agg takes expressions"),
        (lambda df: df.agg(ps.col("t").sum()), TypeMismatchError, r"sum\(t\): expected a number"),
        (lambda df: df.sort("k", descending=True), InvalidArgumentError, "sort has no option 'descending'"),
        (lambda df: df.join(df, on="k", strategy="hash"), InvalidArgumentError, "join has no option 'strategy'"),
        (lambda df: df.with_column("s", ps.col("k").sum()), InvalidArgumentError, "use it in agg"),
        (lambda df: df.agg(ps.col("k").count("some")), InvalidArgumentError, "valid, all, null"),
    ],
)  # fmt: skip
def test_mistakes_are_found_when_the_plan_is_built(build: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build(ps.from_pydict({"k": [1], "t": ["x"]}))


def test_aggregates_of_a_column_of_nulls_only() -> None:
    df = ps.from_pydict({"k": ["a", "a", "b"], "n": [None, None, None]})
    n = ps.col("n")
    found = {
        "and": n.bool_and(),
        "or": n.bool_or(),
        "text": n.string_agg(),
        "all": n.list_agg(),
        "set": n.list_agg_distinct(),
    }
    by_key = df.groupby("k").agg(*(each.alias(name) for name, each in found.items())).sort("k").to_pydict()
    assert by_key == {
        "k": ["a", "b"],
        **{name: [None, None] for name in ("and", "or", "text")},
        "all": [[None, None], [None]],
        "set": [[], []],
    }


def test_an_aggregate_may_have_any_name() -> None:
    v = ps.col("v")
    rows = ps.from_pydict({"k": [1, 1], "v": [1, 2]}).groupby("k")
    found = rows.agg(v.sum().alias("__aggregate_0"), (v.max() + v.min()).alias("__aggregate_1"))
    assert found.to_pydict() == {"k": [1], "__aggregate_0": [3], "__aggregate_1": [3]}


def test_a_select_of_aggregates_combines_all_rows() -> None:
    df = ps.from_pydict({"k": ["x", "y"], "v": [1, 2]})
    got = df.select(ps.col("v").sum(), ps.lit(1).alias("one"), mean=ps.col("v").mean() + 1)
    assert got.to_pydict() == {"v": [3], "one": [1], "mean": [2.5]}
    assert df.limit(0).select(ps.col("v").count()).to_pydict() == {"v": [0]}
    for outside in ("k", "*"):
        with pytest.raises(InvalidArgumentError, match="is neither a key nor inside an aggregate"):
            df.select(outside, ps.col("v").sum().alias("total"))
