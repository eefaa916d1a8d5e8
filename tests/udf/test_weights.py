"""What rows weigh, and where a batch is cut by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from penstock.errors import InvalidArgumentError
from penstock.expr.udf import BatchLimits
from penstock.types import DataType
from penstock.udf.sizing import BATCHES_BEFORE_GROWTH, BatchSizes, Parts, SafeSize, cut, row_nbytes, row_tokens

NESTED = pa.list_(pa.struct([("role", pa.string()), ("n", pa.int32())]))
SAMPLES: list[tuple[pa.Array, list[float]]] = [
    (pa.array([1, None, 3]), [8, 8, 8]),
    (pa.array([True, False, None]), [0.125, 0.125, 0.125]),
    (pa.array(["ab", None, "é"]), [2, 0, 2]),
    (pa.array([b"abc", b"", None], pa.large_binary()), [3, 0, 0]),
    (pa.array(["a", "bb", "a"]).dictionary_encode(), [1, 2, 1]),
    (pa.array([None, None, None]), [0, 0, 0]),
    (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16] * 3, pa.binary(16))), [16, 16, 16]),
]


@pytest.mark.parametrize(("array", "expected"), SAMPLES, ids=[str(array.type)[:30] for array, _ in SAMPLES])
def test_bytes_of_rows_and_of_slices_of_them(array: pa.Array, expected: list[float]) -> None:
    assert row_nbytes(array).tolist() == expected
    assert row_nbytes(array.slice(1)).tolist() == expected[1:]
    assert row_nbytes(array.slice(0, 2)).tolist() == expected[:2]
    assert row_nbytes(array.slice(3)).tolist() == []


@pytest.mark.parametrize(
    "array",
    [
        pa.array([["a" * 100, "b"], [], ["e"]], pa.large_list(pa.string())),
        pa.array([{"a": 1, "b": "x" * 100}, None, {"a": 2, "b": ""}]),
        pa.array([[{"role": "ab" * 50, "n": 1}], [], [{"role": "c", "n": 2}] * 2], NESTED),
    ],
)
def test_nested_values_count_with_their_offsets(array: pa.Array) -> None:
    weights = row_nbytes(array)
    assert 100 <= weights[0] <= 130
    assert max(weights[1:]) < 30
    assert row_nbytes(array.slice(1)).tolist() == weights.tolist()[1:]


def test_embeddings_count_their_numbers() -> None:
    dtype = DataType.embedding(DataType.float32(), 4).arrow
    storage = pa.array([[1.0] * 4, [2.0] * 4], pa.list_(pa.float32(), 4))
    array = pa.ExtensionArray.from_storage(dtype, storage) if isinstance(dtype, pa.ExtensionType) else storage
    assert row_nbytes(array).tolist() == pytest.approx([16, 16], abs=1)


def test_tokens_of_all_texts_add_up() -> None:
    messages = pa.array([[{"role": "user" * 100, "n": 1}], [], None], NESTED)
    assert row_tokens([pa.array(["x" * 8, "", "x"]), pa.array([1, 2, 3])], "f").tolist() == [2, 1, 1]
    assert 100 < row_tokens([pa.array([1, 2, 3]), messages], "f")[0] < 110


@pytest.mark.parametrize("columns", [[pa.array([1])], []])
def test_tokens_need_text(columns: list[pa.Array]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"f: max_batch_tokens counts text, and no argument"):
        row_tokens(columns, "f")


WEIGHTS = st.lists(st.integers(0, 20), min_size=1, max_size=60)


@given(WEIGHTS, st.integers(1, 30))
def test_cut_is_greedy_and_within_the_limit(weights: list[int], limit: int) -> None:
    lengths = cut(np.cumsum([[weight / limit for weight in weights]], axis=1), 1.0)
    assert sum(lengths) == len(weights)
    first = 0
    for length in lengths:
        part = weights[first : first + length]
        assert length == 1 or sum(part) <= limit
        first += length
        assert first == len(weights) or sum(part) + weights[first] > limit, "one more row would have fitted"


@given(WEIGHTS, st.integers(1, 30), st.integers(1, 40))
def test_what_is_too_much_shrinks_until_it_fits(weights: list[int], limit: int, capacity: int) -> None:
    """Each row comes once, in order; a part is only ever too much for the simulated memory if it is a row alone."""
    sizes = weighing(limit)
    for _ in range(3):
        seen: list[int] = []
        for part in (parts := sizes.parts(pa.record_batch({"w": weights}))):
            rows = part["w"].to_pylist()
            assert len(rows) == 1 or sum(rows) <= limit
            if sum(rows) > capacity and parts.has_shrunk(MemoryError()):
                continue
            assert len(rows) == 1 or sum(rows) <= capacity
            parts.worked()
            seen += rows
        assert seen == weights


def weighing(limit: int) -> BatchSizes:
    limits = BatchLimits(max_batch_bytes=limit, split_on=(MemoryError,))
    return BatchSizes(limits, "f", lambda batch: [pa.array([b"x" * weight for weight in batch["w"].to_pylist()])])


def taken(parts: Parts, capacity: int) -> list[int]:
    """Return the sizes of the parts of a batch, those that are too much negative."""
    sizes = []
    for part in parts:
        is_too_much = part.num_rows > capacity
        sizes.append(-part.num_rows if is_too_much else part.num_rows)
        if is_too_much:
            assert parts.has_shrunk(MemoryError())
        else:
            parts.worked()
    return sizes


def test_the_rest_of_a_batch_is_cut_by_what_was_learnt() -> None:
    sizes = BatchSizes(BatchLimits(split_on=(MemoryError,)), "f", lambda batch: batch.columns)
    batch = pa.record_batch({"w": list(range(100))})
    assert taken(sizes.parts(batch), 30) == [-100, -50, 25, 25, 25, 25]
    assert taken(sizes.parts(batch), 30) == [25] * 4


def test_other_errors_do_not_shrink_a_batch() -> None:
    sizes = BatchSizes(BatchLimits(), "f", lambda batch: batch.columns)
    parts = sizes.parts(pa.record_batch({"w": [1, 2]}))
    next(parts)
    assert not parts.has_shrunk(MemoryError())
    assert list(parts) == []


def test_a_larger_size_is_tried_again_after_many_batches() -> None:
    safe = SafeSize()
    safe.failed(64)
    for _ in range(BATCHES_BEFORE_GROWTH - 1):
        safe.worked(32)
    assert safe.limit == 32
    safe.worked(32)
    assert safe.limit == 64


def test_small_batches_say_nothing_about_larger_ones() -> None:
    safe = SafeSize()
    safe.failed(64)
    for _ in range(1000):
        safe.worked(16)
    assert safe.limit == 32


def test_nothing_is_learnt_from_rows_without_weight() -> None:
    safe = SafeSize()
    safe.failed(0.0)
    assert safe.limit > 1


def test_torch_is_not_imported_for_its_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from penstock.udf.sizing import out_of_memory_classes

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert out_of_memory_classes() == ()
    assert "torch" not in sys.modules


def test_a_full_gpu_is_emptied_before_the_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    emptied: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(None))
    sizes = BatchSizes(BatchLimits(), "f", lambda batch: batch.columns)
    parts = sizes.parts(pa.record_batch({"w": [1, 2]}))
    next(parts)
    assert parts.has_shrunk(torch.OutOfMemoryError())
    assert len(emptied) == 1
