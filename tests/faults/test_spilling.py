"""Relations over more rows than fit in memory keep to the budget, and leave nothing in ``temp_dir``."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import WriteError
from penstock.relational import stream
from tests.faults.process_memory import PeakMemory
from tests.faults.spilling import BATCH_ROWS, PIPELINES, ROW_NBYTES, RandomRows

BUDGET = 100 * 10**6
MOST = BUDGET * 5 // 4
INTERPRETER = 220 * 10**6  # with its libraries, DuckDB and its threads among them; not in the small budget
ROOT = Path(__file__).parents[2]


@contextmanager
def running(pipeline: str, nbytes: int, temp_dir: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.faults.spilling", pipeline, str(BUDGET), str(nbytes), str(temp_dir)]
    query = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield query
    finally:
        query.kill()
        query.communicate()


def wait_until(is_true: Callable[[], object], timeout_s: float = 60) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def has_spilled(folder: Path, pid: int | str = "self") -> bool:
    return any(folder.glob("*/*")) or any(open_files(folder, pid))


def open_files(folder: Path, pid: int | str = "self") -> list[int]:
    """Return the sizes of the files below a folder that a process has open, also of those without a name."""
    sizes = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            sizes += [file.stat().st_size] if os.readlink(file).startswith(str(folder)) else []
    return sizes


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_three_times_the_budget_stays_within_it(pipeline: str, tmp_path: Path) -> None:
    nbytes = 3 * BUDGET // 2 if pipeline == "join" else 3 * BUDGET  # a join reads two tables
    with running(pipeline, nbytes, tmp_path) as query, PeakMemory(query.pid, every_s=0.1) as peak:
        printed, _ = query.communicate()
    num_rows, num_written = map(int, printed.split())
    assert num_rows == nbytes // (BATCH_ROWS * ROW_NBYTES) * BATCH_ROWS
    assert num_written > BUDGET, "it did not spill"
    assert peak.total <= MOST + INTERPRETER, f"{peak}"
    assert is_empty(tmp_path)


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl-C"])
@pytest.mark.parametrize("pipeline", ["sort", "distinct"])
def test_a_query_that_is_stopped_leaves_no_files(pipeline: str, kill: signal.Signals, tmp_path: Path) -> None:
    with running(pipeline, 50 * BUDGET, tmp_path) as query:
        wait_until(lambda: has_spilled(tmp_path, query.pid))
        query.send_signal(kill)
        _, printed = query.communicate()
        wait_until(lambda: is_empty(tmp_path))
    assert "leaked" not in printed  # by objects of DuckDB that live on at exit


def duckdb_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "penstock-duckdb"]


@pytest.mark.parametrize("pipeline", ["sort", "join"])
def test_closing_the_iterator_ends_the_query(pipeline: str, tmp_path: Path) -> None:
    with ps.config(memory_limit=BUDGET, temp_dir=tmp_path):
        batches = PIPELINES[pipeline](ps.read_source(RandomRows(BUDGET))).iter_partitions()
        next(batches)
        assert has_spilled(tmp_path)
        assert duckdb_threads() or pipeline == "sort"
        batches.close()
    assert not duckdb_threads()
    assert is_empty(tmp_path)
    assert not open_files(tmp_path)


def test_an_error_removes_what_was_spilled(tmp_path: Path) -> None:
    def failing(batch: pa.Table) -> pa.Table:
        if has_spilled(tmp_path):
            raise KeyError("no more")
        return batch

    rows = ps.read_source(RandomRows(2 * BUDGET)).map_batches(failing, batch_format="pyarrow", use_process=False)
    with ps.config(memory_limit=BUDGET, temp_dir=tmp_path), pytest.raises(KeyError, match="no more"):
        rows.sort("id").collect()
    assert is_empty(tmp_path)
    assert not open_files(tmp_path)


def widened(numbers: pa.Table) -> pa.Table:
    return numbers.append_column("content", pa.array([bytes(20_000)] * numbers.num_rows))


def test_wide_rows_are_sorted_and_grouped_out_of_core(tmp_path: Path) -> None:
    """DuckDB handles 2,048 rows at a time, and so many of these rows take 40 MB."""
    n = 6_000
    with ps.config(memory_limit=10**8, temp_dir=tmp_path):
        numbers = ps.range(n).with_column("half", ps.col("id") % (n // 2)).sort("half", desc=True)
        wide = numbers.map_batches(widened, batch_format="pyarrow", batch_size=100, use_process=False)
        parts = wide.sort("id").iter_batches(batch_format="pyarrow")
        order = [number for rows in parts for number in rows["id"].to_pylist()]
        groups = wide.groupby("half").map_groups(lambda group: {"n": [len(group["id"])]}, use_process=False).to_pydict()
    assert order == list(range(n))
    assert groups["n"] == [2] * (n // 2)


def test_a_full_temp_dir_is_one_clear_error(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**7, before[1]))
    try:
        with ps.config(memory_limit=BUDGET, temp_dir=tmp_path), pytest.raises(WriteError) as caught:
            ps.read_source(RandomRows(BUDGET)).sort("id").collect()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert f"cannot be written to temp_dir ({tmp_path}): File too large" in str(caught.value)
    assert is_empty(tmp_path)


def test_a_temp_dir_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with ps.config(temp_dir=tmp_path / "missing"), pytest.raises(WriteError, match=r"temp_dir .*missing"):
        ps.range(2).distinct().collect()


@ps.func(use_process=False)
def next_number(x: int) -> int:
    return x + 1


def test_relations_and_functions_in_a_row_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues hold one batch, and the budget is smaller than any batch."""
    monkeypatch.setattr(stream, "QUEUE_NBYTES", 1)
    n = 50_000
    numbers = ps.range(n)
    with ps.config(memory_limit=10**5, num_threads=2):
        called = numbers.sort("id", desc=True).select(id=next_number(ps.col("id")))
        pairs = called.join(numbers, on="id").join(called.distinct(), on="id", how="left")
        both = pairs.select(k=next_number(ps.col("id")) % 2).groupby("k").agg(ps.col("k").count().alias("n"))
        assert both.sort("k").to_pydict() == {"k": [0, 1], "n": [n // 2, n // 2 - 1]}
