"""Every type survives Parquet, IPC, pickle, and being cut and joined."""

from __future__ import annotations

import datetime
import decimal
import io
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from penstock.storage.file import File, VideoFile
from penstock.types import DataType, Series, to_arrow_array

D = DataType

naive = st.datetimes(min_value=datetime.datetime(1900, 1, 1), max_value=datetime.datetime(2200, 1, 1))
small = st.integers(-100, 100)
floats = st.floats(width=32, allow_nan=False)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def ndarrays(dtype: Any, shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    size = int(np.prod(shape))
    return st.lists(st.integers(0, 100), min_size=size, max_size=size).map(
        lambda xs: np.array(xs, dtype).reshape(shape)
    )


def any_shape(dtype: Any, max_dims: int) -> st.SearchStrategy[np.ndarray]:
    return st.lists(st.integers(0, 3), max_size=max_dims).flatmap(lambda shape: ndarrays(dtype, tuple(shape)))


images = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4)).flatmap(lambda s: ndarrays(np.uint8, s))

CASES: list[tuple[DataType, st.SearchStrategy[Any]]] = [
    (D.bool(), st.booleans()),
    *((getattr(D, f"int{bits}")(), st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)) for bits in (8, 16, 32, 64)),
    *((getattr(D, f"uint{bits}")(), st.integers(0, 2**bits - 1)) for bits in (8, 16, 32, 64)),
    (D.float16(), st.floats(width=16, allow_nan=False)),
    (D.float32(), floats),
    (D.float64(), st.floats(allow_nan=False)),
    (D.string(), words),
    (D.binary(), st.binary(max_size=5)),
    (D.fixed_size_binary(3), st.binary(min_size=3, max_size=3)),
    (D.date(), st.dates()),
    (D.time(), st.times()),
    (D.timestamp(), naive),
    (D.timestamp(timezone="UTC"), naive.map(lambda t: t.replace(tzinfo=datetime.UTC))),
    (D.duration(), st.timedeltas(datetime.timedelta(-1000), datetime.timedelta(1000))),
    (D.decimal128(10, 2), small.map(lambda n: decimal.Decimal(n).scaleb(-2))),
    (D.list(D.int64()), st.lists(st.none() | small, max_size=3)),
    (D.list(D.list(D.string())), st.lists(st.none() | st.lists(words, max_size=2), max_size=3)),
    (D.fixed_size_list(D.float32(), 2), st.lists(floats, min_size=2, max_size=2)),
    (D.struct({"a": D.int64(), "b": D.string()}), st.fixed_dictionaries({"a": st.none() | small, "b": words})),
    (D.map(D.string(), D.int64()), st.dictionaries(words, st.none() | small, max_size=3)),
    (D.embedding(D.float32(), 3), ndarrays(np.float32, (3,))),
    (D.tensor(D.int16(), (2, 3)), ndarrays(np.int16, (2, 3))),
    (D.tensor(D.bool(), (2,)), ndarrays(np.bool_, (2,))),
    (D.tensor(D.float64(), ()), ndarrays(np.float64, ())),
    (D.tensor(D.float32()), any_shape(np.float32, 3)),
    (D.image("RGB", 2, 3), ndarrays(np.uint8, (2, 3, 3))),
    (D.image("L", 2, 1), ndarrays(np.uint8, (2, 1, 1))),
    (D.image(), images),
    (D.file(), st.builds(File, words | st.binary(max_size=3))),
    (D.list(D.file("video")), st.lists(st.builds(VideoFile, words), max_size=2)),
    (D.python(), st.one_of(small, words, st.sets(small), st.tuples(small, words), st.complex_numbers(allow_nan=False))),
    (D.list(D.embedding(D.float32(), 2)), st.lists(st.none() | ndarrays(np.float32, (2,)), max_size=3)),
    (D.list(D.image()), st.lists(images, max_size=2)),
    (D.struct({"t": D.tensor(D.int8())}), st.fixed_dictionaries({"t": any_shape(np.int8, 2)})),
    (
        D.struct({"p": D.python(), "i": D.image("L", 1, 1)}),
        st.fixed_dictionaries({"p": st.sets(small), "i": st.none()}),
    ),
]

ids = [str(dtype) for dtype, _ in CASES]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return isinstance(right, np.ndarray) and left.dtype == right.dtype and np.array_equal(left, right)
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return isinstance(right, dict) and left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    return type(left) is type(right) and left == right


def through_parquet(array: pa.Array) -> pa.Array:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"c": array}), buffer)
    return pq.read_table(buffer).column("c").combine_chunks()


def through_ipc(array: pa.Array) -> pa.Array:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"c": array})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_all().column("c").combine_chunks()


def through_pickle(array: pa.Array) -> pa.Array:
    return pickle.loads(pickle.dumps(array))


@pytest.mark.parametrize(("dtype", "values"), CASES, ids=ids)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_values_survive_storage(dtype: DataType, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.none() | values, max_size=6))
    array = to_arrow_array(rows, dtype, what="column")
    array.validate(full=True)
    assert D(array.type) == dtype
    assert same(Series(array).to_pylist(), rows)
    for through in (through_parquet, through_ipc, through_pickle):
        back = through(array)
        assert D(back.type) == dtype, through
        assert same(Series(back).to_pylist(), rows), through


@pytest.mark.parametrize(("dtype", "values"), CASES, ids=ids)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_columns_can_be_cut_and_joined(dtype: DataType, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=6))
    array = to_arrow_array(rows, dtype, what="column")
    start = data.draw(st.integers(0, len(rows)))
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6))
    keep = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))

    def is_row_for_row(got: pa.Array, expected: list[Any]) -> bool:
        return D(got.type) == dtype and same(Series(got).to_pylist(), expected)

    assert is_row_for_row(array[start:], rows[start:])
    assert is_row_for_row(array[:start], rows[:start])
    assert is_row_for_row(array.take(pa.array(order, pa.int64())), [rows[i] for i in order])
    assert is_row_for_row(array.filter(pa.array(keep)), [row for row, kept in zip(rows, keep, strict=True) if kept])
    assert is_row_for_row(pa.concat_arrays([array[start:], array]), rows[start:] + rows)
    assert is_row_for_row(through_parquet(array[start:]), rows[start:])
    assert is_row_for_row(through_ipc(array[start:]), rows[start:])
    assert is_row_for_row(pa.nulls(2, dtype.arrow), [None, None])


@pytest.mark.parametrize(("dtype", "values"), CASES, ids=ids)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_numpy_has_one_row_for_each(dtype: DataType, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    rows = data.draw(st.lists(values, min_size=1, max_size=4))
    array = Series.from_pylist([None, *rows], dtype=dtype)[1:].to_numpy()
    assert len(array) == len(rows)
    if dtype.is_embedding() or ((dtype.is_tensor() or dtype.is_image()) and dtype.shape is not None):
        assert np.array_equal(array, np.stack(rows))
        assert array.dtype == rows[0].dtype


@pytest.mark.parametrize("dtype", [dtype for dtype, _ in CASES], ids=ids)
def test_the_name_of_a_type_reads_back(dtype: DataType) -> None:
    assert D.parse(str(dtype)) == dtype
    assert pickle.loads(pickle.dumps(dtype)) == dtype
    assert hash(D.parse(str(dtype))) == hash(dtype)
