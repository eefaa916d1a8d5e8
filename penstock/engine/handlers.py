"""The handlers of the engine's own work: read, transform and write."""

from __future__ import annotations

import itertools
import pickle
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.config import piece_nbytes
from penstock.contracts import Handler
from penstock.engine.steps import Steps, may_grow
from penstock.engine.task_costs import FIRST_GROWTH, RECENT, GrowthEstimate
from penstock.errors import ReadError, WriteError
from penstock.plan.nodes import sink_name
from penstock.plan.stages import Step, TakeSample
from penstock.protocols import PartSink, ReadTask, Sink
from penstock.types import Schema
from penstock.types.plain import arrow_array, arrow_numbers

MAX_SLICE_NBYTES = 64 * 2**20  # of the input or output of steps that may make rows larger
SAMPLED_ROWS = 16  # whose output is weighed, before steps that may make rows larger are applied to a first batch
RECORD = "record"  # the column that carries the records of a sink to the driver


class StatelessHandler:
    """A handler that holds nothing between batches."""

    def close(self) -> None:
        pass


def one_or_more(outputs: Iterator[pa.RecordBatch]) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
    """Return a single output itself, so that the pool sends one report instead of two; otherwise return an iterator."""
    first, second = next(outputs), next(outputs, None)
    return first if second is None else itertools.chain((first, second), outputs)


class TransformHandler(StatelessHandler):
    """Applies steps to every batch."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = SlicedSteps(steps)

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        return self._steps(item, first_row)


class SlicedSteps:
    """Applies steps to batches, in slices if rows may grow: a short text repeated can fill gigabytes.

    The input and the output of a slice each fit into a task's share of the budget, judging by earlier rows.
    Before the first slice, a few of its rows are computed, weighed and dropped.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = Steps(steps)
        self._may_grow = any(map(may_grow, steps)) and not any(isinstance(step, TakeSample) for step in steps)
        self._most_nbytes = piece_nbytes(MAX_SLICE_NBYTES)
        self._growth = GrowthEstimate()
        self._row_nbytes = 0.0  # bytes of a row of the largest recent output

    def __call__(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        """Return the output of a batch; an iterator if that is more than one batch."""
        return one_or_more(self._outputs(batch, first_row))

    def _outputs(self, batch: pa.RecordBatch, first_row: int) -> Iterator[pa.RecordBatch]:
        return self._in_slices(batch, first_row) if self._may_grow else self._steps.pieces(batch, first_row)

    def _in_slices(self, batch: pa.RecordBatch, first_row: int) -> Iterator[pa.RecordBatch]:
        if not self._row_nbytes and batch.num_rows > SAMPLED_ROWS:
            self._weigh(batch, first_row)
        start, is_first = 0, True
        while is_first or start < batch.num_rows:
            rest, is_first = batch.slice(start), False
            num_rows = self._slice_rows(rest)
            yield from self._measured(rest.slice(0, num_rows), first_row + start)
            start += num_rows

    def _weigh(self, batch: pa.RecordBatch, first_row: int) -> None:
        """Compute a few evenly spaced rows to weigh their output."""
        fitting = self._most_nbytes // FIRST_GROWTH * batch.num_rows // max(batch.nbytes, 1)
        step = batch.num_rows // max(1, min(SAMPLED_ROWS, fitting, batch.num_rows))
        sample = batch.take(arrow_numbers(np.arange(0, batch.num_rows, step)))
        for _ in self._measured(sample, first_row):
            pass

    def _slice_rows(self, batch: pa.RecordBatch) -> int:
        num_rows: int = batch.num_rows
        most, nbytes = self._growth.most_input(self._most_nbytes), batch.nbytes
        if nbytes > most:
            num_rows = num_rows * most // nbytes
        return max(1, min(num_rows, int(self._most_nbytes / max(self._row_nbytes, 1.0))))

    def _measured(self, batch: pa.RecordBatch, first_row: int) -> Iterator[pa.RecordBatch]:
        nbytes = 0
        for piece in self._steps.pieces(batch, first_row):
            nbytes += piece.nbytes
            yield piece
        self._growth.add_output(batch.nbytes, nbytes)
        self._row_nbytes = max(nbytes / max(batch.num_rows, 1), RECENT * self._row_nbytes)


class ReadHandler(StatelessHandler):
    """Reads tasks and applies steps to their batches. A source may give more columns than requested."""

    def __init__(self, source_name: str, schema: Schema | None, steps: Sequence[Step]) -> None:
        self._source_name = source_name
        self._expected = None if schema is None else schema.to_arrow()
        self._steps = SlicedSteps(steps)

    def process(self, item: ReadTask, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        batches = item.read()
        if isinstance(batches, Sequence) and len(batches) == 1 and isinstance(batches[0], pa.RecordBatch):
            return self._steps(self._checked(batches[0]), first_row)  # known to be the last: one report instead of two
        return self._outputs(batches, first_row)

    def _outputs(self, batches: Iterable[pa.RecordBatch], first_row: int) -> Iterator[pa.RecordBatch]:
        if not isinstance(batches, Iterable):
            raise self._misuse(batches, "returned")
        for batch in self._record_batches(batches):
            output = self._steps(self._checked(batch), first_row)
            if isinstance(output, pa.RecordBatch):
                yield output
            else:
                yield from output

    def _record_batches(self, given: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        for each in given:
            if isinstance(each, pa.Table):
                yield from each.to_batches()
            elif isinstance(each, pa.RecordBatch):
                yield each
            else:
                raise self._misuse(each, "yielded")

    def _misuse(self, given: Any, how: str) -> ReadError:
        return ReadError(
            f"Source {self._source_name!r}: read() of a task {how} {type(given).__module__}."
            f"{type(given).__qualname__}; it must yield pyarrow.RecordBatch (or pyarrow.Table)."
        )

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the expected columns of a batch, or raise ReadError."""
        if self._expected is None or batch.schema.equals(self._expected):
            return batch
        if batch.schema.names != self._expected.names:
            missing = set(self._expected.names) - set(batch.schema.names)
            if missing:
                raise ReadError(f"Source {self._source_name!r} gave no column {min(missing)!r}, but its schema has it.")
            batch = batch.select(self._expected.names)
        if batch.schema.types != self._expected.types:
            for found, promised in zip(batch.schema, self._expected, strict=True):
                if found.type != promised.type:
                    raise ReadError(
                        f"Source {self._source_name!r} gave {found.type} in column {found.name!r}, "
                        f"but its schema says {promised.type}."
                    )
        return batch


class WriteHandler:
    """One writer of a sink. Its records of finished pieces travel to the driver as rows."""

    def __init__(self, sink: Sink) -> None:
        self._writer = sink.open()
        self._name = sink_name(sink)

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        return packed_records(self._checked(self._writer.write(item), "write"))

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield packed_records(self._checked(self._writer.finish(), "finish"))

    def close(self) -> None:
        self._writer.close()

    def _checked(self, records: Any, method: str) -> Iterable[dict[str, Any]]:
        if records is None:
            return ()
        if isinstance(records, Mapping | str | bytes) or not isinstance(records, Iterable):
            raise WriteError(
                f"Sink {self._name!r}: {method}() of its writer returned {reprlib.repr(records)}; it must return a "
                "list of records, one for each finished piece, or None."
            )
        return records


class PartHandler(StatelessHandler):
    """Writes each batch, or several batches, as a complete part of the output. The records of a part travel with it."""

    def __init__(self, sink: PartSink) -> None:
        self._sink = sink

    def process(self, item: pa.RecordBatch | list[pa.RecordBatch], first_row: int) -> pa.RecordBatch:
        writer, batches = self._sink.open_part(first_row), item if isinstance(item, list) else [item]
        try:
            written = [record for batch in batches for record in writer.write(batch) or ()]
            return packed_records([*written, *(writer.finish() or ())])
        finally:
            writer.close()


class WritingHandler:
    """A handler that gives one row for each row. Its worker may write an output of ``min_nbytes`` or more itself."""

    def __init__(self, handler: Handler, parts: PartHandler, min_nbytes: int) -> None:
        self.process, self.close = handler.process, handler.close
        self._parts = parts
        self._min_nbytes = min_nbytes

    def write(self, output: pa.RecordBatch, first_row: int) -> pa.RecordBatch | None:
        """Write the output of a task as a part and return its records; None if the output is too small for a file."""
        return self._parts.process(output, first_row) if output.nbytes >= self._min_nbytes else None


def packed_records(records: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    packed = arrow_array([pickle.dumps(record) for record in records], pa.binary())
    return pa.RecordBatch.from_arrays([packed], names=[RECORD])


def unpacked_records(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [pickle.loads(record) for batch in batches for record in batch.column(RECORD).to_pylist()]
