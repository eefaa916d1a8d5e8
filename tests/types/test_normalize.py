from __future__ import annotations

import uuid
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import TypeMismatchError
from penstock.types import DataType, normalize, normalize_batch


@pytest.mark.parametrize(
    ("array", "normal"),
    [
        (pa.array(["a", None], pa.large_string()), pa.string()),
        (pa.array(["a", None], pa.string_view()), pa.string()),
        (pa.array([b"a"], pa.large_binary()), pa.binary()),
        (pa.array([b"a"], pa.binary_view()), pa.binary()),
        (pa.array(["a", "b", None, "a"]).dictionary_encode(), pa.string()),
        (pa.array([["a"], None], pa.large_list(pa.large_string())), pa.list_(pa.string())),
        (pa.array([["a"], None], pa.list_view(pa.string_view())), pa.list_(pa.string())),
        (pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))), pa.list_(pa.string())),
        (pa.array([["a", "b"]], pa.list_(pa.large_string(), 2)), pa.list_(pa.string(), 2)),
        (pa.array([{"a": "x"}], pa.struct([("a", pa.large_string())])), pa.struct([("a", pa.string())])),
        (pa.array([[("k", "v")]], pa.map_(pa.large_string(), pa.large_string())), pa.map_(pa.string(), pa.string())),
        (pc.run_end_encode(pa.array(["a", "a", None])), pa.string()),
        (pa.array([0, 86_400_000], pa.date64()), pa.date32()),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_variants_become_normal(array: pa.Array, normal: pa.DataType) -> None:
    result = normalize(array)
    assert result.type == normal
    assert result.to_pylist() == array.to_pylist()
    chunked = pa.chunked_array([array, array])
    assert normalize(chunked).type == normal
    assert normalize(chunked).to_pylist() == 2 * array.to_pylist()


def test_normalized_data_is_not_copied() -> None:
    array = pa.array(["a", "b"])
    chunked = pa.chunked_array([array])
    batch = pa.record_batch({"a": array, "b": pa.array([[1], [2]])})
    assert normalize(array) is array
    assert normalize(chunked) is chunked
    assert normalize_batch(batch) is batch


def test_a_batch_loses_variants_metadata_and_not_null() -> None:
    schema = pa.schema([pa.field("a", pa.large_string(), nullable=False, metadata={"k": "v"})], metadata={"m": "n"})
    batch = normalize_batch(pa.RecordBatch.from_arrays([pa.array(["x"], pa.large_string())], schema=schema))
    assert batch.schema.equals(pa.schema([("a", pa.string())]), check_metadata=True)
    assert not batch.schema.metadata


def test_canonical_tensors_become_ours() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    ours = normalize(pa.FixedShapeTensorArray.from_numpy_ndarray(values))
    assert DataType(ours.type) == DataType.tensor("float32", (3, 4))
    assert np.array_equal(np.stack(ours.to_pylist()), values)


def test_uuids_become_text() -> None:
    key = uuid.UUID("018f6a9e-7c40-7000-8000-000000000001")
    column = pa.array([None, key, None, key])[1:]
    lists = pa.ListArray.from_arrays(pa.array([0, 1, None, 3], pa.int32()), column)[1:]
    rows = pa.StructArray.from_arrays([column], ["k"], mask=pa.array([False, True, False]))[1:]
    assert normalize(column).to_pylist() == [str(key), None, str(key)]
    assert normalize(column[:0]).type == pa.string()
    assert normalize(lists).to_pylist() == [[None, str(key)], None]
    assert normalize(rows).to_pylist() == [None, {"k": str(key)}]


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda keys: pa.LargeListArray.from_arrays([0, 1, 2], keys),
        lambda keys: pa.FixedSizeListArray.from_arrays(keys, 1),
        lambda keys: pa.ListArray.from_arrays([0, 1, 2], pa.StructArray.from_arrays([keys], ["k"])),
        lambda keys: pa.ListArray.from_arrays([0, 1, 2], pa.ListArray.from_arrays([0, 1, 2], keys)),
        lambda keys: pa.MapArray.from_arrays([0, 1, 2], pa.array(["a", "b"]), keys),
    ],
)
def test_nested_uuids_become_text(wrapped: Callable[[pa.Array], pa.Array]) -> None:
    """The first one is valid UTF-8, so that a cast of its bytes would succeed."""
    keys = [uuid.UUID(bytes=b"abcdefghijklmnop"), uuid.UUID(int=2**127)]
    texts = pa.array([str(key) for key in keys])
    for part in (slice(None), slice(1, None)):
        assert normalize(wrapped(pa.array(keys))[part]).to_pylist() == normalize(wrapped(texts)[part]).to_pylist()


def test_permuted_tensors_are_refused() -> None:
    with pytest.raises(TypeMismatchError, match="Permuted"):
        DataType(pa.fixed_shape_tensor(pa.float32(), [3, 4], permutation=[1, 0]))


def test_unions_are_refused() -> None:
    codes = pa.array([0, 1], pa.int8())
    union = pa.UnionArray.from_sparse(codes, [pa.array([1, None]), pa.array([None, "x"])], ["n", "s"])
    with pytest.raises(TypeMismatchError, match="give each of its types a column of its own"):
        normalize(union)
