"""``map_groups``: every function sees whole groups, whatever their number, size and keys."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError, TypeMismatchError

ROWS = {"k": ["x", "y", "x", None, None], "v": [1, 2, 3, 4, 5]}
Batch = dict[str, Any]


def total(group: Batch) -> Batch:
    return {"k": group["k"][:1], "total": [group["v"].sum()]}


def total_in_parts(group: Batch) -> Iterator[Batch]:
    yield total(group)


async def total_async(group: Batch) -> Batch:
    return total(group)


async def total_async_in_parts(group: Batch) -> AsyncIterator[Batch]:
    yield total(group)


class Total:
    def __call__(self, group: Batch) -> Batch:
        return total(group)


class AsyncTotal:
    async def __call__(self, group: Batch) -> Batch:
        return total(group)


@pytest.mark.parametrize("fn", [total, total_in_parts, total_async, total_async_in_parts, Total, AsyncTotal])
def test_each_kind_of_function_sees_whole_groups(fn: Callable[..., Any]) -> None:
    got = ps.from_pydict(ROWS).groupby("k").map_groups(fn).sort("k").to_pydict()
    assert got == {"k": ["x", "y", None], "total": [4, 2, 9]}


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow", "torch"])
def test_formats(batch_format: str) -> None:
    df = ps.from_pydict({"k": [2, 1, 2], "v": [1, 2, 3]})
    got = df.groupby("k").map_groups(lambda group: group, batch_format=batch_format).to_pydict()
    assert got == {"k": [1, 2, 2], "v": [2, 1, 3]}


def test_processes_and_constructor_arguments() -> None:
    class Adder:
        def __init__(self, amount: int) -> None:
            self.amount = amount

        def __call__(self, group: Batch, factor: int) -> Batch:
            return {"sum": [group["v"].sum() * factor + self.amount], "pid": [os.getpid()]}

    groups = ps.from_pydict(ROWS).groupby("k")
    got = groups.map_groups(
        Adder, fn_constructor_args=(10,), fn_kwargs={"factor": 2}, use_process=True, concurrency=1
    ).to_pydict()
    assert sorted(got["sum"]) == [14, 18, 28]
    assert os.getpid() not in got["pid"]


def test_many_small_groups_share_tasks() -> None:
    keys = np.random.default_rng(0).permutation(np.arange(6000) % 2000)
    df = ps.from_arrow(pa.table({"k": keys, "v": np.arange(6000)}))
    result = df.groupby("k").map_groups(lambda g: {"k": g["k"][:1], "n": [len(g["v"])]}).collect()
    got = result.to_pydict()
    assert sorted(got["k"]) == list(range(2000))
    assert set(got["n"]) == {3}
    calls = next(line for line in str(result.stats()).splitlines() if line.startswith("map_groups"))
    assert int(calls.split()[5].replace(",", "")) < 500  # bundles


def test_a_group_larger_than_any_batch_stays_whole_and_in_input_order() -> None:
    def check(group: Batch) -> Batch:
        return {"n": [len(group["id"])], "is_ordered": [bool((np.diff(group["id"].astype(int)) > 0).all())]}

    df = ps.range(300_000).with_column("k", (ps.col("id") % 100_000 == 0).if_else(1, 0))
    with ps.config(memory_limit="64MB"):
        got = df.groupby("k").map_groups(check).to_pydict()
    assert got == {"n": [299_997, 3], "is_ordered": [True, True]}


@pytest.mark.parametrize(
    "keys",
    [
        [1.5, math.nan, None, math.nan, 1.5, None],
        [{"a": 1, "b": [1]}, {"a": 2, "b": []}, None, {"a": 2, "b": []}, {"a": 1, "b": [1]}, None],
        [b"", b"a", None, b"a", b"", None],
    ],
)
def test_null_and_nan_are_groups(keys: list[Any]) -> None:
    df = ps.from_pydict({"k": keys, "n": list(range(6))})
    got = df.groupby("k").map_groups(lambda group: {"rows": [sorted(group["n"].tolist())]}).to_pydict()
    assert sorted(got["rows"]) == [[0, 4], [1, 3], [2, 5]]


def test_keys_of_expressions_are_columns_of_the_group() -> None:
    df = ps.from_pydict({"v": [1, 2, 3]})
    got = df.groupby((ps.col("v") % 2).alias("odd")).map_groups(lambda g: {"odd": g["odd"][:1], "n": [len(g["v"])]})
    assert got.sort("odd").to_pydict() == {"odd": [0, 1], "n": [1, 2]}
    with pytest.raises(InvalidArgumentError, match=r"column 'v' already; name the key .* with .alias"):
        df.groupby(ps.col("v") % 2).map_groups(lambda group: group)


def test_extension_types_and_columns_unknown_before_the_run() -> None:
    vectors = np.arange(8, dtype=np.float32).reshape(4, 2)
    df = ps.range(4).map_batches(lambda b: {"k": b["id"] % 2, "v": vectors[b["id"].astype(int)]}, batch_size=2)
    got = df.groupby("k").map_groups(lambda g: {"mean": g["v"].mean(axis=0, keepdims=True)}).to_pydict()
    assert [value.tolist() for value in got["mean"]] == [[2.0, 3.0], [4.0, 5.0]]


def test_failed_groups_are_recorded_by_their_keys() -> None:
    def fail(group: Batch) -> Batch:
        if group["k"][0] == "x":
            raise ValueError("no x")
        return group

    groups = ps.from_pydict(ROWS).groupby("k")
    result = groups.map_groups(fail, on_error="ignore").collect()
    assert sorted(result.to_pydict()["v"]) == [2, 4, 5]
    assert result.errors().to_pydict()["input"] == ['{"k": "x"}']
    with pytest.raises(ValueError, match=r"map_groups\(fail\) failed on the group \(k='x'\): ValueError: no x"):
        groups.map_groups(fail).collect()


def test_groups_that_give_null_or_nothing() -> None:
    def some(group: Batch) -> Batch:
        k = int(group["id"][0])
        return {"v": [None if k < 40 else k]} if k % 2 else {"v": []}

    got = ps.range(80).groupby("id").map_groups(some).to_pydict()
    assert got == {"v": [None] * 20 + list(range(41, 80, 2))}
    assert ps.range(0).groupby("id").map_groups(some).to_pydict() == {}


def test_cached_groups_are_computed_once(tmp_path: Path) -> None:
    calls = tmp_path / "calls"

    def noted(group: Batch) -> Batch:
        with calls.open("a") as file:
            file.write("x")
        return total(group)

    with ps.config(cache_dir=str(tmp_path / "cache")):
        for _ in range(2):
            got = ps.from_pydict(ROWS).groupby("k").map_groups(noted, cache=True).to_pydict()
            assert got["total"] == [4, 2, 9]
    assert calls.read_text() == "xxx"


def test_unknown_options_are_refused() -> None:
    groups = ps.from_pydict(ROWS).groupby("k")
    with pytest.raises(InvalidArgumentError, match="map_groups has no option 'batch_size'"):
        groups.map_groups(total, batch_size=3)
    with pytest.raises(InvalidArgumentError, match="map_groups takes a function or a class"):
        groups.map_groups("total")  # type: ignore[arg-type]


def test_types_that_change_after_the_first_batch_are_an_error_not_nulls() -> None:
    def number_first(batch: Batch) -> Batch:
        return {"v": [row if row < 2 else str(row) for row in batch["id"].tolist()]}

    df = ps.range(4).map_batches(number_first, batch_size=2, concurrency=1)
    with pytest.raises(TypeMismatchError, match=r"sort v: a function gave several types for column 'v'"):
        df.sort("v").to_pydict()
