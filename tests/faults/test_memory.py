"""A query stays within its memory, however much faster one part is than the next."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine.executor import Executor
from penstock.events.events import BundleProduced, Event
from penstock.protocols import ReadRequest

BATCH_NBYTES = 1_000_000
NUM_BATCHES = 60
LIMIT_NBYTES = 8 * BATCH_NBYTES


class Alive:
    """Counts the bytes of batches that a source gave and nobody has let go of: Arrow's own count, not ours."""

    def __init__(self) -> None:
        self.most = 0
        self._start = pa.total_allocated_bytes()

    def look(self) -> None:
        self.most = max(self.most, pa.total_allocated_bytes() - self._start)


@dataclass(frozen=True)
class BigRead:
    number: int
    num_batches: int
    num_rows: int | None = None
    nbytes: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        for part in range(self.num_batches):
            ids = np.full(BATCH_NBYTES // 8, self.number * self.num_batches + part)
            yield pa.record_batch({"id": copied(ids)})


def copied(values: np.ndarray) -> pa.Array:  # type: ignore[type-arg]
    """Return an array in memory that Arrow has allocated, and so counts."""
    return pa.concat_arrays([pa.array(values[:1]), pa.array(values[1:])])


@dataclass(frozen=True)
class BigSource:
    """A source that gives as much as it is asked for, at once."""

    batches_per_read: int
    name: str = "big"
    can_filter: bool = False

    def schema(self) -> ps.Schema:
        return ps.Schema.from_arrow(pa.schema({"id": pa.int64()}))

    def read_tasks(self, request: ReadRequest) -> Iterator[BigRead]:
        for number in range(NUM_BATCHES // self.batches_per_read):
            yield BigRead(number, self.batches_per_read)


class QuietMailbox:
    """Tells when the driver waits for the one task that still runs: all else that it could do, it has done."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self.put = self._queue.put
        self.get_nowait = self._queue.get_nowait
        self.is_quiet = threading.Event()

    def get(self, *, timeout: float | None = None) -> Any:
        if self._queue.empty() and sum(stage.num_running for stage in self._executor._stages) == 1:
            self.is_quiet.set()
        return self._queue.get()


class HeldBytes:
    """A subscriber that asks the executor, whenever something was produced, what is held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        self._executor: Executor | None = None
        opened = Executor._open

        def open_and_listen(executor: Executor) -> None:
            self._executor = executor
            self.mailbox = executor._mailbox = QuietMailbox(executor)
            executor._subscribers = [*executor._subscribers, self]
            opened(executor)

        monkeypatch.setattr(Executor, "_open", open_and_listen)

    def on_event(self, event: Event) -> None:
        if isinstance(event, BundleProduced) and self._executor is not None:
            held = sum(stage.nbytes_held - stage.in_flight.nbytes_expected for stage in self._executor._stages)
            self.most = max(self.most, held + self._executor._results.nbytes_waiting)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> HeldBytes:
    return HeldBytes(monkeypatch)


@pytest.mark.parametrize("batches_per_read", [1, 20], ids=["many reads", "long reads"])
def test_a_fast_read_waits_for_a_slow_function(held: HeldBytes, batches_per_read: int) -> None:
    """The function goes on only when nothing else can: whatever the read may do ahead of it, it has done."""
    alive = Alive()
    num_threads = 4

    def slow(batch: pa.Table) -> dict[str, list[int]]:
        assert held.mailbox.is_quiet.wait(60)
        held.mailbox.is_quiet.clear()
        alive.look()
        return {"id": [batch["id"][0].as_py()]}

    with ps.config(memory_limit=LIMIT_NBYTES, num_threads=num_threads):
        df = ps.read_source(BigSource(batches_per_read)).map_batches(
            slow, batch_format="pyarrow", batch_size=None, concurrency=1
        )
        ids = df.to_pydict()["id"]
    assert list(dict.fromkeys(ids)) == list(range(NUM_BATCHES))  # the first batch comes in parts
    assert held.most > LIMIT_NBYTES / 2, "the read should make use of the memory that there is"
    assert held.most <= LIMIT_NBYTES + 2 * BATCH_NBYTES
    # What is being made, by each thread, is not in anybody's books yet.
    assert alive.most <= LIMIT_NBYTES + (2 + 2 * num_threads) * BATCH_NBYTES


def test_a_slow_reader_holds_up_the_query(held: HeldBytes) -> None:
    with ps.config(memory_limit=LIMIT_NBYTES, num_threads=4):
        batches = ps.read_source(BigSource(1)).iter_partitions()
        next(batches)
        first = held.most
        num_rows = 1 + sum(1 for _ in batches)
    assert num_rows == NUM_BATCHES
    assert first <= LIMIT_NBYTES + BATCH_NBYTES
    assert held.most <= LIMIT_NBYTES + BATCH_NBYTES


def test_growth_is_learned_from_the_first_batch(held: HeldBytes) -> None:
    """Each batch grows tenfold, to more than the whole budget: one is in hand at a time."""

    def grow(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
        return {"id": np.repeat(batch["id"], 10)}

    with ps.config(memory_limit=LIMIT_NBYTES, num_threads=4):
        grown = ps.read_source(BigSource(1)).map_batches(grow, batch_size=None, concurrency=4)
        df = grown.map_batches(lambda b: {"n": [len(b["id"])]}, batch_size=None)
        assert sum(df.to_pydict()["n"]) == 10 * NUM_BATCHES * BATCH_NBYTES // 8
    assert held.most <= LIMIT_NBYTES + 11 * BATCH_NBYTES


def test_a_batch_larger_than_the_limit_goes_through(held: HeldBytes) -> None:
    with ps.config(memory_limit=BATCH_NBYTES // 10, num_threads=4):
        df = ps.read_source(BigSource(2)).map_batches(lambda batch: {"id": batch["id"][:1]}, batch_size=None)
        ids = df.to_pydict()["id"]
    assert list(dict.fromkeys(ids)) == list(range(NUM_BATCHES))  # the first batches come in parts
    assert held.most <= 3 * BATCH_NBYTES


def test_batches_whose_size_is_found_stay_within_the_limit(held: HeldBytes) -> None:
    """Rows that grow tenfold, in batches of as many as suits: what is held at once is what was asked for."""
    with ps.config(memory_limit=LIMIT_NBYTES, num_threads=4):
        df = ps.read_source(BigSource(1)).map_batches(lambda b: {"x": np.repeat(b["id"], 10)}, concurrency=4)
        counted = df.map_batches(lambda b: {"n": [len(b["x"])]})
        assert sum(counted.to_pydict()["n"]) == 10 * NUM_BATCHES * BATCH_NBYTES // 8
    assert held.most <= LIMIT_NBYTES + 2 * BATCH_NBYTES
