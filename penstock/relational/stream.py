"""A running DuckDB query that takes its input and gives its output batch by batch, both bounded in bytes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

import pyarrow as pa

from penstock.errors import QueryCancelledError

QUEUE_NBYTES = 16 * 2**20  # of input, and of output, that wait; a single batch may be larger


class QueryStream:
    """Runs ``start``, a function from an input stream to an output stream, on a thread of its own.

    DuckDB pulls its input, while the engine pushes it. ``push`` gives outputs while DuckDB takes no input, because it
    may wait for its outputs to be taken.
    """

    def __init__(self, start: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> None:
        self._changed = threading.Condition()
        self._inputs = _Queue()
        self._outputs = _Queue()
        self._is_ended = self._is_stopped = self._is_done = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(start,), name="penstock-duckdb", daemon=True)
        self._thread.start()

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add an input once there is room, and yield the outputs that come meanwhile."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._outputs or not self._inputs.is_full or self._is_done)
                output = self._taken()
                if output is None:
                    if not self._is_done:  # else the query needs no more rows
                        self._inputs.put(batch)
                        self._changed.notify_all()
                    return
            yield output

    def end(self) -> Iterator[pa.RecordBatch]:
        """Declare that no more input comes, and yield the rest of the output."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._outputs or self._is_done)
                output = self._taken()
            if output is None:
                return
            yield output

    def stop(self) -> None:
        """Make DuckDB's thread end at its next input or output."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def join(self) -> None:
        self._thread.join()

    def _taken(self) -> pa.RecordBatch | None:
        if self._outputs:
            self._changed.notify_all()
            return self._outputs.take()
        if self._error is not None:
            raise self._error
        return None

    def _run(self, start: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> None:
        try:
            for batch in start(self._pulled()):
                with self._changed:
                    self._changed.wait_for(lambda: not self._outputs.is_full or self._is_stopped)
                    if self._is_stopped:
                        break
                    self._outputs.put(batch)
                    self._changed.notify_all()
        except BaseException as exc:
            self._error = exc
        with self._changed:
            self._is_done = True
            self._changed.notify_all()

    def _pulled(self) -> Iterator[pa.RecordBatch]:
        """Yield the inputs to DuckDB as it asks for them."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._inputs or self._is_ended or self._is_stopped)
                if self._is_stopped:
                    raise QueryCancelledError("the query was stopped")
                if not self._inputs:
                    return
                batch = self._inputs.take()
                self._changed.notify_all()
            yield batch


class _Queue:
    """Batches in order, with the sum of their bytes."""

    def __init__(self) -> None:
        self._batches: deque[pa.RecordBatch] = deque()
        self._nbytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def is_full(self) -> bool:
        return self._nbytes >= QUEUE_NBYTES

    def put(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._nbytes += batch.nbytes

    def take(self) -> pa.RecordBatch:
        batch = self._batches.popleft()
        self._nbytes -= batch.nbytes
        return batch
