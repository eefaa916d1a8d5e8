"""Quick batch functions on real Ray, which run in the calls that read their rows."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
import ray

import penstock as ps
from penstock.engine.runners.ray.calls import RemadePart, unpacked_batch
from penstock.engine.runners.ray.worker import Worker
from penstock.protocols import ReadRequest

pytestmark = pytest.mark.ray

NUM_READS = 40
READ_ROWS = 16
NUM_ROWS = NUM_READS * READ_ROWS
LAST = NUM_ROWS - 3  # a row that is read once the function is known to be quick


@pytest.fixture(autouse=True)
def on_ray(ray_cluster: None) -> Iterator[None]:
    ps.set_runner_ray()
    yield
    ps.set_runner_local()


def this_call() -> str:
    return str(ray.get_runtime_context().get_task_id())


@dataclass
class WideRead:
    number: int
    num_rows: int | None = READ_ROWS
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        ids = list(range(READ_ROWS * self.number, READ_ROWS * (self.number + 1)))
        yield pa.record_batch({"id": ids, "call": [this_call()] * READ_ROWS, "wide": [bytes(100_000)] * READ_ROWS})


@dataclass
class WideSource:
    """Rows of 100 kB, so that a function takes little time for each byte."""

    name: str = "wide"
    can_filter: bool = False

    def schema(self) -> ps.Schema:
        return ps.Schema.from_pydict({"id": "int64", "call": "string", "wide": "binary"})

    def read_tasks(self, request: ReadRequest) -> Iterator[WideRead]:
        return map(WideRead, range(NUM_READS))


def with_result(function: Any) -> ps.DataFrame:
    df = ps.read_source(WideSource()).with_column("y", function(ps.col("id"), ps.col("wide")))
    return df.select("id", "call", "y")


def assert_only_last_fails(function: Any, message: str) -> None:
    df = with_result(function).collect()
    assert df.to_pydict()["y"] == [None if x == LAST else x for x in range(NUM_ROWS)]
    (error,) = df.errors().to_pylist()
    assert f'"id": {LAST}' in error["input"]
    assert message in error["message"]


def test_a_quick_function_runs_in_the_call_that_reads_its_rows() -> None:
    @ps.func.batch(return_dtype=ps.DataType.string())
    def call_of(x: ps.Series, wide: ps.Series) -> list[str]:
        return [this_call()] * len(x)

    df = with_result(call_of).collect()
    rows = df.to_pydict()
    assert rows["id"] == list(range(NUM_ROWS))
    assert sum(read == called for read, called in zip(rows["call"], rows["y"], strict=True)) >= READ_ROWS
    assert [stage.num_rows for stage in df.stats().stages] == [NUM_ROWS, NUM_ROWS]


def test_a_row_that_fails_is_one_error() -> None:
    @ps.func.batch(return_dtype=ps.DataType.int64(), on_error="log")
    def checked(x: ps.Series, wide: ps.Series) -> list[int]:
        if LAST in x.to_pylist():
            raise ValueError("a bad row")
        return x.to_pylist()

    assert_only_last_fails(checked, "a bad row")


def test_a_row_that_kills_its_worker_is_one_error() -> None:
    @ps.func.batch(return_dtype=ps.DataType.int64(), on_error="log")
    def checked(x: ps.Series, wide: ps.Series) -> list[int]:
        if LAST in x.to_pylist():
            os.kill(os.getpid(), signal.SIGKILL)
        return x.to_pylist()

    assert_only_last_fails(checked, "died")


class LengthHandler:
    """Gives each row the number of rows of its call."""

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        return pa.record_batch({"rows": [item.num_rows] * item.num_rows})


def test_rows_are_made_again_by_the_same_calls() -> None:
    worker = Worker()
    worker.open(1, cloudpickle.dumps(lambda context: LengthHandler()), 0)
    packed, _ = worker.remake(1, RemadePart(1, 4, (3, 2)), 0, ((0, 5),), pa.record_batch({"x": range(5)}))
    assert packed is not None
    assert unpacked_batch(packed).to_pydict() == {"rows": [3, 3, 2, 2]}
