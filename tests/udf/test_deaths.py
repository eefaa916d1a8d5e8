"""Worker processes that die: they are replaced, and a row that kills is one error, or one null."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import penstock as ps
from penstock import DataType, Series, col
from penstock.errors import UdfError, WorkerDiedError

INT = DataType.int64()
NUM_ROWS = 2  # halved once: each death costs the start of a process, and `test_bisect` halves more
KILLER = 1


@pytest.fixture(autouse=True)
def _nothing_is_left(runner: str) -> Iterator[None]:
    processes, num_fds = psutil.Process().children(), len(os.listdir("/proc/self/fd"))
    yield
    if runner == "ray":
        return  # the connections to its cluster stay
    assert set(psutil.Process().children()) <= set(processes)
    assert len(os.listdir("/proc/self/fd")) <= num_fds  # less, where connections of earlier tests are closed meanwhile


def exit_at_once() -> None:
    os._exit(3)


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segfault() -> None:
    ctypes.string_at(0)


DEATHS = [
    (exit_at_once, "exit code 3"),
    (be_killed, r"killed by signal 9 \(Killed\)"),
    (segfault, r"signal 11 \(Segmentation fault\)"),
]
DEATH_ON_RAY = r"A Ray worker \(pid \d+ on .*\) died"  # it does not know the exit code


def deadly(die: Callable[[], None]) -> Callable[[int], int]:
    def double(x: int) -> int:
        if x == KILLER:
            die()
        return 2 * x

    return double


@pytest.mark.parametrize(("die", "how"), DEATHS)
def test_raise_names_function_row_and_signal(die: Callable[[], None], how: str, runner: str) -> None:
    how = how if runner == "local" else DEATH_ON_RAY
    double = ps.func(use_process=True)(deadly(die))
    with pytest.raises(
        WorkerDiedError, match=rf"UDF 'double' failed on row 0 of the input \(id={KILLER}\): .*{how}"
    ) as caught:
        ps.from_pydict({"id": [KILLER]}).select(double(col("id"))).collect()
    assert 'set on_error="null"' in str(caught.value)
    assert isinstance(caught.value.__cause__, WorkerDiedError)


def test_raise_of_map_batches_names_the_row_too(runner: str) -> None:
    how = "exit code 3" if runner == "local" else DEATH_ON_RAY

    def fn(batch: dict[str, Any]) -> dict[str, Any]:
        if KILLER in batch["id"]:
            exit_at_once()
        return batch

    with pytest.raises(WorkerDiedError, match=rf"map_batches\(fn\) failed on row {KILLER} of the input .*{how}"):
        ps.range(NUM_ROWS).map_batches(fn, use_process=True).collect()


def test_the_row_that_kills_is_null_and_the_others_keep_theirs(caplog: pytest.LogCaptureFixture) -> None:
    double = ps.func(use_process=True, on_error="log")(deadly(segfault))
    with caplog.at_level(logging.WARNING, logger="penstock"):
        rows = ps.range(NUM_ROWS).select("id", x=double(col("id"))).to_pydict()
    assert rows == {"id": list(range(NUM_ROWS)), "x": [None if x == KILLER else 2 * x for x in range(NUM_ROWS)]}
    assert f"udf double: row {KILLER} of the input failed with WorkerDiedError" in caplog.text


def test_batch_functions_and_generators() -> None:
    @ps.func.batch(return_dtype=INT, use_process=True, on_error="ignore")
    def batch(series: Series) -> list[int]:
        return [deadly(exit_at_once)(x) for x in series]

    @ps.func(use_process=True, on_error="ignore")
    def twice(x: int) -> Iterator[int]:
        yield x
        yield deadly(exit_at_once)(x)

    rows = ps.range(NUM_ROWS)
    assert rows.select(batch(col("id"))).to_pydict() == {"id": [0, None]}
    assert rows.select("id", t=twice(col("id"))).to_pydict() == {"id": [0, 0, KILLER], "t": [0, 0, None]}


def over_batch(batch: dict[str, Any]) -> dict[str, Any]:
    return {"id": [deadly(be_killed)(x) // 2 for x in batch["id"].tolist()]}


def bit_by_bit(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for x in batch["id"].tolist():
        yield {"id": [deadly(be_killed)(x) // 2]}


@pytest.mark.parametrize(
    "run",
    [
        lambda df: df.map_batches(over_batch, use_process=True, on_error="ignore"),
        lambda df: df.map_batches(bit_by_bit, use_process=True, on_error="ignore"),
        lambda df: df.map(lambda row: {"id": deadly(be_killed)(row["id"]) // 2}, use_process=True, on_error="ignore"),
        lambda df: df.filter(lambda row: deadly(be_killed)(row["id"]) >= 0, use_process=True, on_error="ignore"),
    ],
    ids=["map_batches", "generator", "map", "filter"],
)
def test_verbs_that_make_rows_leave_it_out(run: Callable[[ps.DataFrame], ps.DataFrame]) -> None:
    assert run(ps.range(NUM_ROWS)).to_pydict() == {"id": [x for x in range(NUM_ROWS) if x != KILLER]}


def count_and(die: Callable[[], None], folder: Path, num_deaths: int) -> Callable[[int], int]:
    """Return a function that dies on one row, a number of times in all."""

    def double(x: int) -> int:
        if x == KILLER and len(os.listdir(folder)) < num_deaths:
            (folder / str(os.getpid())).touch()
            die()
        return 2 * x

    return double


@pytest.mark.parametrize(("num_deaths", "max_retries"), [(1, None), (3, 3)])
def test_a_row_that_kills_a_few_times_is_tried_again(tmp_path: Path, num_deaths: int, max_retries: int | None) -> None:
    flaky = ps.func(use_process=True, max_retries=max_retries)(count_and(be_killed, tmp_path, num_deaths))
    assert ps.range(NUM_ROWS).select(flaky(col("id"))).to_pydict() == {"id": [2 * x for x in range(NUM_ROWS)]}
    assert len(os.listdir(tmp_path)) == num_deaths


def test_several_workers_and_several_rows_that_kill() -> None:
    killers = {1, 2, 10}

    @ps.func.batch(return_dtype=INT, use_process=True, max_concurrency=2, on_error="ignore", batch_size=4)
    def fragile(series: Series) -> list[int]:
        if not killers.isdisjoint(series.to_pylist()):
            exit_at_once()
        return series.to_pylist()

    rows = ps.range(12).select(fragile(col("id"))).to_pydict()["id"]
    assert rows == [None if x in killers else x for x in range(12)]


@pytest.mark.one_machine  # Ray tries more often, and does not know the exit code
def test_a_model_that_kills_its_worker_when_built_is_no_rows_fault(tmp_path: Path) -> None:
    @ps.cls(use_process=True, on_error="ignore")
    class Model:
        def __init__(self) -> None:
            (tmp_path / str(os.getpid())).touch()
            exit_at_once()

        def __call__(self, x: int) -> int:
            return x

    with pytest.raises(WorkerDiedError, match="exit code 3 while it was starting"):
        ps.range(100).select(Model()(col("id"))).collect()
    assert len(os.listdir(tmp_path)) == 2


def test_a_model_is_built_again_in_the_new_worker(tmp_path: Path) -> None:
    @ps.cls(use_process=True)
    class Model:
        def __init__(self) -> None:
            self.pid = os.getpid()

        def __call__(self, x: int) -> int:
            assert self.pid == os.getpid()
            return count_and(exit_at_once, tmp_path, 1)(x)

    assert ps.range(NUM_ROWS).select(Model()(col("id"))).to_pydict() == {"id": [2 * x for x in range(NUM_ROWS)]}


def test_rows_that_only_raise_do_not_replace_the_worker() -> None:
    @ps.func(return_dtype=INT, use_process=True, on_error="ignore", max_concurrency=1)
    def fail_on_odd(x: int) -> int:
        if x % 2:
            raise ValueError
        return os.getpid()

    pids = ps.range(20).select(fail_on_odd(col("id"))).to_pydict()["id"]
    assert len(set(pids)) == 2
    with pytest.raises(UdfError):
        ps.range(2).map(lambda row: row["nothing"], use_process=True).collect()


def test_a_query_stopped_while_a_row_kills_again_and_again_ends() -> None:
    @ps.func.batch(return_dtype=INT, use_process=True, on_error="ignore", batch_size=64)
    def always(series: Series) -> list[int]:
        if len(series) < 3:
            exit_at_once()
        if 0 in series.to_pylist():
            return series.to_pylist()
        os._exit(4)

    assert ps.range(64 * 100).select(always(col("id"))).limit(3).to_pydict() == {"id": [0, 1, 2]}
