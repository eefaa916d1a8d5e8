"""A running DuckDB query that takes its input and gives its output batch by batch, both bounded in bytes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.errors import QueryCancelledError

QUEUE_NBYTES = 4 * 2**20  # bytes of waiting input, and of waiting output; a single batch may be larger


class QueryStream:
    """Runs ``start``, a function from input streams to an output stream, on a thread of its own.

    DuckDB pulls its inputs, while the engine pushes them. ``push`` gives outputs while DuckDB takes no input, because
    it may wait for its outputs to be taken. ``sides`` are the inputs in the order of pushing, one after the other;
    DuckDB must pull them in this order.
    """

    def __init__(
        self,
        start: Callable[[Mapping[int, Iterator[pa.RecordBatch]]], Iterator[pa.RecordBatch]],
        sides: Sequence[int],
    ) -> None:
        self._changed = threading.Condition()
        self._sides = sides
        self._inputs = _Queue()
        self._outputs = _Queue()
        self._is_ended = self._is_stopped = self._is_done = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(start,), name="penstock-duckdb", daemon=True)
        self._thread.start()

    def push(self, side: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add rows of an input once there is room, and yield the outputs that come meanwhile."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._outputs or not self._inputs.is_full or self._is_over)
                output = self._taken()
                if output is None:
                    if not self._is_done:  # else the query needs no more rows
                        self._inputs.put(batch, side)
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
                self._changed.wait_for(lambda: self._outputs or self._is_over)
                output = self._taken()
            if output is None:
                return
            yield output

    def stop(self) -> None:
        """Make DuckDB's thread end at its next input or output."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def has_ended(self, within_s: float) -> bool:
        """Wait a while for the thread to end."""
        self._thread.join(within_s)
        return not self._thread.is_alive()

    @property
    def _is_over(self) -> bool:
        return self._is_done or self._is_stopped

    def _taken(self) -> pa.RecordBatch | None:
        if self._is_stopped:
            raise QueryCancelledError("the query was stopped")
        if self._outputs:
            self._changed.notify_all()
            return self._outputs.take()
        if self._error is not None:
            error, self._error = self._error, None  # its traceback refers to this object
            raise error
        return None

    def _run(self, start: Callable[[Mapping[int, Iterator[pa.RecordBatch]]], Iterator[pa.RecordBatch]]) -> None:
        try:
            for batch in start({side: self._pulled(side) for side in self._sides}):
                with self._changed:
                    self._changed.wait_for(lambda: not self._outputs.is_full or self._is_stopped)
                    if self._is_stopped:
                        break
                    self._outputs.put(batch)
                    self._changed.notify_all()
        except BaseException as exc:
            if not self._is_stopped:  # then no one takes it, and its traceback would keep DuckDB's objects
                self._error = exc
        with self._changed:
            self._is_done = True
            self._changed.notify_all()

    def _pulled(self, side: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an input to DuckDB as it asks for them."""
        later = self._sides[self._sides.index(side) + 1 :]
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._inputs or self._is_ended or self._is_stopped)
                if self._is_stopped:
                    raise QueryCancelledError("the query was stopped")
                if not self._inputs or self._inputs.side in later:
                    return
                assert self._inputs.side == side, f"DuckDB asks for input {side} before it has all rows of another"
                batch = self._inputs.take()
                self._changed.notify_all()
            yield batch


class _Queue:
    """Batches in order, each with the number of its input, and the sum of their bytes."""

    def __init__(self) -> None:
        self._batches: deque[tuple[pa.RecordBatch, int]] = deque()
        self._nbytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def is_full(self) -> bool:
        return self._nbytes >= QUEUE_NBYTES

    @property
    def side(self) -> int:
        """The input of the next batch."""
        return self._batches[0][1]

    def put(self, batch: pa.RecordBatch, side: int = 0) -> None:
        self._batches.append((batch, side))
        self._nbytes += batch.nbytes

    def take(self) -> pa.RecordBatch:
        batch, _ = self._batches.popleft()
        self._nbytes -= batch.nbytes
        return batch
