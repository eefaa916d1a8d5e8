"""Batch sizes: found by measurement, bound by weight, halved where they are too much."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import penstock as ps
from penstock import DataType, Series, col
from penstock.errors import InvalidArgumentError, UdfError
from tests.explained import explained

INT = DataType.int64()


class TooMuchError(Exception):
    pass


class Seen:
    """Notes the sizes of batches in a file, for workers anywhere. The size of one that fails is negative."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def note(self, size: int) -> None:
        with self._path.open("a") as file:
            file.write(f"{size}\n")

    @property
    def sizes(self) -> list[int]:
        return [int(line) for line in self._path.read_text().splitlines()]


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path / "sizes")


# --- auto ---


def slow_call(duration_s: float, seen: Seen) -> Any:
    def call(batch: dict[str, Any]) -> dict[str, Any]:
        seen.note(len(batch["id"]))
        time.sleep(duration_s)
        return {"x": batch["id"]}

    return call


def test_auto_grows_with_what_a_call_costs(seen: Seen) -> None:
    rows = ps.range(20_000).map_batches(slow_call(0.003, seen), concurrency=1).to_pydict()["x"]
    assert rows == list(range(20_000))
    assert seen.sizes[0] == 8
    assert max(seen.sizes) >= 1024


@pytest.mark.parametrize("is_async", [False, True])
def test_auto_joins_small_batches(is_async: bool, seen: Seen) -> None:
    def count(x: Series) -> Series:
        seen.note(len(x))
        time.sleep(0.002)
        return x

    async def count_async(x: Series) -> Series:
        await asyncio.sleep(0.002)
        seen.note(len(x))
        return x

    counted = ps.func.batch(return_dtype=INT, max_concurrency=1)(count_async if is_async else count)
    df = ps.range(3000).map_batches(lambda b: b, batch_size=2)
    assert df.select(x=counted(col("id"))).to_pydict()["x"] == list(range(3000))
    assert max(seen.sizes) > 8


def test_auto_is_bound_by_memory(seen: Seen) -> None:
    ps.set_config(memory_limit="64MB")
    try:
        # A row becomes 100 kB: a quarter of the budget holds 160 of them, with what comes in.
        large = ps.range(400).map_batches(
            lambda b: {"x": np.zeros((len(b["id"]), 12_500))}, batch_size=10, batch_format="numpy"
        )

        def look(batch: dict[str, Any]) -> dict[str, Any]:
            seen.note(len(batch["x"]))
            time.sleep(0.005)
            return {"n": [len(batch["x"])]}

        large.map_batches(look, concurrency=1).collect()
    finally:
        ps.set_config(memory_limit=0)
    assert sum(seen.sizes) == 400
    assert 8 < max(seen.sizes) <= 160


@pytest.mark.one_machine
def test_auto_takes_what_there_is_from_a_slow_stage(seen: Seen) -> None:
    """The second function must get its first rows while the first one still waits to be let go on."""
    let_go = threading.Event()

    def wait_in_the_middle(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["id"][0] == 2:
            assert let_go.wait(60), "nothing was taken from what had come"
        return batch

    def take(batch: dict[str, Any]) -> dict[str, Any]:
        seen.note(len(batch["id"]))
        let_go.set()
        return batch

    df = ps.range(6).map_batches(wait_in_the_middle, batch_size=1, concurrency=1).map_batches(take, concurrency=1)
    assert df.to_pydict()["id"] == list(range(6))
    assert sum(seen.sizes) == 6


def test_batches_of_into_batches_are_exact_and_stay_so(seen: Seen) -> None:
    assert [b.num_rows for b in ps.range(100).into_batches(32).to_arrow().to_batches()] == [32, 32, 32, 4]
    df = ps.range(100).where(col("id") >= 0).into_batches(32).map_batches(slow_call(0.0, seen), concurrency=1)
    df.collect()
    assert sorted(seen.sizes) == [4, 32, 32, 32]


# --- limits ---

TEXTS = ["x" * n for n in (4, 4, 8, 40, 4, 4, 4)]  # of 1, 1, 2, 10, 1, 1 and 1 tokens


def sizes_of_texts(folder: Path, **options: Any) -> list[int]:
    seen = Seen(folder / str(options))

    @ps.func.batch(return_dtype=INT, max_concurrency=1, **options)
    def lengths(text: Series) -> list[int]:
        seen.note(len(text))
        return [len(each) for each in text.to_pylist()]

    df = ps.from_pydict({"text": TEXTS})
    assert df.select(n=lengths(col("text"))).to_pydict()["n"] == [len(text) for text in TEXTS]
    return seen.sizes


def test_max_batch_tokens_estimates_text(tmp_path: Path) -> None:
    assert sizes_of_texts(tmp_path, max_batch_tokens=4) == [3, 1, 3]
    assert sizes_of_texts(tmp_path, max_batch_tokens=1) == [1] * 7
    assert sizes_of_texts(tmp_path, max_batch_tokens=1000) == [7]


def test_an_int_batch_size_bounds_too(tmp_path: Path) -> None:
    assert sizes_of_texts(tmp_path, max_batch_tokens=4, batch_size=2) == [2, 1, 1, 2, 1]


@pytest.mark.parametrize("limit", [16, "16B"])
def test_max_batch_bytes(tmp_path: Path, limit: Any) -> None:
    assert sizes_of_texts(tmp_path, max_batch_bytes=limit) == [3, 1, 3]


def test_both_limits_hold(tmp_path: Path) -> None:
    assert sizes_of_texts(tmp_path, max_batch_bytes=16, max_batch_tokens=2) == [2, 1, 1, 2, 1]


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow", "pylist"])
def test_weights_of_map_batches(batch_format: Any) -> None:
    df = ps.from_pydict({"data": [b"x" * size for size in range(6)]}).map_batches(
        lambda b: {"n": [len(b) if batch_format == "pylist" else len(b["data"])]},
        batch_format=batch_format,
        max_batch_bytes=5,
    )
    assert df.to_pydict()["n"] == [3, 1, 1, 1]


def test_limits_of_async_functions(seen: Seen) -> None:
    @ps.func.batch(return_dtype=INT, max_batch_tokens=4)
    async def lengths(text: Series) -> list[int]:
        seen.note(len(text))
        return [len(each) for each in text.to_pylist()]

    df = ps.from_pydict({"text": TEXTS})
    assert df.select(n=lengths(col("text"))).to_pydict()["n"] == [len(text) for text in TEXTS]
    assert seen.sizes == [3, 1, 3]

    async def count(batch: dict[str, Any]) -> dict[str, Any]:
        return {"n": [len(batch["text"])]}

    assert df.map_batches(count, max_batch_tokens=4).to_pydict()["n"] == [3, 1, 3]


def test_limits_of_methods() -> None:
    @ps.cls
    class Counter:
        @ps.method.batch(return_dtype=INT, max_batch_tokens=4, split_on=TooMuchError)
        def count(self, text: Series) -> list[int]:
            return [len(text)] * len(text)

    df = ps.from_pydict({"text": TEXTS})
    assert df.select(n=Counter().count(col("text"))).to_pydict()["n"] == [3, 3, 3, 1, 3, 3, 3]


def test_tokens_need_text() -> None:
    df = ps.range(3).map_batches(lambda b: b, max_batch_tokens=5)
    with pytest.raises(InvalidArgumentError, match=r"no argument has any \(types: int64\). Use max_batch_bytes"):
        df.collect()


# --- too much ---


def fail_above(limit: int, seen: Seen, error: type[Exception] = TooMuchError) -> Any:
    def call(batch: dict[str, Any]) -> dict[str, Any]:
        size = len(batch["id"])
        seen.note(size if size <= limit else -size)
        if size > limit:
            raise error(f"{size} rows are too many")
        return {"x": batch["id"] * 2}

    return call


@pytest.mark.parametrize("on_error", ["raise", "ignore"])
@pytest.mark.parametrize("max_retries", [0, 3])
def test_too_much_is_halved_and_remembered(on_error: Any, max_retries: int, seen: Seen) -> None:
    df = ps.range(300).map_batches(
        fail_above(10, seen),
        batch_size=50,
        split_on=TooMuchError,
        on_error=on_error,
        max_retries=max_retries,
        concurrency=1,
    )
    assert df.to_pydict()["x"] == [2 * x for x in range(300)]
    assert seen.sizes[:4] == [-50, -25, -12, 6]
    failed = [size for size in seen.sizes[3:] if size < 0]
    assert len(failed) <= 2, "larger ones are tried again, but rarely"
    assert df.errors().count_rows() == 0


def test_an_error_of_torch_needs_no_naming(seen: Seen) -> None:
    df = ps.range(64).map_batches(fail_above(16, seen, torch.OutOfMemoryError), batch_size=64, concurrency=1)
    assert df.to_pydict()["x"] == [2 * x for x in range(64)]
    assert seen.sizes == [-64, -32, 16, 16, 16, 16]
    assert issubclass(torch.cuda.OutOfMemoryError, torch.OutOfMemoryError)


@pytest.mark.parametrize("is_async", [False, True])
def test_columns_too(is_async: bool, seen: Seen) -> None:
    def double(x: Series) -> Any:
        seen.note(len(x))
        if len(x) > 5:
            raise TooMuchError
        return x.to_numpy() * 2

    async def double_async(x: Series) -> Any:
        return double(x)

    doubled = ps.func.batch(return_dtype=INT, batch_size=20, split_on=(TooMuchError, KeyError), max_concurrency=1)(
        double_async if is_async else double
    )
    assert ps.range(60).select(x=doubled(col("id"))).to_pydict()["x"] == [2 * x for x in range(60)]
    # Async batches may all be under way before the first has failed.
    assert seen.sizes.count(20) <= (3 if is_async else 1)


def test_an_async_batch_is_halved() -> None:
    async def few(batch: dict[str, Any]) -> dict[str, Any]:
        if len(batch["id"]) > 3:
            raise TooMuchError
        return {"x": batch["id"]}

    assert ps.range(20).map_batches(few, split_on=TooMuchError).to_pydict()["x"] == list(range(20))


def test_in_a_worker_process() -> None:
    def few(batch: dict[str, Any]) -> dict[str, Any]:
        if len(batch["id"]) > 3:
            raise MemoryError
        return {"x": batch["id"]}

    df = ps.range(20).map_batches(few, split_on=MemoryError, use_process=True, concurrency=1, batch_size=20)
    assert df.to_pydict()["x"] == list(range(20))


@pytest.mark.parametrize("is_named", [True, False])
def test_a_generator_is_halved(is_named: bool) -> None:
    error = TooMuchError if is_named else torch.OutOfMemoryError

    def few(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if len(batch["id"]) > 3:
            raise error
        yield {"x": batch["id"]}
        yield {"x": batch["id"][:0]}

    df = ps.range(20).map_batches(few, split_on=TooMuchError if is_named else None)
    assert df.to_pydict()["x"] == list(range(20))


@pytest.mark.one_machine
def test_weight_is_what_is_halved_where_there_is_a_limit() -> None:
    seen: list[list[int]] = []

    def call(batch: dict[str, Any]) -> dict[str, Any]:
        weights = list(map(len, batch["w"]))
        seen.append(weights)
        if sum(weights) > 10:
            raise TooMuchError
        return batch

    weights = [1] * 8 + [8, 8] + [1] * 8 + [8, 8]
    df = ps.from_pydict({"w": [b"x" * weight for weight in weights]}).map_batches(
        call, batch_size=None, split_on=TooMuchError, max_batch_bytes=24, concurrency=1
    )
    assert list(map(len, df.to_pydict()["w"])) == weights
    assert seen[0] == [1] * 8 + [8, 8]
    assert [sum(part) for part in seen if sum(part) > 10] == [24]


def test_rows_that_weigh_nothing_are_halved_by_number(seen: Seen) -> None:
    def call(batch: dict[str, Any]) -> dict[str, Any]:
        return {"x": fail_above(4, seen)({"id": np.arange(len(batch["text"]))})["x"]}

    df = ps.from_pydict({"text": [""] * 16}).map_batches(call, batch_size=16, split_on=TooMuchError, max_batch_bytes=10)
    assert len(df.to_pydict()["x"]) == 16


def test_a_single_row_that_is_too_much_follows_on_error() -> None:
    def refuse(batch: dict[str, Any]) -> dict[str, Any]:
        if 7 in batch["id"]:
            raise TooMuchError("row 7")
        return batch

    df = ps.range(40)
    with pytest.raises(UdfError, match=r"failed on row 7 of the input \(id=7\): TooMuchError: row 7"):
        df.map_batches(refuse, split_on=TooMuchError).collect()
    tolerant = df.map_batches(refuse, split_on=TooMuchError, on_error="ignore").collect()
    assert tolerant.to_pydict()["id"] == [x for x in range(40) if x != 7]
    assert tolerant.errors().to_pydict()["error_type"] == ["TooMuchError"]


def test_one_enormous_row_does_not_make_all_that_follow_small(seen: Seen) -> None:
    def call(batch: dict[str, Any]) -> dict[str, Any]:
        if 0 in batch["id"] and len(batch["id"]) > 1:
            raise TooMuchError
        seen.note(len(batch["id"]))
        return batch

    ps.range(4096).map_batches(call, batch_size=64, split_on=TooMuchError, concurrency=1).collect()
    assert seen.sizes[0] == 1
    assert seen.sizes[-1] == 64


def test_other_errors_are_not_halved_away(seen: Seen) -> None:
    with pytest.raises(UdfError, match=r"failed on a batch of 50 rows \(from row 0 of the input on\): KeyError"):
        ps.range(50).map_batches(fail_above(10, seen, KeyError), batch_size=50, split_on=TooMuchError).collect()
    assert seen.sizes == [-50]


@pytest.mark.one_machine
def test_what_the_failed_call_held_is_let_go() -> None:
    held: list[Any] = []
    alive: list[int] = []

    class Tensor:
        pass

    def call(batch: dict[str, Any]) -> dict[str, Any]:
        alive.append(sum(ref() is not None for ref in held))
        tensor = Tensor()
        held.append(weakref.ref(tensor))
        if len(batch["id"]) > 2:
            raise TooMuchError
        return batch

    gc.disable()
    try:
        ps.range(8).map_batches(call, batch_size=8, split_on=TooMuchError, concurrency=1).collect()
    finally:
        gc.enable()
    assert alive == [0] * len(alive)
    assert len(alive) == 6


@pytest.mark.one_machine
def test_it_is_logged(caplog: pytest.LogCaptureFixture, seen: Seen) -> None:
    with caplog.at_level(logging.INFO, logger="penstock.udf"):
        ps.range(64).map_batches(fail_above(4, seen), batch_size=64, split_on=TooMuchError, concurrency=1).collect()
    record = caplog.records[0]
    assert "a batch of 64 rows was too large (TooMuchError: 64 rows are too many)" in record.message


# --- options ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch_bytes": "much"}, "'much' is not a size"),
        ({"max_batch_bytes": 0}, "max_batch_bytes must be a number of bytes of 1 or more"),
        (
            {"max_batch_bytes": True},
            "or text such as '64MB'; got True",
        ),
        (
            {"max_batch_bytes": 1.5},
            "or text such as '64MB'; got 1.5",
        ),
        ({"max_batch_tokens": 0}, "max_batch_tokens must be a whole number of 1 or more; got 0"),
        ({"max_batch_tokens": "8k"}, "max_batch_tokens must be a whole number"),
        ({"split_on": "TooMuchError"}, "split_on takes exception classes; got 'TooMuchError'"),
        ({"split_on": (TooMuchError, 3)}, r"split_on takes exception classes; got .*, 3\)"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ps.range(3).map_batches(lambda b: b, **options)
    with pytest.raises(InvalidArgumentError, match=message):
        ps.func.batch(return_dtype=INT, **options)(lambda x: x)


@pytest.mark.parametrize("option", ["max_batch_bytes", "max_batch_tokens", "split_on"])
def test_functions_over_rows_have_no_batches(option: str) -> None:
    message = f"no option '{option}'. "
    given: dict[str, Any] = {option: 5}
    with pytest.raises(InvalidArgumentError, match=f"func has {message}"):
        ps.func(**given)
    with pytest.raises(InvalidArgumentError, match=f"method has {message}"):
        ps.method(**given)
    with pytest.raises(InvalidArgumentError, match=f"cls has {message}"):
        ps.cls(**given)
    with pytest.raises(InvalidArgumentError, match=f"map has {message}"):
        ps.range(3).map(lambda row: row, **given)


def test_explain_shows_limits() -> None:
    limits: Any = {"max_batch_bytes": "1MB", "max_batch_tokens": 9, "split_on": TooMuchError}
    text = explained(ps.range(3).map_batches(lambda b: b, **limits))
    assert "max_batch_bytes 1000000; max_batch_tokens 9; split_on TooMuchError" in text
    assert "batches by throughput" in text
