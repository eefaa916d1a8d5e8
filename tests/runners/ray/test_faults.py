"""Queries on real Ray whose workers are killed: exact output, and a row that kills its worker is one error."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray

import penstock as ps
from penstock.ai.provider import Embedder, Model, ModelTask
from penstock.errors import QueryStalledError, UdfError, WorkerDiedError
from penstock.expr.udf import Resources
from penstock.functions import embed_text
from penstock.io.formats.parquet import ParquetEncoder, ParquetEncoding
from penstock.io.tables.huggingface import HubSink, hub_sink
from penstock.io.tables.lance import LanceSink, lance_sink
from penstock.io.tables.sql.sink import SqlSink, sql_sink
from penstock.io.tables.turbopuffer import TurbopufferSink, turbopuffer_sink
from penstock.io.writer import FileSink
from penstock.protocols import ReadRequest, Writer
from penstock.runners.ray.cluster import Cluster
from penstock.runners.ray.stored import Recipe, StoredBatch, TaskInput, has_restored
from penstock.runners.ray.worker import packed_batch
from tests.io.tables.hub import running_hub
from tests.io.tables.postgres import running_server
from tests.io.tables.test_turbopuffer import running_turbopuffer

pytestmark = pytest.mark.ray

NUM_ROWS = 40
SCHEMA = ps.Schema.from_pydict({"id": "int64"})


@pytest.fixture(autouse=True)
def on_ray(ray_cluster: None) -> Iterator[None]:
    ps.set_runner_ray()
    yield
    ps.set_runner_local()


def die_once(flag: str) -> None:
    """Kill this process, unless a file says that it was done before."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class TimesTen:
    """Stands for a model whose worker dies once while it loads."""

    def __init__(self, flag: str) -> None:
        die_once(flag)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"], "y": batch["id"] * 10}


def by_function(df: ps.DataFrame, flag: str) -> ps.DataFrame:
    @ps.func
    def ten_times(x: int) -> int:
        if x == 25:
            die_once(flag)
        return x * 10

    return df.with_column("y", ten_times(ps.col("id")))


def by_async_function(df: ps.DataFrame, flag: str) -> ps.DataFrame:
    @ps.func(use_process=True)
    async def ten_times(x: int) -> int:
        if x == 25:
            die_once(flag)
        return x * 10

    return df.with_column("y", ten_times(ps.col("id")))


def by_generator(df: ps.DataFrame, flag: str) -> ps.DataFrame:
    def ten_times(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for number in batch["id"].tolist():
            if number == 25:
                die_once(flag)
            yield {"id": [number], "y": [number * 10]}

    return df.map_batches(ten_times, batch_size=20)


def by_model_that_fails_to_start(df: ps.DataFrame, flag: str) -> ps.DataFrame:
    return df.map_batches(TimesTen, batch_size=8, fn_constructor_args=(flag,))


@pytest.mark.parametrize("times_ten", [by_function, by_async_function, by_generator, by_model_that_fails_to_start])
def test_a_worker_that_is_killed_is_replaced(times_ten: Any, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    rows = times_ten(ps.range(NUM_ROWS), str(flag)).to_pydict()
    assert rows == {"id": list(range(NUM_ROWS)), "y": [10 * x for x in range(NUM_ROWS)]}
    assert flag.exists()


@dataclass
class DeadlyRead:
    """Reads four batches; the worker is killed once before the third."""

    flag: str
    num_rows: int | None = None
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        for number in range(4):
            if number == 2:
                die_once(self.flag)
            yield pa.record_batch({"id": [2 * number, 2 * number + 1]})


@dataclass
class DeadlySource:
    flag: str
    name: str = "deadly"
    can_filter: bool = False

    def schema(self) -> ps.Schema:
        return ps.Schema.from_pydict({"id": "int64"})

    def read_tasks(self, request: ReadRequest) -> Iterator[DeadlyRead]:
        yield DeadlyRead(self.flag)


def test_a_read_that_is_killed_gives_each_row_once(tmp_path: Path) -> None:
    source = DeadlySource(str(tmp_path / "flag"))
    assert ps.read_source(source).to_pydict() == {"id": list(range(8))}


@dataclass(frozen=True)
class DeadlyEncoding(ParquetEncoding):
    """Kills the writer once, after it has written a part of the file with this number."""

    flag: str = ""
    number: int = 1

    def open(self, path: str, schema: pa.Schema) -> ParquetEncoder:
        encoder = super().open(path, schema)
        encoder.write(pa.table({"id": [-1]}))
        with open(f"{self.flag}.files", "a") as file:
            file.write(".")
            is_deadly = file.tell() >= self.number
        if is_deadly:
            die_once(self.flag)
        encoder.close()
        return super().open(path, schema)


def test_a_writer_that_is_killed_writes_its_part_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ps.range(NUM_ROWS).write_sink(FileSink(str(out), DeadlyEncoding(flag=str(tmp_path / "flag"))))
    assert ps.read_parquet(str(out)).to_pydict() == {"id": list(range(NUM_ROWS))}
    assert len(list(out.iterdir())) == 1


@ps.func.batch(return_dtype=ps.DataType.binary(), batch_size=4, on_error="log")
def megabytes(x: ps.Series, deadly: int) -> list[bytes]:
    """Return outputs so large that the worker of the function writes them."""
    if deadly in x.to_pylist():
        os.kill(os.getpid(), signal.SIGKILL)
    return [bytes([number]) * 2**20 for number in x.to_pylist()]


@dataclass(frozen=True)
class KillsWriterOnce(ParquetEncoding):
    """Kills the worker once, before it writes a file."""

    flag: str = ""

    def open(self, path: str, schema: pa.Schema) -> ParquetEncoder:
        die_once(self.flag)
        return super().open(path, schema)


def test_a_function_that_is_killed_while_it_writes_its_output_is_called_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with ps.config(memory_limit="64MB"):
        df = ps.range(16).with_column("y", megabytes(ps.col("id"), -1))
        df.write_sink(FileSink(str(out), KillsWriterOnce(flag=str(tmp_path / "flag"))))
    assert (tmp_path / "flag").exists()
    assert ps.read_parquet(str(out)).to_pydict() == {
        "id": list(range(16)),
        "y": [bytes([n]) * 2**20 for n in range(16)],
    }


def test_a_row_that_kills_its_worker_is_one_error_in_outputs_that_are_written(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    with ps.config(memory_limit="64MB"):
        ps.range(16).with_column("y", megabytes(ps.col("id"), 6)).write_parquet(out)
    found = ps.read_parquet(out).to_pydict()
    assert found["id"] == list(range(16))
    assert [row for row, value in enumerate(found["y"]) if value != bytes([row]) * 2**20] == [6]
    assert found["y"][6] is None
    assert ps.read_parquet(f"{out}/_errors/*.parquet").to_pydict()["error_type"] == [WorkerDiedError.__name__]


class DeadlyWriter:
    """Writes with the writer of a table; the worker is killed once after a part is staged."""

    def __init__(self, writer: Writer, flag: str) -> None:
        self.write, self.close = writer.write, writer.close
        self._writer = writer
        self._flag = flag

    def finish(self) -> Iterable[dict[str, Any]] | None:
        records = self._writer.finish()
        die_once(self._flag)
        return records


class Deadly:
    """Kills the worker once after a part is staged. A base class of sinks."""

    flag: str

    def open_part(self, first_row: int) -> Writer:
        return DeadlyWriter(super().open_part(first_row), self.flag)  # type: ignore[misc]


@dataclass(frozen=True)
class DeadlySqlSink(Deadly, SqlSink):
    flag: str = ""


@dataclass(frozen=True)
class DeadlyLanceSink(Deadly, LanceSink):
    flag: str = ""


@dataclass(frozen=True)
class DeadlyHubSink(Deadly, HubSink):
    flag: str = ""


@dataclass(frozen=True)
class DeadlyTurbopufferSink(Deadly, TurbopufferSink):
    flag: str = ""


def write_with_a_death(deadly: type[Any], plain: Any, flag: Path) -> dict[str, list[Any]]:
    """Write rows to a sink of the class ``deadly`` that equals ``plain``; return the table of the write."""
    sink = deadly(**{each.name: getattr(plain, each.name) for each in fields(plain)}, flag=str(flag))
    written = ps.range(NUM_ROWS).write_sink(sink).to_pydict()
    assert flag.exists()
    return written


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_a_writer_into_a_database_that_is_killed_writes_its_part_once(kind: str, tmp_path: Path) -> None:
    with running_server() if kind == "postgresql" else nullcontext(f"sqlite:///{tmp_path / 'test.db'}") as url:
        plain = sql_sink("numbers", url, mode="create", schema=SCHEMA)
        assert write_with_a_death(DeadlySqlSink, plain, tmp_path / "flag")["rows"] == [NUM_ROWS]
        assert ps.read_sql("SELECT id FROM numbers ORDER BY id", url).to_pydict() == {"id": list(range(NUM_ROWS))}
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        assert kind == "sqlite" or ps.read_sql(tables, url).to_pydict() == {"tablename": ["numbers"]}


def test_a_writer_into_lance_that_is_killed_writes_its_part_once(tmp_path: Path) -> None:
    table = tmp_path / "numbers.lance"
    write_with_a_death(DeadlyLanceSink, lance_sink(table, mode="create", schema=SCHEMA), tmp_path / "flag")
    assert ps.read_lance(table).to_pydict() == {"id": list(range(NUM_ROWS))}


def test_a_writer_to_hugging_face_that_is_killed_writes_its_part_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # the tests of the seeds set it
    with running_hub() as hub:
        options = {"endpoint": hub.url, "token": "hf_x"}
        plain = hub_sink("me/numbers", schema=SCHEMA, storage_options=options)
        assert write_with_a_death(DeadlyHubSink, plain, tmp_path / "flag")["rows"] == [NUM_ROWS]
        ps.set_runner_local()
        found = ps.read_huggingface("me/numbers", storage_options=options).to_pydict()
    assert found == {"id": list(range(NUM_ROWS))}
    assert len(hub.commits) == 1


def test_a_writer_to_turbopuffer_that_is_killed_leaves_each_document_once(tmp_path: Path) -> None:
    with running_turbopuffer() as server:
        plain = turbopuffer_sink("numbers", schema=SCHEMA, api_key="x", client_kwargs={"base_url": server.url})
        assert write_with_a_death(DeadlyTurbopufferSink, plain, tmp_path / "flag")["rows"] == [NUM_ROWS]
    assert server.documents == {"numbers": {number: {"id": number} for number in range(NUM_ROWS)}}
    assert len(server.requests) == 2  # the part was written twice


@pytest.mark.parametrize("is_async", [False, True])
def test_a_row_that_kills_its_worker_is_one_error(is_async: bool) -> None:
    if is_async:

        @ps.func(on_error="log", use_process=True)
        async def deadly(x: int) -> int:
            if x == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return -x

    else:

        @ps.func(on_error="log")
        def deadly(x: int) -> int:
            if x == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return -x

    df = ps.range(2).select(deadly(ps.col("id"))).collect()
    assert df.to_pydict() == {"id": [0, None]}
    (error,) = df.errors().to_pylist()
    assert error["error_type"] == WorkerDiedError.__name__, error


class LoadsOnce(Embedder):
    """A model for eight tasks at once, whose worker dies once while it loads."""

    dimensions = 1
    resources = Resources(max_workers=1, tasks_per_worker=8)
    batch_size = 1

    def __init__(self, flag: str) -> None:
        self.flag = flag

    def load(self) -> None:
        die_once(self.flag)

    def embed(self, inputs: Sequence[Any]) -> Any:
        return [[float(value)] for value in inputs]


class LoadsOnceProvider(ps.Provider):
    name = "loads-once"

    def __init__(self, flag: str) -> None:
        self.flag = flag

    def model(self, task: ModelTask) -> Model:
        return LoadsOnce(self.flag)


def test_a_worker_that_dies_while_several_tasks_wait_for_it_counts_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flag = tmp_path / "flag"
    vectors = embed_text(ps.col("t"), provider=LoadsOnceProvider(str(flag)))
    df = ps.from_pydict({"t": [str(number) for number in range(NUM_ROWS)]}).into_batches(1)
    assert [vector[0] for vector in df.select(vectors).to_pydict()["t"]] == list(range(NUM_ROWS))
    assert flag.exists()
    (line,) = [record.getMessage() for record in caplog.records if "died" in record.getMessage()]
    assert "a Ray worker died while it was starting or loading" in line
    assert "\n" not in line


@ps.cls(on_error="log", use_process=True)
class AsyncTenTimes:
    def __init__(self, folder: str, num_deaths: int) -> None:
        for number in range(num_deaths):
            die_once(f"{folder}/{number}")

    async def __call__(self, x: int) -> int:
        return 10 * x


def deaths_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "died" in record.getMessage()]


def test_an_async_class_that_dies_while_it_loads_is_loaded_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ten_times = AsyncTenTimes(str(tmp_path), 3)
    df = ps.range(NUM_ROWS).into_batches(1).select(ten_times(ps.col("id"))).collect()
    assert df.to_pydict() == {"id": [10 * x for x in range(NUM_ROWS)]}
    assert df.errors().count_rows() == 0
    lines = deaths_in(caplog)
    assert len(lines) == 3
    assert all("a Ray worker died while it was starting or loading" in line for line in lines)


def test_the_thread_that_watches_the_nodes_survives_an_error() -> None:
    cluster, is_called = Cluster(lambda node: {}), threading.Event()

    def fails() -> None:
        raise ray.exceptions.RpcError("the GCS is away", 14)

    cluster.on_poll(fails)
    cluster.on_poll(is_called.set)
    cluster.start()
    try:
        for _ in range(2):
            is_called.wait()
            is_called.clear()
    finally:
        cluster.close()


def test_a_model_that_never_starts_ends_the_query() -> None:
    class Deadly:
        def __init__(self) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return batch

    with pytest.raises(
        WorkerDiedError, match="map_batches Deadly: 4 Ray workers in a row died while they were starting or loading"
    ):
        ps.range(3).map_batches(Deadly).collect()


class LoadsSometimes:
    """Stands for a model. The first ``num_failures`` workers cannot load it, or, if that is None, all others: then the
    first works once ``num_others`` have tried.
    """

    def __init__(self, folder: str, is_deadly: bool, num_failures: int | None, num_others: int = 0) -> None:
        self._others, self._num_others = Path(folder), num_others
        number = next(number for number in itertools.count() if self._takes(number))
        if number > 0 if num_failures is None else number < num_failures:
            if is_deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError("the disk is full")

    def _takes(self, number: int) -> bool:
        try:
            (self._others / str(number)).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        deadline = time.monotonic() + 120
        while len(list(self._others.iterdir())) <= self._num_others:
            assert time.monotonic() < deadline, list(self._others.iterdir())
            time.sleep(0.02)
        return {"id": batch["id"]}


@pytest.mark.parametrize(("is_deadly", "num_others"), [(False, 2), (True, 4)])
def test_a_class_that_other_workers_cannot_load_runs_in_the_first(
    is_deadly: bool, num_others: int, tmp_path: Path
) -> None:
    arguments = str(tmp_path), is_deadly, None, num_others
    df = ps.range(NUM_ROWS).map_batches(LoadsSometimes, batch_size=4, concurrency=2, fn_constructor_args=arguments)
    assert df.to_pydict() == {"id": list(range(NUM_ROWS))}


def test_a_class_that_raises_once_while_it_loads_is_loaded_again(tmp_path: Path) -> None:
    df = ps.range(NUM_ROWS).map_batches(LoadsSometimes, fn_constructor_args=(str(tmp_path), False, 1))
    assert df.to_pydict() == {"id": list(range(NUM_ROWS))}


def test_a_class_that_always_raises_while_it_loads_ends_the_query(tmp_path: Path) -> None:
    df = ps.range(NUM_ROWS).map_batches(
        LoadsSometimes, batch_size=4, concurrency=3, fn_constructor_args=(str(tmp_path), False, 10**6)
    )
    with pytest.raises(UdfError, match=r"LoadsSometimes\(\) failed .*the disk is full"):
        df.collect()


def test_a_query_without_progress_ends_with_the_place_of_its_tasks() -> None:
    @ps.func(max_concurrency=1)
    def waiting(x: int) -> int:
        time.sleep(600)
        return x

    place = r"(pid \d+ on [\d.]+|a worker that has not started)"  # as a busy machine takes its time
    with ps.config(stall_timeout=3), pytest.raises(QueryStalledError, match=f"1 running tasks; rows from 0 in {place}"):
        ps.range(3).select(waiting(ps.col("id"))).collect()


def test_a_batch_that_holds_the_death_of_its_task_is_made_again() -> None:
    rows = pa.record_batch({"x": [1, 2, 3]})

    class Again:
        def remake(self, recipe: Recipe) -> Any:
            return ray.put(packed_batch(rows))

    def stored(ref: Any) -> StoredBatch:
        return StoredBatch(ref, Recipe(Again(), TaskInput(0, (), []), 0, rows.num_rows))

    died = ray.remote(max_retries=0)(lambda: os.kill(os.getpid(), signal.SIGKILL)).remote()
    with pytest.raises(ray.exceptions.RayError) as failure:
        ray.get(ray.remote(lambda batch: None).remote(died))
    argument = stored(died)
    assert has_restored([argument], [died], failure.value)
    assert [each.fetch() for each in (argument, stored(died))] == [rows, rows]


def test_more_data_than_the_object_store_holds_flows_through() -> None:
    @ps.func
    def inflated(x: int) -> bytes:
        return bytes(5_000_000 + x)

    @ps.func.batch(return_dtype=ps.DataType.int64(), batch_size=8)
    def size(blobs: ps.Series) -> list[int]:
        return [len(blob) for blob in blobs.to_pylist()]

    sizes = ps.range(25).select(size(inflated(ps.col("id"))).alias("size")).to_pydict()["size"]
    assert sizes == [5_000_000 + x for x in range(25)]  # 125 MB; the store has 100 MB


def test_an_async_generator_goes_on_after_the_rows_that_came_before_a_death(tmp_path: Path) -> None:
    @ps.func(use_process=True)
    async def count(start: int) -> AsyncIterator[int]:
        for number in range(200_000):
            if number == 150_000 and not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                os._exit(1)
            yield start + number

    rows = ps.range(1).select(count(ps.col("id")).alias("n")).to_pydict()
    assert (tmp_path / "died").exists()
    assert rows == {"n": list(range(200_000))}
