"""Digests of Arrow data: equal for equal values however they are cut, and for nothing else."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.types.digests import ContentHash


def digest(*arrays: pa.Array) -> bytes:
    hashed = ContentHash()
    hashed.add_all(arrays)
    return hashed.digest()


MONEY = st.sampled_from([decimal.Decimal("1.25"), decimal.Decimal(0)])
RECORDS = st.fixed_dictionaries({"a": st.integers(0, 3), "b": st.text(max_size=2)})
PAIRS = st.lists(st.tuples(st.text(max_size=2), st.integers(0, 3)), max_size=2)
TYPES: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), st.integers(-5, 5)), (pa.float32(), st.floats(width=32, allow_nan=False)), (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=3)), (pa.large_string(), st.text(max_size=3)), (pa.binary(), st.binary(max_size=3)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)), (pa.date32(), st.dates(datetime.date(2020, 1, 1))),
    (pa.list_(pa.string()), st.lists(st.text(max_size=2), max_size=2)), (pa.null(), st.none()),
    (pa.list_(pa.int8(), 2), st.lists(st.integers(0, 5), min_size=2, max_size=2)), (pa.timestamp("us"), st.datetimes()),
    (pa.struct({"a": pa.int64(), "b": pa.string()}), RECORDS), (pa.decimal128(5, 2), MONEY),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["a", "b"])), (pa.map_(pa.string(), pa.int64()), PAIRS),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "values"), TYPES, ids=[str(dtype) for dtype, _ in TYPES])
@hypothesis.given(st.data())
@hypothesis.settings(max_examples=25, deadline=None)
def test_the_values_count_and_nothing_else(dtype: pa.DataType, values: Any, data: st.DataObject) -> None:
    """A slice out of other values has the digest of the values alone; other values have another."""
    rows = st.lists(st.none() | values, max_size=9)
    before, given, after, other = (data.draw(rows) for _ in range(4))
    array = pa.array(given, dtype)
    cut = pa.array([*before, *given, *after], dtype).slice(len(before), len(given))
    assert digest(array) == digest(cut)
    different = pa.array(other, dtype)
    # Not by ``equals``, for which minus zero is zero.
    assert (digest(array) == digest(different)) == (repr(array.to_pylist()) == repr(different.to_pylist()))


def test_values_under_nulls_do_not_count() -> None:
    valid = pa.py_buffer(b"\x05")  # the first and the third
    numbers = [pa.Array.from_buffers(pa.int64(), 3, [valid, pa.py_buffer(np.array([1, x, 3]))]) for x in (7, 8)]
    assert digest(numbers[0]) == digest(numbers[1]) == digest(pa.array([1, None, 3]))
    offsets = pa.py_buffer(np.array([0, 1, 2, 3], np.int32))
    texts = [pa.Array.from_buffers(pa.string(), 3, [valid, offsets, pa.py_buffer(text)]) for text in (b"abc", b"axc")]
    assert digest(texts[0]) == digest(texts[1]) == digest(pa.array(["a", None, "c"]))


def test_borders_types_and_columns_count() -> None:
    assert digest(pa.array(["ab", ""])) != digest(pa.array(["a", "b"]))
    assert digest(pa.array([1], pa.int32())) != digest(pa.array([1], pa.int64()))
    assert digest(pa.array([1, 2])) != digest(pa.array([1]), pa.array([2]))
    assert digest(pa.array([None, None])) != digest(pa.array([None]))


def test_images_and_tensors() -> None:
    def tensors(start: int) -> pa.Array:
        data = np.arange(start, start + 24, dtype=np.uint8).reshape(2, 2, 2, 3)
        return ps.from_numpy(data).select(ps.col("data").cast("image[RGB]")).to_arrow().column(0).combine_chunks()

    assert digest(tensors(0)) == digest(tensors(0)) != digest(tensors(1))
    assert digest(tensors(0).slice(1)) != digest(tensors(0).slice(0, 1))
