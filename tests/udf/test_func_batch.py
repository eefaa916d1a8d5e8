"""``func.batch``: a function of whole ``Series`` over columns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import penstock as ps
from penstock import DataType, Series, col, lit
from penstock.errors import InvalidArgumentError, TypeMismatchError

INT = DataType.int64()


@pytest.fixture
def df() -> ps.DataFrame:
    return ps.from_pydict({"a": [1, 2, 3], "b": [10, 20, 30]})


def over_a(df: ps.DataFrame, function: Callable[..., Any], **options: Any) -> list[Any]:
    batch = ps.func.batch(return_dtype=INT, **options)(function)
    result: list[Any] = df.select(r=batch(col("a"))).to_pydict()["r"]
    return result


@pytest.mark.parametrize(
    "convert",
    [
        lambda series: series,
        lambda series: series.to_pylist(),
        lambda series: tuple(series),
        lambda series: series.to_numpy(),
        lambda series: series.to_torch(),
        lambda series: series.to_arrow(),
        lambda series: pa.chunked_array([series.to_arrow()]),
        lambda series: pd.Series(series.to_pylist()),
        lambda series: np.array(series, dtype=np.int8),
        lambda series: torch.tensor([float(value) for value in series]),
    ],
    ids=["series", "list", "tuple", "numpy", "torch", "arrow", "chunked", "pandas", "narrower", "whole floats"],
)
def test_accepted_results(df: ps.DataFrame, convert: Callable[[Series], Any]) -> None:
    assert over_a(df, convert) == [1, 2, 3]


def test_one_value_serves_every_row(df: ps.DataFrame) -> None:
    assert over_a(df, lambda series: [7]) == [7, 7, 7]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([1, 2], "Batch UDF 'give' returned 2 values for a batch of 3 rows"),
        ([1, 2, 3, 4], "returned 4 values for a batch of 3 rows"),
        (None, "Batch UDF 'give' returned NoneType; return a Series, list, ndarray, torch tensor or pyarrow Array"),
        (7, "returned int; return a Series"),
        ("abc", "returned str; return a Series"),
        ({"a": [1, 2, 3]}, "returned dict; return a Series"),
        (["x", "y", "z"], "Batch UDF 'give': has 'x' of type str at row 0, expected int64"),
    ],
)
def test_refused_results(df: ps.DataFrame, result: Any, message: str) -> None:
    def give(series: Series) -> Any:
        return result

    with pytest.raises(TypeMismatchError, match=message):
        over_a(df, give)


@pytest.mark.one_machine
def test_columns_come_as_named_series_and_constants_as_they_are(df: ps.DataFrame) -> None:
    seen: list[Any] = []

    @ps.func.batch(return_dtype=INT, batch_size=2, max_concurrency=1)
    def look(first: Series, factor: int, *, second: Series, note: Any = None) -> Any:
        seen.append((first.name, second.name, len(first), factor, note))
        return first.to_numpy() * factor + second.to_numpy()

    result = df.select(r=look(col("a"), 100, second=col("b") + 1, note={"k": 1}))
    assert result.to_pydict() == {"r": [111, 221, 331]}
    assert [len_ for _, _, len_, _, _ in seen] == [2, 1]
    assert seen[0][:2] == ("a", "b")
    assert seen[0][3:] == (100, {"k": 1})


def test_literal_expressions_are_constants_too(df: ps.DataFrame) -> None:
    @ps.func.batch(return_dtype=INT)
    def repeat(value: int) -> list[int]:
        assert isinstance(value, int)
        return [value]

    assert df.select(r=repeat(lit(4))).to_pydict() == {"r": [4, 4, 4]}


def test_nulls_are_nulls(df: ps.DataFrame) -> None:
    @ps.func.batch(return_dtype=INT)
    def keep(series: Series) -> list[Any]:
        assert series.null_count == 1
        return series.to_pylist()

    nulls = ps.from_pydict({"a": [1, None]})
    assert nulls.select(keep(col("a"))).to_pydict() == {"a": [1, None]}


@pytest.mark.parametrize(
    ("batch_size", "sizes"), [(1, [1, 1, 1]), (2, [2, 2, 1]), ("auto", [3, 3, 3]), (None, [3, 3, 3])]
)
def test_batch_size(df: ps.DataFrame, batch_size: Any, sizes: list[int]) -> None:
    assert over_a(df, lambda series: [len(series)] * len(series), batch_size=batch_size, max_concurrency=1) == sizes


def test_embeddings_of_one_shape_become_fixed_vectors(df: ps.DataFrame) -> None:
    @ps.func.batch(return_dtype=DataType.embedding(DataType.float32(), 2))
    def embed(series: Series) -> torch.Tensor:
        return torch.stack([series.to_torch(), -series.to_torch()], dim=1).float()

    result = df.select(e=embed(col("a")))
    assert result.schema["e"].dtype == DataType.embedding(DataType.float32(), 2)
    np.testing.assert_array_equal(result.to_pydict()["e"][2], np.array([3, -3], dtype=np.float32))


def test_async_batches_run_at_the_same_time(df: ps.DataFrame) -> None:
    arrived: list[int] = []
    both = asyncio.Event()

    @ps.func.batch(return_dtype=INT, batch_size=2)
    async def meet(series: Series) -> Series:
        arrived.append(len(series))
        if len(arrived) == 2:
            both.set()
        await both.wait()
        return series

    assert df.select(meet(col("a"))).to_pydict() == {"a": [1, 2, 3]}


def test_unnest(df: ps.DataFrame) -> None:
    @ps.func.batch(return_dtype=DataType.struct({"x": INT, "y": INT}), unnest=True)
    def split(series: Series) -> list[dict[str, int]]:
        return [{"x": value, "y": -value} for value in series]

    assert df.select(split(col("a"))).to_pydict() == {"x": [1, 2, 3], "y": [-1, -2, -3]}


def test_without_an_expression_it_just_runs() -> None:
    @ps.func.batch(return_dtype=INT)
    def double(values: Any) -> Any:
        return [value * 2 for value in values]

    assert double([1, 2]) == [2, 4]
    assert double(Series.from_pylist([1, 2])) == [2, 4]


def test_it_needs_a_return_dtype_and_cannot_be_a_generator() -> None:
    with pytest.raises(InvalidArgumentError, match="the type of its results is not known; give return_dtype"):
        ps.func.batch(lambda series: series)

    def parts(series: Series) -> Iterator[Series]:
        yield series

    with pytest.raises(InvalidArgumentError, match=r"parts: a batch function .* cannot be a generator"):
        ps.func.batch(return_dtype=INT)(parts)
