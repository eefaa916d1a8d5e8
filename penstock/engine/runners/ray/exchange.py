"""Relations over more rows than one node's memory holds: rows are divided into parts, and each part is a task of Ray.

A part is made of pieces, one from each group of batches. Ray keeps the pieces in the object store, spills them to disk,
and runs a task again if its worker dies.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa
import ray

from penstock.config import config, get_config
from penstock.engine.runners.openers import opener
from penstock.engine.runners.placement import this_machine
from penstock.engine.runners.ray.actors import put_packed
from penstock.engine.runners.ray.failures import translated
from penstock.engine.runners.ray.stored import StoredBatch, arguments, has_restored
from penstock.engine.runners.ray.worker import Slices
from penstock.plan.stages import SIDE, RunRelation
from penstock.protocols import Bundle, EndOfInput, WorkerContext
from penstock.relational.handler import with_types
from penstock.relational.partition import HashParts, RangeParts, bounds_of, divided, sampled
from penstock.types import joined
from penstock.types.ipc import from_ipc, to_ipc

log = logging.getLogger("penstock.workers")

PARTS_PER_CORE = 4
MAX_PARTS = 256
GROUP_NBYTES = 64 * 2**20  # of batches that are divided by one task
PLAIN_TASK: dict[str, Any] = {
    "num_cpus": 0,
    "scheduling_strategy": "SPREAD",
}  # cores may all be held by the actors of other stages
MAX_OBJECTS_AHEAD = 4  # of a part: two batches, each with its size

Parts = HashParts | RangeParts


class RowExchange:
    """Divides the rows of a relation and computes the parts. Its methods block; ``add`` is for any thread."""

    def __init__(self, work: RunRelation, parts: Parts, num_cores: int) -> None:
        self._work = work
        self._parts = parts
        self._num_parts = min(PARTS_PER_CORE * num_cores, MAX_PARTS)
        self._num_cores = num_cores
        self._pieces: list[list[tuple[int, Any]]] = [[] for _ in range(self._num_parts)]  # of each part, by input
        self._schemas: dict[int, pa.Schema] = {}
        self._waiting: list[Bundle] = []  # for the ranges of their keys
        memory_bytes = get_config().memory_bytes // this_machine().num_cpus
        self._packed_open = put_packed(opener(replace(work, memory_bytes=int(memory_bytes))), str(work.relation))
        self._running: list[Any] = []  # generators of parts
        self._is_closed = False
        log.info("%s: too many rows for one worker; they are divided into %d parts", work.relation, self._num_parts)

    def add(self, bundles: Sequence[Bundle]) -> None:
        """Divide the rows of a group of bundles, or hold them until the ranges of their keys are known."""
        if isinstance(self._parts, RangeParts) and not self._parts.bounds:
            self._waiting += bundles
            return
        while True:
            known = dict(self._schemas)
            (schemas, counts), pieces = self._called(divide, bundles, self._parts, self._num_parts, self._work, known)
            if all(self._schemas.setdefault(side, schema) == schema for side, schema in schemas.items()):
                break
        for number, (count, piece) in enumerate(zip(counts, pieces, strict=True)):
            if count:
                side, part = divmod(number, self._num_parts)
                self._pieces[part].append((side, piece))

    def results(self) -> Iterator[Bundle]:
        """Yield the output of all parts in order. As many parts as there are cores are computed ahead."""
        if isinstance(self._parts, RangeParts):
            self._divide_by_ranges(self._parts)
        parts = [part for part in self._pieces if part]
        for number in range(len(parts) + self._num_cores):
            if number < len(parts) and not self._is_closed:
                # The right side first, as a relation takes them. A stable sort, so that a second try gives the same.
                pieces = [piece for _, piece in sorted(parts[number], key=lambda piece: -piece[0])]
                self._running.append(started_part(self._packed_open, pieces))
                parts[number] = []
                del pieces
            if number >= self._num_cores and self._running:
                yield from _bundles(self._running[0])
                del self._running[0]

    def close(self) -> None:
        """Cancel the tasks."""
        self._is_closed = True
        for generator in list(self._running):
            ray.cancel(generator, force=True)

    def _divide_by_ranges(self, parts: RangeParts) -> None:
        groups, self._waiting = list(groups_of(self._waiting)), []
        with ThreadPoolExecutor(self._num_cores, "penstock-ray-exchange") as threads:
            samples = threads.map(lambda group: self._called(sample, group, parts.keys)[0], groups)
            bounds = bounds_of([key for keys in samples for key in keys], self._num_parts)
            self._parts = replace(parts, bounds=bounds)
            list(threads.map(self._add_and_drop, [groups] * len(groups), range(len(groups))))

    def _add_and_drop(self, groups: list[list[Bundle]], number: int) -> None:
        self.add(groups[number])
        groups[number] = []  # the store may free them

    def _called(self, task: Any, bundles: Sequence[Bundle], *args: Any) -> tuple[Any, list[Any]]:
        """Run a task on the batches of bundles. Return its first object, and references to the others."""
        items = [bundle.handle for bundle in bundles]
        slices: Slices = tuple((bundle.offset, bundle.num_rows) for bundle in bundles)
        num_returns = 1 + (self._num_parts * len(self._work.schemas) if task is divide else 0)
        while True:
            given = arguments(items)
            made = remote(task).options(num_returns=num_returns, **PLAIN_TASK).remote(*args, slices, *given)
            first, others = (made[0], made[1:]) if num_returns > 1 else (made, [])
            try:
                return ray.get(first), others
            except ray.exceptions.RayError as exc:
                if not has_restored(items, given, exc):
                    raise translated(exc) from exc


def started_part(packed_open: Any, pieces: Sequence[Any]) -> Any:
    """Start the task of a part and return the generator of its objects."""
    options = {"num_returns": "streaming", "_generator_backpressure_num_objects": MAX_OBJECTS_AHEAD}
    return remote(merge).options(**PLAIN_TASK, **options).remote(packed_open, pieces)


@cache
def remote(function: Callable[..., Any]) -> Any:
    return ray.remote(function)  # each one is sent to the workers once


def groups_of(bundles: Sequence[Bundle]) -> Iterator[list[Bundle]]:
    """Yield bundles in groups of about ``GROUP_NBYTES``."""
    group: list[Bundle] = []
    for bundle in bundles:
        group.append(bundle)
        if sum(each.nbytes for each in group) >= GROUP_NBYTES:
            yield group
            group = []
    if group:
        yield group


def _bundles(generator: Any) -> Iterator[Bundle]:
    """Yield the batches of a part; each object is followed by its size."""
    for batch in generator:
        try:
            num_rows, nbytes = ray.get(next(generator, batch))  # the last object of a task that failed is its error
        except ray.exceptions.RayError as exc:
            raise translated(exc) from exc
        yield Bundle(StoredBatch(batch, None), num_rows, nbytes)


# --- in workers ---


def sample(keys: Any, slices: Slices, *items: pa.Buffer) -> list[bytes]:
    batches = [from_ipc(item).slice(*part) for item, part in zip(items, slices, strict=True)]
    return [key for batch in batches for key in sampled(batch, keys)]


def divide(
    parts: Parts, num_parts: int, work: RunRelation, known: dict[int, pa.Schema], slices: Slices, *items: pa.Buffer
) -> list[Any]:
    """Return the columns of each input and the number of rows of each piece; then the pieces, one input after another.

    ``known`` are the columns of earlier rows.
    """
    batches = [from_ipc(item).slice(*part) for item, part in zip(items, slices, strict=True)]
    schemas: dict[int, pa.Schema] = {}
    pieces: list[pa.RecordBatch | None] = []
    for side in range(len(work.schemas)):
        mine = [batch for batch in batches if int(batch.schema.metadata[SIDE.encode()]) == side and batch.num_rows]
        if not mine:
            pieces += [None] * num_parts
            continue
        schemas[side] = known.get(side, mine[0].schema.remove_metadata())
        rows = joined([with_types(work.relation, batch, schemas[side]) for batch in mine])
        marked = rows.replace_schema_metadata({SIDE: str(side)})
        pieces += divided(marked, parts, num_parts, side)
    counts = [0 if piece is None else piece.num_rows for piece in pieces]
    return [
        (schemas, counts),
        *(to_ipc(piece) if count and piece else None for count, piece in zip(counts, pieces, strict=True)),
    ]


def merge(packed_open: bytes, pieces: Sequence[Any]) -> Iterator[Any]:
    """Yield the output of a relation over some pieces: a batch, its size, another batch, its size, and so on.

    One thread makes the order of the rows the same if Ray runs the task again.
    """
    with config(num_threads=1):
        handler = pickle.loads(packed_open)(WorkerContext(lambda: False, lambda error: None))
        try:
            for item in (*pieces, None):
                given = EndOfInput() if item is None else from_ipc(ray.get(item))
                for batch in handler.process(given, 0):
                    yield to_ipc(batch)
                    yield batch.num_rows, batch.nbytes
        finally:
            handler.close()
