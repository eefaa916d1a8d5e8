"""Drain generators a chunk at a time: values are passed on soon, and an endless generator needs little memory.

Nobody can take back values that were passed on. So if a call may be repeated, its generator runs to its end first; see
``UdfSpec.is_streaming``.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, NamedTuple

from penstock.errors import QueryCancelledError
from penstock.udf.failures import CALL_FAILURES, STOPPED
from penstock.udf.results import owned

CHUNK_NBYTES = 2**20
CHUNK_S = 0.1

OnRowError = Callable[[int, BaseException], Any]
"""Called with the number of a failed row; raises, or returns a value in place of its result."""


class ValueChunk(NamedTuple):
    """Values that are passed on together, and the row that each came from."""

    values: list[Any]
    parents: list[int]


class ChunkSize:
    """The largest number of values of a chunk: as many as weigh a megabyte, by measurement."""

    def __init__(self, num_values: int = 64) -> None:
        self.num_values = num_values

    def note(self, num_values: int, nbytes: int) -> None:
        """Learn from the bytes of a chunk."""
        self.num_values = max(1, min(4 * self.num_values, CHUNK_NBYTES * num_values // max(nbytes, 1)))


def chunks(results: Iterator[Any], num_rows: int, size: ChunkSize, on_error: OnRowError) -> Iterator[ValueChunk]:
    """Yield the values of ``results``, one iterable a row, in chunks. A slow generator's values leave after 0.1 s.

    ``on_error`` is called with the number of a failed row and must raise.
    """
    chunk, row, items, started = ValueChunk([], []), 0, None, time.perf_counter()
    while row < num_rows:
        try:
            if items is None:
                items = owned(_values_of_next_row(results))
            for value in items:
                chunk.values.append(value)
                chunk.parents.append(row)
                if len(chunk.values) >= size.num_values or time.perf_counter() - started > CHUNK_S:
                    break
            else:
                row, items = row + 1, None
                continue
        except QueryCancelledError:
            raise
        except CALL_FAILURES as exc:
            on_error(row, exc)
        yield chunk
        chunk, started = ValueChunk([], []), time.perf_counter()
    if chunk.values:
        yield chunk


def _values_of_next_row(results: Iterator[Any]) -> Iterator[Any]:
    try:
        return iter(next(results))
    except StopIteration as exc:  # raised by the function: there are as many results as rows
        raise RuntimeError(STOPPED) from exc


async def async_chunks(results: Iterator[Any], size: ChunkSize, on_error: OnRowError) -> AsyncIterator[ValueChunk]:
    """Yield the values of async generators as ``chunks`` does."""
    chunk, started = ValueChunk([], []), time.perf_counter()
    for row, result in enumerate(results):
        values = _values(result)
        while True:
            try:
                value = await anext(values)
            except StopAsyncIteration:
                break
            except CALL_FAILURES as exc:
                on_error(row, exc)
            chunk.values.append(owned(value))
            chunk.parents.append(row)
            if len(chunk.values) >= size.num_values or time.perf_counter() - started > CHUNK_S:
                yield chunk
                chunk, started = ValueChunk([], []), time.perf_counter()
    if chunk.values:
        yield chunk


async def _values(result: Any) -> AsyncIterator[Any]:
    if not inspect.isasyncgen(result):
        for value in several(await result):
            yield value
        return
    is_empty = True
    try:
        async for value in result:
            is_empty = False
            yield value
        if is_empty:
            yield None
    finally:
        await result.aclose()


def several(result: Iterable[Any] | None) -> Iterator[Any]:
    """Yield the values of a row; one null if the result is None or has no values."""
    is_empty = True
    for value in () if result is None else result:
        is_empty = False
        yield value
    if is_empty:
        yield None
