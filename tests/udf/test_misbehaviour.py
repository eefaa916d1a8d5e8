"""Functions that do what one does not expect of them: nothing is lost, mixed up, or blamed on another."""

from __future__ import annotations

import asyncio
import collections
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import penstock as ps
from penstock import DataType, Series, col
from penstock.engine.pools import gil
from penstock.errors import InvalidArgumentError, TooManyErrorsError, UdfError

EIGHT = list(range(8))


# --- what a call may raise ---


def test_stop_iteration_is_the_failure_of_its_row() -> None:
    @ps.func(on_error="ignore")
    def find(x: int) -> int:
        return next(i for i in EIGHT if i == x and x not in (2, 5))

    df = ps.from_pydict({"x": EIGHT}).with_column("y", find(col("x")))
    assert df.to_pydict()["y"] == [0, 1, None, 3, 4, None, 6, 7]
    assert sorted(error["input"] for error in df.errors().to_pylist()) == ['{"x": 2}', '{"x": 5}']


def test_stop_iteration_names_its_row() -> None:
    @ps.func
    def find(x: int) -> int:
        return next(i for i in EIGHT if i == x and x != 3)

    with pytest.raises(UdfError, match=r"row 3 of the input \(x=3\): RuntimeError: .*StopIteration"):
        ps.from_pydict({"x": EIGHT}).select(find(col("x"))).collect()


def leave(x: int) -> int:
    if x == 3:
        sys.exit(0)
    return x


@pytest.mark.parametrize("use_process", [False, True])
def test_sys_exit_ends_a_row_and_not_the_program(use_process: bool) -> None:
    tolerant = ps.func(return_dtype=DataType.int64(), on_error="ignore", use_process=use_process)(leave)
    assert ps.from_pydict({"x": EIGHT}).select(tolerant(col("x"))).to_pydict()["x"] == [0, 1, 2, None, 4, 5, 6, 7]
    strict = ps.func(return_dtype=DataType.int64(), use_process=use_process)(leave)
    with pytest.raises(UdfError, match=r"x=3\): SystemExit"):
        ps.from_pydict({"x": EIGHT}).select(strict(col("x"))).collect()


def test_sys_exit_in_batches_and_in_building() -> None:
    df = ps.from_pydict({"x": EIGHT}).map(lambda row: {"x": leave(row["x"])}, on_error="ignore")
    assert df.to_pydict()["x"] == [0, 1, 2, 4, 5, 6, 7]
    df = ps.from_pydict({"x": EIGHT}).map_batches(
        lambda batch: {"x": [leave(x) for x in batch["x"].tolist()]}, on_error="ignore"
    )
    assert df.to_pydict()["x"] == [0, 1, 2, 4, 5, 6, 7]

    class Leaver:
        def __init__(self) -> None:
            sys.exit("no")

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return batch

    with pytest.raises(UdfError, match="SystemExit: no"):
        ps.range(2).map_batches(Leaver).collect()


def test_cancelled_error_of_the_function_itself() -> None:
    @ps.func.batch(return_dtype=DataType.int64(), on_error="ignore", batch_size=2)
    async def cancel(x: Series) -> list[int]:
        if 3 in x.to_pylist():
            raise asyncio.CancelledError
        return list(x.to_pylist())

    assert ps.from_pydict({"x": EIGHT}).select(cancel(col("x"))).to_pydict()["x"] == [0, 1, 2, None, 4, 5, 6, 7]


# --- memory that a function shares ---


def test_tensors_may_be_changed_in_place() -> None:
    table = pa.table({"t": np.arange(5.0)})
    df = ps.from_arrow(table).with_column("c", col("t"))
    changed = df.map_batches(lambda batch: {**batch, "t": batch["t"].add_(5)}, batch_format="torch")
    assert changed.to_pydict() == {"t": [5.0, 6.0, 7.0, 8.0, 9.0], "c": [0.0, 1.0, 2.0, 3.0, 4.0]}
    assert table["t"].to_pylist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_a_column_changed_through_a_tensor_in_a_process_is_what_it_was_changed_to() -> None:
    def change(batch: dict[str, Any]) -> dict[str, Any]:
        import torch

        torch.as_tensor(batch["t"]).add_(5)
        return batch

    df = ps.from_arrow(pa.table({"t": np.arange(5.0)}))
    assert df.map_batches(change, use_process=True).to_pydict() == {"t": [5.0, 6.0, 7.0, 8.0, 9.0]}


WRAPPERS = {
    "ordered dict": lambda buffer: collections.OrderedDict(y=buffer),
    "pandas": lambda buffer: pd.DataFrame({"y": buffer}, copy=False),
    "pandas series": lambda buffer: {"y": pd.Series(buffer, copy=False)},
    "torch": lambda buffer: {"y": torch.from_numpy(buffer)},
}


@pytest.mark.parametrize("kind", WRAPPERS)
@pytest.mark.parametrize("max_batch_bytes", [None, 40])
def test_a_buffer_that_is_used_again(kind: str, max_batch_bytes: int | None) -> None:
    class Model:
        def __init__(self) -> None:
            self.buffer = np.zeros(20, dtype=np.int64)

        def __call__(self, batch: dict[str, Any]) -> Any:
            num_rows = len(batch["id"])
            self.buffer[:num_rows] = batch["id"]
            return WRAPPERS[kind](self.buffer[:num_rows])

    df = ps.range(40).map_batches(Model, batch_size=10, concurrency=1, max_batch_bytes=max_batch_bytes)
    assert df.to_pydict() == {"y": list(range(40))}


@pytest.mark.parametrize("on_error", ["raise", "ignore"])
def test_a_list_that_is_used_again_in_parts_of_a_batch(on_error: Any) -> None:
    class Model:
        def __init__(self) -> None:
            self.out: list[int] = []

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            self.out[:] = batch["id"].tolist()
            return {"y": self.out}

    df = ps.range(40).map_batches(Model, batch_size=20, concurrency=1, max_batch_bytes=40, on_error=on_error)
    assert df.to_pydict() == {"y": list(range(40))}


def test_a_generator_ends_before_the_next_part_is_begun() -> None:
    class Model:
        def __init__(self) -> None:
            self.num_open = 0

        def __call__(self, batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
            self.num_open += 1
            for half in np.array_split(batch["id"], 2):
                yield {"y": half, "open": [self.num_open] * len(half)}
            self.num_open -= 1

    df = ps.range(40).map_batches(Model, batch_size=20, concurrency=1, max_batch_bytes=40)
    assert df.to_pydict() == {"y": list(range(40)), "open": [1] * 40}


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pylist", "torch"])
def test_a_retry_is_given_what_was_there(batch_format: Any) -> None:
    failed: set[int] = set()

    def once(batch: Any) -> Any:
        if batch_format == "pylist":
            for row in batch:
                row["x"] += 1
            result = {"x": [row["x"] for row in batch]}
        else:
            batch["x"] = batch["x"] + 1
            result = {"x": batch["x"]}
        if len(failed) < 2:
            failed.add(len(failed))
            raise ConnectionError("try again")
        return result

    df = ps.from_pydict({"x": [10, 20]}).map_batches(once, batch_format=batch_format, max_retries=2)
    assert df.to_pydict() == {"x": [11, 21]}


def test_a_retry_of_a_row_is_given_what_was_there() -> None:
    failed: list[int] = []

    def change(row: dict[str, Any]) -> dict[str, Any]:
        row["x"] += 1
        if not failed:
            failed.append(1)
            raise ConnectionError("try again")
        return row

    assert ps.from_pydict({"x": [10, 20]}).map(change, max_retries=1).to_pydict() == {"x": [11, 21]}


def test_what_is_masked_is_null() -> None:
    df = ps.from_pydict({"x": [1, 2, 3, 4]})
    masked = df.map_batches(lambda batch: {"x": np.ma.masked_greater(batch["x"], 2)})
    assert masked.to_pydict() == {"x": [1, 2, None, None]}


# --- moving, sharing, closing ---


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every function on threads moves at once."""
    monkeypatch.setattr(gil.GilWatch, "is_held_back", property(lambda self: True))


@pytest.mark.one_machine
@pytest.mark.usefixtures("eager")
def test_a_function_moves_and_gives_the_same() -> None:
    here = os.getpid()

    @ps.func
    def elsewhere(x: int) -> bool:
        return os.getpid() != here

    assert all(ps.range(2000).select(elsewhere(col("id"))).to_pydict()["id"])


@pytest.mark.one_machine
@pytest.mark.usefixtures("eager")
def test_a_function_that_cannot_be_sent_stays() -> None:
    lock = multiprocessing.get_context("spawn").Lock()

    @ps.func
    def locked(x: int) -> int:
        with lock:
            return x

    assert ps.range(500).select(locked(col("id"))).to_pydict() == {"id": list(range(500))}
    forced = ps.func(return_dtype=DataType.int64(), use_process=True)(lambda x: lock and x)
    with pytest.raises(UdfError, match="cannot be sent to a worker process"):
        ps.range(5).select(forced(col("id"))).collect()


class Unpackable:
    """Can be sent, and not be unpacked."""

    def __reduce__(self) -> tuple[Any, ...]:
        return refuse, ()


def refuse() -> None:
    raise RuntimeError("not here")


@pytest.mark.one_machine
@pytest.mark.usefixtures("eager")
def test_a_function_that_fails_in_processes_comes_back() -> None:
    carried = Unpackable()

    @ps.func
    def uses(x: int) -> int:
        return x if carried else -1

    assert ps.range(500).select(uses(col("id"))).to_pydict() == {"id": list(range(500))}


@pytest.mark.one_machine  # it runs in another process, on one machine
def test_a_file_in_the_current_folder_is_not_taken_for_a_module(tmp_path: Path) -> None:
    shadow, scripts = tmp_path / "shadow", tmp_path / "scripts"
    shadow.mkdir()
    scripts.mkdir()
    (shadow / "selectors.py").write_text("raise SystemExit('the wrong module')")
    (scripts / "main.py").write_text(
        "import penstock as ps\n"
        "double = ps.func(return_dtype=ps.DataType.int64(), use_process=True)(lambda x: 2 * x)\n"
        "print(ps.range(3).select(double(ps.col('id'))).to_pydict())\n"
    )
    run = subprocess.run([sys.executable, scripts / "main.py"], cwd=shadow, capture_output=True, text=True)
    assert run.stdout.strip() == "{'id': [0, 2, 4]}", run.stderr


def test_a_method_is_not_blamed_for_the_deaths_of_another() -> None:
    @ps.cls(use_process=True, max_concurrency=1)
    class Model:
        @ps.method(on_error="ignore")
        def bad(self, x: int) -> int:
            if x in (3, 6):
                os._exit(3)
            return x

        def good(self, x: int) -> int:
            threading.Event().wait(0.002)
            return x * 2

    model = Model()
    df = ps.range(8).into_batches(2).with_column("b", model.bad(col("id"))).with_column("g", model.good(col("id")))
    rows = df.to_pydict()
    assert rows["g"] == [2 * x for x in range(8)]
    assert rows["b"] == [None if x in (3, 6) else x for x in range(8)]
    assert df.errors().count_rows() == 2


def test_an_async_close_of_an_object_with_plain_methods_is_run(tmp_path: Path) -> None:
    closed = tmp_path / "closed"

    class Model:
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return batch

        async def close(self) -> None:
            await asyncio.sleep(0)
            with closed.open("a") as file:
                file.write("once")

    ps.range(3).map_batches(Model).collect()
    assert closed.read_text() == "once"


# --- limits ---


def test_a_fraction_of_errors_is_judged_at_the_end_of_few_rows() -> None:
    @ps.func(on_error="ignore", max_errors=0.1)
    def fail(x: int) -> int:
        raise ValueError("no")

    with pytest.raises(TooManyErrorsError, match="50 of 50"):
        ps.range(50).select(fail(col("id"))).collect()


def test_a_time_limit_is_for_all_that_a_generator_gives() -> None:
    def slow(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield batch
        threading.Event().wait(60)
        yield batch

    with pytest.raises(UdfError, match=r"no result within 0\.5 s"):
        ps.range(3).map_batches(slow, timeout=0.5, use_process=True).collect()


@pytest.mark.parametrize("value", ["yes", 1])
def test_use_process_is_checked(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="use_process must be True or False"):
        ps.range(3).map_batches(lambda batch: batch, use_process=value)
    with pytest.raises(InvalidArgumentError, match="use_process must be True or False"):
        ps.func(return_dtype=DataType.int64(), use_process=value)(abs)
