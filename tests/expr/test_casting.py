"""cast and try_cast."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from penstock import functions as f
from penstock.errors import ComputeError, TypeMismatchError
from penstock.expr.column import col
from penstock.storage.file import File
from penstock.types import DataType, to_arrow_array
from tests.expr.evaluating import batch_of, evaluate, resolved, run

a = col("a")
UTC = ZoneInfo("UTC")
NOON = dt.datetime(2024, 7, 3, 12)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1, "float32", 1.0),
        (1, "int8", 1),
        (1, "bool", True),
        (1, "string", "1"),
        (1, "decimal[10, 2]", Decimal("1.00")),
        (2**60 + 1, "float64", float(2**60)),
        (1.9, "int64", 1),
        (-1.9, "int8", -1),
        (1.5, "decimal[10, 2]", Decimal("1.50")),
        (1.0, "string", "1.0"),
        (0.1, "string", "0.1"),
        (math.inf, "string", "inf"),
        (0.5, "bool", True),
        (True, "int64", 1),
        (True, "string", "true"),
        (True, "decimal[3, 1]", Decimal("1.0")),
        (Decimal("1.25"), "int64", 1),
        (Decimal("1.25"), "float64", 1.25),
        (Decimal("1.25"), "string", "1.25"),
        ("12", "int64", 12),
        (" +12 ", "int64", 12),
        ("1e3", "float64", 1000.0),
        ("nan", "string", "nan"),
        ("true", "bool", True),
        ("1.25", "decimal[10, 1]", Decimal("1.2")),
        ("2024-07-03", "date", dt.date(2024, 7, 3)),
        ("2024-07-03T12:00:00", "date", dt.date(2024, 7, 3)),
        ("2024-07-03", "timestamp[us]", dt.datetime(2024, 7, 3)),
        ("2024-07-03 12:00", "timestamp[ms]", NOON),
        ("2024-07-03T12:00:00.5", "timestamp[us]", dt.datetime(2024, 7, 3, 12, 0, 0, 500000)),
        ("2024-07-03T14:00:00+02:00", "timestamp[us]", NOON),
        ("2024-07-03T12:00:00Z", "timestamp[us, UTC]", NOON.replace(tzinfo=UTC)),
        ("2024-07-03T12:00:00", "timestamp[us, Asia/Tokyo]", NOON.replace(tzinfo=ZoneInfo("Asia/Tokyo"))),
        ("12:30:00.5", "time[us]", dt.time(12, 30, 0, 500000)),
        ("abc", "binary", b"abc"),
        (b"abc", "string", "abc"),
        (b"abc", "fixed_size_binary[3]", b"abc"),
        (NOON, "date", dt.date(2024, 7, 3)),
        (NOON, "time[us]", dt.time(12)),
        (NOON, "timestamp[s]", NOON),
        (NOON, "timestamp[us, UTC]", NOON.replace(tzinfo=UTC)),
        (NOON, "string", "2024-07-03 12:00:00.000000"),
        (NOON, "int64", 1720008000000000),
        (1720008000, "timestamp[s]", NOON),
        (dt.date(2024, 7, 3), "timestamp[us]", dt.datetime(2024, 7, 3)),
        (dt.date(1970, 1, 2), "int64", 1),
        (1, "date", dt.date(1970, 1, 2)),
        (dt.time(0, 0, 1), "int64", 1000000),
        (dt.timedelta(seconds=1), "int64", 1000000),
        (dt.timedelta(seconds=1), "string", "0:00:01"),
        ([1, None], "list[string]", ["1", None]),
        ([1, 2], "fixed_size_list[float32; 2]", [1.0, 2.0]),
        ([1, 2], "string", "[1,2]"),
        ([[1], []], "list[list[float64]]", [[1.0], []]),
        ({"x": 1, "y": "2"}, "struct[y: int64, z: bool]", {"y": 2, "z": None}),
        ({"x": 1, "y": [None, 0.5]}, "string", '{"x":1,"y":[null,0.5]}'),
        ("a/b.txt", "file", File("a/b.txt")),
        (1, "python", 1),
        ({"x": [1]}, "python", {"x": [1]}),
    ],
)
def test_conversion(value: Any, dtype: str, expected: Any) -> None:
    assert evaluate(a.cast(dtype), a=[value, None]) == [expected, None]
    assert evaluate(a.try_cast(dtype), a=[value, None]) == [expected, None]
    assert resolved(a.cast(dtype), a=[value]) == DataType.of(dtype)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (300, "int8"),
        (-1, "uint8"),
        (1e30, "int64"),
        (math.nan, "int64"),
        ("x", "int64"),
        ("", "int64"),
        ("1.5", "int64"),
        ("99999999999999999999", "int64"),
        ("x", "float64"),
        ("maybe", "bool"),
        ("yesterday", "date"),
        ("2024-13-01", "timestamp[us]"),
        ("25:00:00", "time[us]"),
        (b"\xff", "string"),
        (b"abc", "fixed_size_binary[2]"),
        (123456, "decimal[4, 2]"),
        ([1], "fixed_size_list[int64; 2]"),
        (["x"], "list[int64]"),
        ({"x": "y"}, "struct[x: int64]"),
        ([1.0, 2.0, 3.0], "embedding[float32; 2]"),
    ],
)
def test_value_that_does_not_fit(value: Any, dtype: str) -> None:
    good = {"int": 1, "float": 1.0, "str": None, "bytes": None, "list": None, "dict": None}[type(value).__name__]
    assert evaluate(a.try_cast(dtype), a=[good, value, None])[1:] == [None, None]
    with pytest.raises(ComputeError) as caught:
        run(a.cast(dtype), batch_of(a=[good, value, None]))
    message = str(caught.value)
    assert repr(value) in message
    assert str(DataType.of(dtype)) in message
    assert ".try_cast(" in message


@settings(deadline=None, max_examples=50)
@given(st.lists(st.none() | st.integers(-5, 5).map(str) | st.text(max_size=3), max_size=30))
def test_try_cast_keeps_every_good_row(texts: list[str | None]) -> None:
    def parse(text: str | None) -> int | None:
        try:
            if text is None or not text.strip().isascii() or not set("_\x1c\x1d\x1e\x1f").isdisjoint(text):
                return None  # Python takes the last four for spaces
            return int(text.strip(), 10)
        except ValueError:
            return None

    batch = batch_of(a=pa.array(texts, pa.string()))
    assert run(a.try_cast("int64"), batch).to_pylist() == [parse(text) for text in texts]


def test_vectors_convert_into_one_another() -> None:
    rows = [[1.0, 2.0], None]
    kinds = [
        "list[float64]",
        "fixed_size_list[float64; 2]",
        "embedding[float32; 2]",
        "tensor[float32; 2]",
        "tensor[float32]",
    ]
    for source in kinds:
        column = to_arrow_array(rows, DataType.of(source), what="a")
        for target in [*kinds, "list[float32]", "embedding[float64; 2]"]:
            value, null = evaluate(a.cast(target), a=column)
            assert np.asarray(value).tolist() == [1.0, 2.0], (source, target)
            assert null is None


def test_list_takes_the_shape_of_a_tensor() -> None:
    (value,) = evaluate(a.cast(DataType.tensor("int64", (2, 2))), a=[[1, 2, 3, 4]])
    assert value.tolist() == [[1, 2], [3, 4]]


def test_maps() -> None:
    maps = pa.array([[("1", 2)], None, []], pa.map_(pa.string(), pa.int64()))
    assert evaluate(a.cast("map[int64: string]"), a=maps) == [[(1, "2")], None, []]
    assert evaluate(a.cast("string"), a=maps) == ['{"1":2}', None, "{}"]


def test_values_under_nulls_are_not_converted() -> None:
    hidden = pa.StructArray.from_arrays([pa.array(["x", "1"])], names=["n"], mask=pa.array([True, False]))
    assert evaluate(a.cast("struct[n: int64]"), a=hidden) == [None, {"n": 1}]
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pa.array(["x", "1"]), mask=pa.array([True, False])
    )
    assert evaluate(a.cast("list[int64]"), a=lists) == [None, [1]]
    assert evaluate(a.cast("fixed_size_list[int64; 1]"), a=lists) == [None, [1]]


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (
            "[1]",
            "list[int64]",
            r'cannot convert string to list\[int64\]; parse JSON text with deserialize\("json", "list\[int64\]"\)',
        ),
        ({"x": 1}, "int64", "cannot convert struct"),
        ([1], "int64", "cannot convert list"),
        (1, "list[int64]", "cannot convert int64 to list"),
        (b"1", "int64", r'decode the bytes first with .cast\("string"\)'),
        (1.5, "date", "cannot convert float64 to date"),
        ("1", "duration[us]", "cannot convert string to duration"),
    ],
)
def test_impossible_conversion_is_reported_when_built(value: Any, dtype: str, message: str) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        resolved(a.cast(dtype), a=[value])


def test_functions() -> None:
    assert evaluate(f.cast(a, "int64"), a=["1", None]) == [1, None]
    assert evaluate(f.try_cast(a, int), a=["1", "x", None]) == [1, None, None]


@pytest.mark.parametrize("dtype", [pa.float64(), pa.float32()])
def test_floats_as_text_agree_with_arrow(dtype: pa.DataType) -> None:
    exponents = range(-12, 20)
    numbers = pa.array([*(1.25 * 10.0**e for e in exponents), -0.0, 3, None, float("nan"), float("inf")], dtype)
    bare = numbers.cast(pa.string()).to_pylist()
    expected = [f"{text}.0" if text and text.lstrip("-").isdigit() else text for text in bare]
    assert evaluate(a.cast("string"), a=numbers) == expected
