"""Queries on real Ray: the same plans, the same executor, with workers in actors and data in the object store."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import re
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

import penstock as ps
from penstock.config import get_config
from penstock.engine.executor import Executor
from penstock.engine.resources import Cores
from penstock.errors import InvalidArgumentError, ReadError, UdfError, WriteError
from penstock.io.formats.parquet import ParquetEncoder, ParquetEncoding
from penstock.io.writer import FileSink
from penstock.plan.stages import Read, Stage, Transform
from penstock.protocols import ReadRequest
from penstock.runners.ray.cluster import reachable_address
from penstock.runners.ray.runner import RayRunner
from tests.plain_server import held_port

pytestmark = pytest.mark.ray

ROWS_PER_FILE = 1000
LONG_S = 600.0


@pytest.fixture
def on_ray(ray_cluster: None) -> Iterator[None]:
    ps.set_runner_ray()
    yield
    ps.set_runner_ray()  # without an address
    ps.set_runner_local()


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    """A folder of files with the numbers from 0 on in a column ``x``, in row groups that are read one by one."""
    for part in range(3):
        x = np.arange(part * ROWS_PER_FILE, (part + 1) * ROWS_PER_FILE)
        pq.write_table(pa.table({"x": x}), tmp_path / f"{part}.parquet", row_group_size=250)
    return str(tmp_path / "*.parquet")


@ps.func
def doubled(x: int) -> int:
    return 2 * x


@ps.func
def process_id(x: int) -> int:
    return os.getpid()


class AddPid:
    """Stands for a model: built once in each worker."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.pid = os.getpid()

    def __call__(self, batch: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
        return {**batch, "z": batch["y"] + self.offset, "pid": np.full(len(batch["y"]), self.pid)}


def pipeline(numbers: str) -> ps.DataFrame:
    df = ps.read_parquet(numbers).with_column("y", doubled(ps.col("x")))
    return df.map_batches(AddPid, batch_size=300, concurrency=2, fn_constructor_args=(1,))


def test_read_map_and_stateful_map_give_the_rows_of_the_local_runner_in_order(on_ray: None, numbers: str) -> None:
    result = pipeline(numbers).to_pydict()
    ps.set_runner_local()
    local = pipeline(numbers).to_pydict()
    pids = set(result.pop("pid"))
    local.pop("pid")
    assert result == local
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids
    assert ended(pids)


def test_write_leaves_the_rows_of_all_workers(on_ray: None, numbers: str, tmp_path: Path) -> None:
    written = pipeline(numbers).write_parquet(str(tmp_path / "out")).to_pydict()
    assert sum(written["rows"]) == 3 * ROWS_PER_FILE
    table = pq.read_table(tmp_path / "out").sort_by("x")
    assert table["z"].to_pylist() == [2 * x + 1 for x in range(3 * ROWS_PER_FILE)]


def test_relations_run_in_actors_and_leave_no_files(on_ray: None, numbers: str, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with ps.config(temp_dir=temporary):
        rows = ps.read_parquet(numbers).with_column("k", ps.col("x") % 3)
        names = ps.from_pydict({"k": [0, 1], "name": ["zero", "one"]})
        named = rows.join(names, on="k").with_column("x", doubled(ps.col("x")))
        result = named.groupby("name").agg(ps.col("x").max(), ps.col("x").count().alias("n")).sort("name")
        assert result.to_pydict() == {"name": ["one", "zero"], "x": [2 * 2998, 2 * 2997], "n": [1000, 1000]}
        assert rows.sort("x", desc=True).select("x").limit(3).to_pydict() == {"x": [2999, 2998, 2997]}
    assert not any(temporary.iterdir())


def test_async_functions_wait_together(on_ray: None) -> None:
    @ps.cls
    class Meeting:
        def __init__(self) -> None:
            self.barrier = asyncio.Barrier(20)

        async def join(self, x: int) -> int:
            """Returns only once all have come, so it would hang if rows were called one after another."""
            await self.barrier.wait()
            return -x

    met = ps.from_pydict({"x": list(range(20))}).select(Meeting().join(ps.col("x")))
    assert met.to_pydict() == {"x": [-x for x in range(20)]}


def test_images_are_decoded_in_workers_and_bad_ones_listed(on_ray: None, tmp_path: Path) -> None:
    from tests.media.images.samples import jpeg, picture

    for number in range(5):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(picture()))
    images = ps.read_images(tmp_path, size=(8, 8)).to_pydict()["image"]
    assert [image.shape for image in images] == [(8, 8, 3)] * 5
    data = [jpeg(picture()), b"junk"]
    decoded = ps.from_pydict({"b": data}).select(ps.col("b").decode_image("null").resize(8, 8)).collect()
    assert [image is None for image in decoded.to_pydict()["b"]] == [False, True]
    assert "not an image" in decoded.errors().to_pydict()["message"][0]


def test_limit_stops_work_that_is_under_way(on_ray: None, tmp_path: Path) -> None:
    flag = tmp_path / "second batch is under way"

    def hang_but_first(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["id"][0] != 0:
            written = flag.with_suffix(".part")
            written.write_text(str(os.getpid()))
            written.rename(flag)
            time.sleep(LONG_S)
        while not flag.exists():
            time.sleep(0.01)
        return batch

    first = ps.range(10).map_batches(hang_but_first, batch_size=1, concurrency=2).limit(1)
    assert first.to_pydict() == {"id": [0]}
    assert ended([int(flag.read_text())])


def test_an_error_surfaces_as_itself_with_the_workers_traceback(on_ray: None) -> None:
    @ps.func
    def fussy(x: int) -> int:
        if x == 2:
            raise ValueError("two is too much")
        return x

    with pytest.raises(UdfError, match=r"x=2.*two is too much") as caught:
        ps.from_pydict({"x": [1, 2, 3]}).select(fussy(ps.col("x"))).collect()
    assert isinstance(caught.value.__cause__, ValueError)
    assert "in fussy" in "\n".join(caught.value.__notes__)


def test_a_function_that_cannot_be_pickled_is_named(on_ray: None) -> None:
    lock = threading.Lock()

    @ps.func
    def locked(x: int) -> int:
        with lock:
            return x

    with pytest.raises(UdfError, match=r"'locked' cannot be sent to a Ray worker .*cannot pickle '_thread.lock'"):
        ps.range(2).select(locked(ps.col("id"))).collect()


def restored(pid: int) -> Exception:
    if os.getpid() != pid:
        raise RuntimeError("this error stays at home")
    return HomeboundError()


class HomeboundError(Exception):
    def __reduce__(self) -> Any:
        return restored, (os.getpid(),)


@dataclass
class OddTask:
    what: str
    num_rows: int | None = None
    nbytes: int | None = None

    def read(self) -> Iterator[Any]:
        if self.what == "error":
            raise HomeboundError
        yield pa.table({"a": [1]}) if self.what == "table" else {"a": [1]}


@dataclass
class OddSource:
    what: str
    name: str = "odd"
    can_filter: bool = False

    def schema(self) -> ps.Schema:
        return ps.Schema.from_pydict({"a": "int64"})

    def read_tasks(self, request: ReadRequest) -> Iterator[OddTask]:
        yield OddTask(self.what)


def test_whatever_goes_wrong_with_an_answer_ends_the_query(on_ray: None) -> None:
    assert ps.read_source(OddSource("table")).to_pydict() == {"a": [1]}
    with pytest.raises(ReadError, match=r"Source 'odd': read.. of a task yielded builtins.dict"):
        ps.read_source(OddSource("dict")).collect()
    with pytest.raises(RuntimeError, match="this error stays at home"):
        ps.read_source(OddSource("error")).collect()


def test_ray_client_is_refused() -> None:
    ps.set_runner_ray("ray://127.0.0.1:10001")
    try:
        with pytest.raises(InvalidArgumentError, match=r"cannot use Ray Client .ray://127.0.0.1:10001.*ray job submit"):
            ps.range(1).to_pydict()
    finally:
        ps.set_runner_ray(None)
        ps.set_runner_local()


def test_columns_without_rows_pass_a_function(on_ray: None) -> None:
    df = ps.range(3).map_batches(lambda batch: pa.table({"x": pa.array([], pa.int64())}))
    assert df.with_column("y", doubled(ps.col("x"))).schema.names == ["x", "y"]


def test_a_forked_process_is_told_how_to_start_instead(on_ray: None) -> None:
    assert ps.range(3).to_pydict() == {"id": [0, 1, 2]}
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, context) as processes, pytest.raises(InvalidArgumentError, match="spawn"):
        processes.submit(ps.range(3).count_rows).result()


def test_a_cluster_that_does_not_answer_is_an_error_or_passed_over(
    on_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = ray.get_runtime_context().gcs_address
    assert reachable_address(address) == address
    with held_port() as port:
        dead = f"127.0.0.1:{port}"
        with pytest.raises(InvalidArgumentError, match=f"No Ray cluster answers at {dead}"):
            reachable_address(dead)
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setattr(ray._private.utils, "read_ray_address", lambda temp_dir=None: dead)  # one that was killed
        assert reachable_address("") == "local"
    with socket.create_server(("127.0.0.2", 0)) as redis:  # another program got the port of the cluster

        def answer_once() -> None:
            with redis.accept()[0] as connection:
                connection.sendall(b"-ERR unknown command\r\n")

        answer = threading.Thread(target=answer_once)
        answer.start()
        taken = f"127.0.0.2:{redis.getsockname()[1]}"
        with pytest.raises(InvalidArgumentError, match=f"No Ray cluster answers at {taken}"):
            reachable_address(taken)
        answer.join()


# It prints again until the test has seen it: Ray drops what a worker prints before the driver listens.
JOB = """
import os, ray, select, sys, penstock as ps

@ps.func
def shown(x: int) -> int:
    print("row", x)
    return x

for _ in range(60):
    print(ps.range(1).select(shown(ps.col("id"))).to_pydict(), ray.get_runtime_context().gcs_address, flush=True)
    if select.select([sys.stdin], [], [], 1)[0]:
        break
"""


def test_the_script_of_a_job_uses_its_cluster_and_prints_what_workers_print(on_ray: None, tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    settings = {"PENSTOCK_RUNNER": "ray", "RAY_ADDRESS": address, "PYTHONPATH": os.pathsep.join(sys.path)}
    expected = {f"{{'id': [0]}} {address}", "(Worker pid=N) row 0"}
    printed = []
    with subprocess.Popen(
        [sys.executable, "-c", JOB],
        cwd=tmp_path,
        env={**os.environ, **settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        for line in job.stdout:
            printed.append(re.sub(r"\x1b\[\d*m|, ip=[\d.]+", "", re.sub(r"pid=\d+", "pid=N", line)).strip())
            if expected <= set(printed):
                job.stdin.close()
                break
    assert expected <= set(printed), printed


def test_all_stages_and_the_next_query_share_one_worker_for_each_core(on_ray: None, tmp_path: Path) -> None:
    def add_pid(batch: dict[str, Any]) -> dict[str, Any]:
        return {"x": batch["x"][:1], "pids": [[*batch.get("pids", [[]])[0], os.getpid()]]}

    log = tmp_path / "log"
    for _ in range(2):
        df = ps.read_source(CountingSource(str(log), 3)).map_batches(add_pid).map_batches(add_pid)
        found = df.to_pydict()["pids"]
    pids = {int(line) for line in log.read_text().splitlines()}
    assert len(pids.union(*found)) <= 2


def test_methods_of_one_object_hold_its_resources_once(on_ray: None) -> None:
    @ps.cls(cpus=2)  # all that the cluster has
    class Counter:
        def __init__(self) -> None:
            self.num_calls = 0

        def one(self, x: int) -> int:
            self.num_calls += 1
            return self.num_calls

        def two(self, x: int) -> int:
            self.num_calls += 1
            return self.num_calls

    counter = Counter()
    found = ps.range(3).with_column("a", counter.one(ps.col("id"))).with_column("b", counter.two(ps.col("a")))
    assert found.to_pydict() == {"id": [0, 1, 2], "a": [1, 2, 3], "b": [4, 5, 6]}


def test_async_functions_run_in_the_drivers_process_unless_they_ask_for_a_process(on_ray: None) -> None:
    @ps.func
    async def here(x: int) -> AsyncIterator[int]:
        yield os.getpid()

    @ps.func(use_process=True)
    async def elsewhere(x: int) -> int:
        return os.getpid()

    found = ps.range(1).select(a=here(ps.col("id")), b=elsewhere(ps.col("id"))).to_pydict()
    assert found["a"] == [os.getpid()] != found["b"]


def ended(pids: Iterable[int]) -> bool:
    """Wait for processes to end; a signal has been sent to them already."""
    processes = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(pid))
    _, alive = psutil.wait_procs(processes, timeout=60)
    return not alive


# --- the seam: what the executor and the driver see ---


@dataclass
class CountingTask:
    """Reads ``num_batches`` batches of a megabyte, with a line in ``log`` for each: its process."""

    log: str
    num_batches: int
    num_rows: int | None = None
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        for number in range(self.num_batches):
            with open(self.log, "a") as log:
                log.write(f"{os.getpid()}\n")
            yield pa.record_batch({"x": np.full(2**17, number)})


@dataclass
class CountingSource:
    log: str
    num_batches: int
    name: str = "counting"
    can_filter: bool = False

    def schema(self) -> ps.Schema:
        return ps.Schema.from_arrow(pa.schema({"x": pa.int64()}))

    def read_tasks(self, request: ReadRequest) -> Iterator[CountingTask]:
        yield CountingTask(self.log, self.num_batches)


def test_the_driver_holds_references_and_a_task_rests_between_outputs(ray_cluster: None, tmp_path: Path) -> None:
    log = tmp_path / "log"
    stages = (
        Stage("read", Read(CountingSource(str(log), 100), ReadRequest())),
        Stage("pass on", Transform(()), inputs=(0,)),
    )
    runner = RayRunner()
    with runner.open(get_config(), stages) as workplace:
        executor = Executor(stages, workplace.make_pool, memory_bytes=4 * 2**20, cores=Cores(2))
        with closing(executor.run()) as bundles:
            first = next(bundles)
            second = next(bundles)
            assert isinstance(first.handle.ref, ray.ObjectRef)
            assert first.nbytes == 8 * first.num_rows > 0
            assert len(log.read_text().splitlines()) < 20
    # The workers are gone; the data is not, because it belongs to the driver.
    assert runner.fetch(second.slice(5, 3)).to_pydict() == {"x": [0, 0, 0]}  # cut from the first batch


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray Data warns of its own settings
def test_datasets_of_ray_are_read(on_ray: None) -> None:
    import ray.data

    dataset = ray.data.from_arrow([pa.table({"a": [1, 2]}), pa.table({"a": [3]})])
    assert ps.from_ray_dataset(dataset).where(ps.col("a") > 1).to_pydict() == {"a": [2, 3]}
    ps.set_runner_local()
    assert ps.from_ray_dataset(dataset).to_pydict() == {"a": [1, 2, 3]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_results_become_datasets_of_ray(on_ray: None) -> None:
    numbers = ps.range(6).into_batches(2).where(ps.col("id") != 1)
    blocks = ray.get(numbers.to_ray_dataset().to_arrow_refs())
    assert [block.to_pydict()["id"] for block in blocks] == [[0, 2], [3, 4], [5]]
    assert numbers.where(ps.col("id") > 9).to_ray_dataset().schema().names == ["id"]
    ps.set_runner_local()
    assert len(numbers.to_ray_dataset().to_arrow_refs()) == 3


def test_tables_are_written_by_actors(on_ray: None, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'numbers.db'}"
    assert ps.range(5000).write_sql("numbers", url).to_pydict() == {"table": ["numbers"], "rows": [5000]}
    found = ps.read_sql("SELECT * FROM numbers", url, partition_col="id", num_partitions=3)
    found.write_lance(tmp_path / "numbers.lance")
    assert sorted(ps.read_lance(tmp_path / "numbers.lance").to_pydict()["id"]) == list(range(5000))


def test_skipped_files_are_reported_by_the_workers(on_ray: None, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"no parquet")
    df = ps.read_parquet(str(tmp_path), ignore_corrupt_files=True).where(ps.col("x") > 0).collect()
    assert df.to_pydict() == {"x": [1]}
    [(path, reason, has_rows)] = df.stats().skipped_files
    assert (path, has_rows) == (f"{tmp_path}/b.parquet", False)
    assert "b.parquet" in reason


def test_files_are_written_in_the_order_of_the_rows(on_ray: None, tmp_path: Path) -> None:
    df = ps.range(400_000).sort("id", desc=True).map_batches(lambda batch: batch, batch_size=10_000)
    df.write_parquet(str(tmp_path / "out"), rows_per_file=30_000)
    assert ps.read_parquet(str(tmp_path / "out")).to_pydict()["id"] == list(range(399_999, -1, -1))


def test_large_outputs_of_a_function_are_files_in_the_order_of_the_rows(on_ray: None, tmp_path: Path) -> None:
    @ps.func.batch(return_dtype=ps.DataType.int64(), batch_size=200_000)
    def negative(x: ps.Series) -> np.ndarray:
        return -x.to_numpy()

    with ps.config(memory_limit="64MB"):  # the write gathers 4 MB, and the worker of the function writes its 3.2 MB
        df = ps.range(800_000).with_column("y", negative(ps.col("id")))
        df.write_parquet(str(tmp_path / "out"))
    found = ps.read_parquet(str(tmp_path / "out")).to_arrow()
    assert found["id"].to_numpy().tolist() == list(range(800_000))
    assert found["y"].to_numpy().tolist() == list(range(0, -800_000, -1))
    assert len(list((tmp_path / "out").iterdir())) == 4


class FullDisk(ParquetEncoding):
    """Stands for a disk without room for another file."""

    def open(self, path: str, schema: pa.Schema) -> ParquetEncoder:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


@pytest.mark.parametrize("on_error", ["raise", "ignore"])
def test_a_write_that_fails_is_no_failure_of_the_function(on_ray: None, tmp_path: Path, on_error: Any) -> None:
    @ps.func.batch(return_dtype=ps.DataType.binary(), batch_size=4, on_error=on_error)
    def megabytes(x: ps.Series) -> list[bytes]:
        return [bytes(2**20)] * len(x)

    with ps.config(memory_limit="64MB"), pytest.raises(WriteError, match="No space left"):
        ps.range(8).with_column("y", megabytes(ps.col("id"))).write_sink(FileSink(str(tmp_path / "out"), FullDisk()))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", socket.gethostname()])
def test_the_cluster_may_be_named_by_any_address_of_its_host(on_ray: None, host: str) -> None:
    port = ray.get_runtime_context().gcs_address.rpartition(":")[2]
    ps.set_runner_ray(f"{host}:{port}")
    assert ps.range(3).to_pydict() == {"id": [0, 1, 2]}


def test_another_cluster_than_the_connected_one_is_refused(on_ray: None) -> None:
    ps.set_runner_ray("127.0.0.1:1")
    with pytest.raises(InvalidArgumentError, match=r"is connected to Ray at .* and cannot use '127.0.0.1:1' as well"):
        ps.range(3).collect()


def test_the_example_for_clusters(on_ray: None, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).parents[3] / "examples" / "on_ray.py"), run_name="__main__")
    assert "ray runner, worker processes: " in capsys.readouterr().out
