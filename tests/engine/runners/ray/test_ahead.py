"""Quick batch functions on real Ray, which run in the calls that read their rows."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
import ray

import penstock as ps
from penstock.engine.runners.ray.calls import RemadePart, unpacked_batch
from penstock.engine.runners.ray.worker import Worker
from penstock.io.formats.parquet import ParquetEncoder, ParquetEncoding
from penstock.io.writer import FileSink
from penstock.protocols import ReadRequest
from tests.engine.runners.ray.deaths import die_once

pytestmark = pytest.mark.ray

NUM_READS = 40
READ_ROWS = 32
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


@dataclass(frozen=True)
class NotedEncoding(ParquetEncoding):
    """Notes the call that writes each file."""

    log: str = ""

    def open(self, path: str, schema: pa.Schema) -> ParquetEncoder:
        with open(self.log, "a") as file:
            file.write(f"{this_call()}\n")
        return super().open(path, schema)


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_output_is_written_in_the_call_that_makes_it(tmp_path: Path, is_killed: bool) -> None:
    log, flag, out = tmp_path / "log", tmp_path / "flag", tmp_path / "out"

    @ps.func.batch(return_dtype=ps.DataType.string())
    def call_of(x: ps.Series, wide: ps.Series) -> list[str]:
        if is_killed and LAST in x.to_pylist():
            die_once(str(flag))
        return [this_call()] * len(x)

    df = ps.read_source(WideSource()).with_column("y", call_of(ps.col("id"), ps.col("wide")))
    df.write_sink(FileSink(str(out), NotedEncoding(log=str(log))))
    rows = ps.read_parquet(str(out)).sort("id").to_pydict()
    assert rows["id"] == list(range(NUM_ROWS))
    assert set(rows["y"]) & set(log.read_text().split())
    assert flag.exists() == is_killed


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
