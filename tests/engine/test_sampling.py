"""Samples of a running query: what each stage waits for, and how many rows it will give."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine.inbox import Gate
from penstock.engine.read_queue import ReadQueue
from penstock.events.events import QuerySampled, QueryStarted
from penstock.plan.stages import Cut, Read, Select, Where
from penstock.protocols import ReadRequest


class Watcher:
    """Waits for a sample that is wanted."""

    def __init__(self, is_wanted: Callable[[QuerySampled], bool]) -> None:
        self._is_wanted = is_wanted
        self.started: QueryStarted | None = None
        self.found: QuerySampled | None = None
        self.has_found = threading.Event()

    def on_event(self, event: Any) -> None:
        if isinstance(event, QueryStarted):
            self.started = event
        elif isinstance(event, QuerySampled) and self.found is None and self._is_wanted(event):
            self.found = event
            self.has_found.set()


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    watcher = Watcher(lambda sample: sample.stages[-1].total_rows is not None and sample.stages[1].num_running == 1)
    ps.attach_subscriber(watcher)
    yield watcher
    ps.detach_subscriber(watcher)


def test_the_end_of_an_open_file_is_found_while_its_rows_wait(tmp_path: Path, watcher: Watcher) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f'{{"x": {number}}}\n' for number in range(40_000)))

    @ps.func(use_process=False, max_concurrency=1)
    def wait(x: int) -> int:
        assert watcher.has_found.wait(60)
        return x

    ps.read_json(str(path)).select(wait(ps.col("x"))).write_parquet(str(tmp_path / "out"))
    assert watcher.found is not None
    assert {(stage.total_rows, stage.is_total_exact) for stage in watcher.found.stages} == {(40_000, True)}


def test_a_sample_says_how_many_rows_come_and_what_stages_wait_for(tmp_path: Path, watcher: Watcher) -> None:
    for number in range(3):
        ps.from_pydict({"x": [number] * 10}).write_parquet(str(tmp_path / "in"), mode="append")

    @ps.func(use_process=False, max_concurrency=1)
    def wait(x: int) -> int:
        assert watcher.has_found.wait(60)
        return x

    ps.read_parquet(str(tmp_path / "in")).select(wait(ps.col("x"))).write_parquet(str(tmp_path / "out"))
    assert watcher.started is not None
    assert watcher.found is not None
    assert [(info.kind, info.inputs, info.writes) for info in watcher.started.stages] == [
        ("read", (), None),
        ("function", (0,), None),
        ("write", (1,), 1),
    ]
    stages = watcher.found.stages
    assert [(stage.total_rows, stage.is_total_exact) for stage in stages] == [(30, True)] * 3
    assert [stage.waiting_for for stage in stages[1:]] == ["workers", "input"]
    assert [(stage.num_running, stage.num_workers) for stage in stages[1:2]] == [(1, 1)]
    assert watcher.found.nbytes_held >= stages[1].nbytes_held > 0
    assert watcher.found.measures.rss_bytes > 10**6


@dataclass
class Part:
    num_rows: int | None = None
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        return iter(())


def drawn(parts: list[Part], read: Read, num_done: int = 0) -> ReadQueue:
    queue = ReadQueue(iter(parts), read)
    queue.look_ahead(1.0, lambda: 0.0)
    for part in parts[:num_done]:
        queue.note_done(part)
    return queue


READ = Read(None, ReadRequest())  # type: ignore[arg-type]
FILTERED = Read(None, ReadRequest(), (Where(None),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "read", "num_done", "num_rows_out", "total"),
    [
        ([Part(10), Part(30)], READ, 0, 0, (40, True)),
        ([Part(10), Part(30)], Read(None, ReadRequest(), (Select(()),)), 0, 0, (40, True)),  # type: ignore[arg-type]
        ([Part(10), Part(30)], FILTERED, 0, 0, None),
        ([Part(10), Part(30)], FILTERED, 1, 5, (20, False)),
        ([Part(None, 100), Part(None, 300)], READ, 1, 8, (32, False)),
        ([Part(), Part()], READ, 1, 8, (16, False)),
        ([], READ, 0, 0, (0, True)),
    ],
)
def test_the_rows_of_a_read_are_known_or_estimated(
    parts: list[Part], read: Read, num_done: int, num_rows_out: int, total: tuple[int, bool] | None
) -> None:
    assert drawn(parts, read, num_done).total_rows(num_rows_out) == total


def test_looking_ahead_ends_in_time_and_loses_no_task() -> None:
    parts, times = [Part(number) for number in range(5)], iter([0.0, 0.5, 1.0, 0.0, 2.0])
    queue = ReadQueue(iter(parts), READ)
    queue.look_ahead(1.0, lambda: next(times))
    assert queue.total_rows(0) is None
    taken = []
    while queue.has_task:
        taken.append(queue.take())
    assert taken == parts
    assert queue.total_rows(0) == (10, True)


@pytest.mark.parametrize(("cut", "num_rows", "total"), [(Cut(5, 0), 3, 3), (Cut(5, 2), 20, 5), (Cut(None, 2), 20, 18)])
def test_a_limit_knows_how_many_rows_pass(cut: Cut, num_rows: int, total: int) -> None:
    assert Gate(cut).total_rows(num_rows) == total
