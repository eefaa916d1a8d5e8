"""Drain generators a chunk at a time: values are passed on soon, and an endless generator needs little memory.

Nobody can take back values that were passed on. So if a call may be repeated, its generator runs to its end first; see
``UdfSpec.is_streaming``.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, NamedTuple

from penstock.errors import QueryCancelledError
from penstock.udf.failures import CALL_FAILURES, STOPPED
from penstock.udf.results import owned

_END = object()

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


async def chunks(
    results: Iterator[Any], num_rows: int, size: ChunkSize, on_error: OnRowError, *, is_outer: bool = False
) -> AsyncGenerator[ValueChunk, None]:
    """Yield the values of ``results`` in chunks. A slow generator's values leave after 0.1 s.

    A result, one a row, is an iterable, an async generator, an awaitable of an iterable, or None. With ``is_outer`` a
    row without values gives one null. ``on_error`` is called with the number of a failed row and must raise. This
    waits only if a result does.
    """
    chunk, started = ValueChunk([], []), time.perf_counter()
    for row in range(num_rows):
        values, num_values = None, 0
        try:
            values = await _values(results)
            is_async = inspect.isasyncgen(values)
            while (value := await anext(values, _END) if is_async else next(values, _END)) is not _END:
                chunk.values.append(owned(value))
                chunk.parents.append(row)
                num_values += 1
                if len(chunk.values) >= size.num_values or time.perf_counter() - started > CHUNK_S:
                    yield chunk
                    chunk, started = ValueChunk([], []), time.perf_counter()
        except QueryCancelledError:
            raise
        except CALL_FAILURES as exc:
            on_error(row, exc)
        finally:
            if inspect.isasyncgen(values):
                await values.aclose()
        if is_outer and not num_values:
            chunk.values.append(None)
            chunk.parents.append(row)
    if chunk.values:
        yield chunk


async def _values(results: Iterator[Any]) -> Any:
    """Return an iterator, or an async generator, over the values of the next row."""
    try:
        result = next(results)
    except StopIteration as exc:  # raised by the function: there are as many results as rows
        raise RuntimeError(STOPPED) from exc
    if inspect.isasyncgen(result):
        return result
    if inspect.isawaitable(result):
        result = await result
    return iter(() if result is None else result)
