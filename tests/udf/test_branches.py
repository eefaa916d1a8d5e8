"""A function in a branch of ``when``, ``if_else`` or ``coalesce`` is called only for the rows that use its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.functions import coalesce, if_else

SEEN: list[int] = []


@ps.func(use_process=False)
def seen(number: int) -> int:
    SEEN.append(number)
    return number * 10


@ps.func
async def seen_async(number: int) -> int:
    SEEN.append(number)
    return number * 10


@ps.func.batch(return_dtype=ps.DataType.int64(), use_process=False)
def seen_batch(numbers: ps.Series) -> list[int]:
    SEEN.extend(numbers.to_pylist())
    return [number * 10 for number in numbers.to_pylist()]


A, B = ps.col("a"), ps.col("b")
EXPRESSIONS: dict[str, tuple[Callable[[Any], ps.Expression], list[int | None], list[int]]] = {
    "when": (lambda f: ps.when(A > 2, f(A)), [None, None, 30, 40], [3, 4]),
    "otherwise": (lambda f: ps.when(A > 2, 0).otherwise(f(A)), [10, 20, 0, 0], [1, 2]),
    "null": (lambda f: if_else(B > 2, 0, f(A)), [10, 20, 0, 40], [1, 2, 4]),
    "coalesce": (lambda f: coalesce(B, f(A)), [1, 20, 3, 40], [2, 4]),
    "nested": (lambda f: ps.when(A > 1, ps.when(A < 4, f(A)).otherwise(0)), [None, 20, 30, 0], [2, 3]),
    "in the condition": (lambda f: ps.when(f(A) > 20, A), [None, None, 3, 4], [1, 2, 3, 4]),
    "also elsewhere": (lambda f: ps.when(A > 2, f(A)).otherwise(0) + f(A), [10, 20, 60, 80], [1, 2, 3, 4]),
    "none": (lambda f: ps.when(A > 9, f(A)), [None] * 4, []),
}


@pytest.mark.one_machine
@pytest.mark.parametrize("function", [seen, seen_async, seen_batch], ids=["row", "async", "batch"])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_only_the_rows_that_use_the_result_are_passed(function: Any, name: str) -> None:
    build, expected, passed = EXPRESSIONS[name]
    SEEN.clear()
    df = ps.from_pydict({"a": [1, 2, 3, 4], "b": [1, None, 3, None]})
    assert df.select(build(function).alias("x")).to_pydict() == {"x": expected}
    assert sorted(SEEN) == passed
