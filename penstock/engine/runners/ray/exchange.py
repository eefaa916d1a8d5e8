"""Relations over more rows than one node's memory holds: rows are divided into parts, and each part is a task of Ray.

A part is made of pieces, one from each group of batches. Ray keeps the pieces in the object store and spills them to
disk. Pieces and output have recipes, as all batches do; see ``stored.py``. Ray itself must not run a task again: it
cannot remake the batches of actors, and would name an object that is unknown here.
"""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import ray

from penstock.config import config, get_config
from penstock.engine.protocols import Bundle, EndOfInput, WorkerContext
from penstock.engine.runners.openers import opener
from penstock.engine.runners.placement import this_machine
from penstock.engine.runners.ray.actors import put_packed
from penstock.engine.runners.ray.failures import is_death, translated
from penstock.engine.runners.ray.stored import Recipe, StoredBatch, TaskInput, arguments, has_restored
from penstock.engine.runners.ray.worker import PackedBatch, Slices, packed_batch, rows_of, slices_from, unpacked_batch
from penstock.plan.stages import SIDE, RunRelation
from penstock.relational.handler import with_types
from penstock.relational.partition import HashParts, RangeParts, bounds_of, divided, sampled
from penstock.relational.two_steps import computed, in_two_steps
from penstock.types import Schema, joined

log = logging.getLogger("penstock.workers")

PARTS_PER_CORE = 4
MAX_PARTS = 256
GROUP_NBYTES = 64 * 2**20  # of batches that are divided by one task
PLAIN_TASK: dict[str, Any] = {
    "num_cpus": 0,
    "scheduling_strategy": "SPREAD",
    "max_retries": 0,
}  # cores may all be held by the actors of other stages
MAX_OBJECTS_AHEAD = 4  # of a part: two batches, each with its size
MAX_DEATHS = 3  # of the workers of one task

Parts = HashParts | RangeParts


class PieceForm(NamedTuple):
    """The columns of an input. With ``is_grouped`` its pieces are results of the first of two steps; see
    ``two_steps.py``.
    """

    schema: pa.Schema
    is_grouped: bool


class RowExchange:
    """Divides the rows of a relation and computes the parts. Its methods block; ``add`` is for any thread."""

    def __init__(self, work: RunRelation, parts: Parts, num_cores: int) -> None:
        self._work = work
        self._parts = parts
        self._num_parts = min(PARTS_PER_CORE * num_cores, MAX_PARTS)
        self._num_cores = num_cores
        self._groups: list[DividedGroup] = []
        self._pieces: list[list[tuple[int, StoredBatch]]] = [[] for _ in range(self._num_parts)]  # with their input
        self._forms: dict[int, PieceForm] = {}  # of the pieces of each input
        self._waiting: list[Bundle] = []  # for the ranges of their keys
        self._running: list[PartTask] = []
        self._is_closed = False
        self.group_nbytes = min(GROUP_NBYTES, work.memory_bytes)
        self.remaking = threading.Lock()
        log.info("%s: too many rows for one worker; they are divided into %d parts", work.relation, self._num_parts)

    def add(self, bundles: Sequence[Bundle]) -> None:
        """Divide the rows of a group of bundles, or hold them until the ranges of their keys are known."""
        if isinstance(self._parts, RangeParts) and not self._parts.bounds:
            self._waiting += bundles
            return
        rows = input_of(bundles)
        while True:
            forms, counts, node_id, refs = self.divided(rows)
            if all(self._forms.setdefault(side, form) == form for side, form in forms.items()):
                break
        group = DividedGroup(self, node_id)
        self._groups.append(group)
        for number, (start, count, ref) in enumerate(zip(starts(counts), counts, refs, strict=True)):
            if count:
                side, part = divmod(number, self._num_parts)
                self._pieces[part].append((side, group.piece(ref, rows.recipe(group, start, count))))

    def divided(self, rows: TaskInput) -> tuple[dict[int, PieceForm], list[int], str, list[Any]]:
        """Return the form of the pieces, the rows of each, their node and references to them."""
        num_returns = 1 + self._num_parts * len(self._work.schemas)
        args = (self._parts, self._num_parts, self._work, dict(self._forms), rows.slices)
        task = remote(divide).options(num_returns=num_returns, **PLAIN_TASK)
        (forms, counts, node_id), refs = outcome(lambda given: task.remote(*args, *given), rows.items)
        return forms, counts, node_id, refs

    def divide_again(self, found: DividedGroup) -> None:
        """Make the pieces of a group again that are lost, with those of all groups on its node."""
        lost = [group for group in self._groups if group is found or group.node_id == found.node_id]
        log.warning("%s: a node is lost, so %d groups of rows are divided again", self._work.relation, len(lost))
        with ThreadPoolExecutor(self._num_cores, "penstock-ray-exchange") as threads:
            list(threads.map(DividedGroup.divide_again, lost))

    def results(self) -> Iterator[Bundle]:
        """Yield the output of all parts in order. As many parts as there are cores are computed ahead."""
        if isinstance(self._parts, RangeParts):
            self._divide_by_ranges(self._parts)
        parts = [part for part in self._pieces if part]
        self._pieces = []
        packed_open = self._packed_open()
        for number in range(len(parts) + self._num_cores):
            if number < len(parts) and not self._is_closed:
                # The right side first, as a relation takes them. A stable sort, so that a second try gives the same.
                pieces = [piece for _, piece in sorted(parts[number], key=lambda piece: -piece[0])]
                self._running.append(PartTask(packed_open, pieces, self._num_cores))
                parts[number] = []
                del pieces
            if number >= self._num_cores and self._running:
                yield from self._running[0].bundles()
                del self._running[0]

    def _packed_open(self) -> Any:
        """Return the opener of the handler of a part: of the relation, or of its second step."""
        memory_bytes = get_config().memory_bytes // this_machine().num_cpus
        work = replace(self._work, memory_bytes=int(memory_bytes))
        if 0 in self._forms and self._forms[0].is_grouped:
            steps = in_two_steps(work.relation, Schema.from_arrow(self._forms[0].schema))
            assert steps is not None
            work = replace(work, relation=steps[1], schemas=(steps[0].output,))
        return put_packed(opener(work), str(work.relation))

    def close(self) -> None:
        """Cancel the tasks."""
        self._is_closed = True
        for part in list(self._running):
            part.cancel()

    def _divide_by_ranges(self, parts: RangeParts) -> None:
        groups, self._waiting = list(groups_of(self._waiting, self.group_nbytes)), []
        with ThreadPoolExecutor(self._num_cores, "penstock-ray-exchange") as threads:
            samples = threads.map(lambda group: self._sampled(input_of(group), parts), groups)
            bounds = bounds_of([key for keys in samples for key in keys], self._num_parts)
            self._parts = replace(parts, bounds=bounds)
            list(threads.map(self._add_and_drop, [groups] * len(groups), range(len(groups))))

    def _sampled(self, rows: TaskInput, parts: RangeParts) -> list[bytes]:
        task = remote(sample).options(**PLAIN_TASK)
        keys: list[bytes]
        keys, _ = outcome(lambda given: [task.remote(parts.keys, rows.slices, *given)], rows.items)
        return keys

    def _add_and_drop(self, groups: list[list[Bundle]], number: int) -> None:
        self.add(groups[number])
        groups[number] = []  # the store may free them


class DividedGroup:
    """The pieces that one task has made of a group of batches. Implements ``Remaker``.

    They are lost together, as they are on one node, so all are made again at once.
    """

    def __init__(self, exchange: RowExchange, node_id: str) -> None:
        self.node_id = node_id
        self._exchange = exchange
        self._recipes: list[Recipe] = []
        self._kept: dict[int, Any] | None = None  # pieces by their first rows, once results made of them were lost
        self._lock = threading.Lock()

    def piece(self, ref: Any, recipe: Recipe) -> StoredBatch:
        self._recipes.append(recipe)
        return StoredBatch(ref, recipe, self.node_id)

    def remake(self, recipe: Recipe) -> Any:
        piece = recipe.stored and recipe.stored()
        if not piece:
            with self._lock:
                self._kept = self._kept or self._made_again()
                return self._kept[recipe.start]
        lost = piece.ref
        with self._exchange.remaking:
            if piece.ref is lost:
                self._exchange.divide_again(self)
        return piece.ref

    def divide_again(self) -> None:
        """Make the pieces again that are still needed."""
        needed = [piece for recipe in self._recipes if (piece := recipe.stored and recipe.stored())]
        with self._lock:
            if needed or self._kept:
                made = self._made_again()
                self._kept = self._kept and made
                for piece in needed:
                    assert piece.recipe is not None
                    piece.ref, piece.node_id = made[piece.recipe.start], self.node_id

    def _made_again(self) -> dict[int, Any]:
        """Return a reference to each piece by its first row."""
        rows = TaskInput(0, self._recipes[0].slices, self._recipes[0].inputs())
        _, counts, self.node_id, refs = self._exchange.divided(rows)
        return dict(zip(starts(counts), refs, strict=True))


class PartTask:
    """The task that computes a part from its pieces. Implements ``Remaker`` for its output."""

    def __init__(self, packed_open: Any, pieces: list[StoredBatch], num_cores: int) -> None:
        self._packed_open = packed_open
        self._num_cores = num_cores
        self._pieces = pieces
        self._given: list[Any] = []
        self._num_rows_out = self._num_deaths = 0
        self._generator = self._started()

    def bundles(self) -> Iterator[Bundle]:
        """Yield the output. If the task has to start again, it skips the rows that are out."""
        recipes = tuple(piece.recipe for piece in self._pieces)
        while True:
            try:
                for batch in self._generator:
                    # The last object of a task that failed is its error.
                    num_rows, nbytes, node_id = ray.get(next(self._generator, batch))
                    recipe = Recipe(self, 0, None, recipes, self._num_rows_out, num_rows)
                    self._num_rows_out += num_rows
                    yield Bundle(StoredBatch(batch, recipe, node_id), num_rows, nbytes)
                    del batch
                break
            except ray.exceptions.RayError as exc:
                self._num_deaths += is_death(exc)
                if self._num_deaths > MAX_DEATHS or not (is_death(exc) or has_restored(self._pieces, self._given, exc)):
                    raise translated(exc) from exc
                self._generator = self._started()
        self._pieces, self._given = [], []

    def remake(self, recipe: Recipe) -> Any:
        task = remote(merge_rows).options(num_returns=2, **PLAIN_TASK)
        rows = self._packed_open, recipe.start, recipe.num_rows
        with ThreadPoolExecutor(self._num_cores, "penstock-ray-exchange") as threads:
            pieces = list(threads.map(Recipe.batch, recipe.items))
        _, (ref,) = outcome(lambda given: task.remote(*rows, given), pieces)
        return ref

    def cancel(self) -> None:
        ray.cancel(self._generator, force=True)

    def _started(self) -> Any:
        options = {"num_returns": "streaming", "_generator_backpressure_num_objects": MAX_OBJECTS_AHEAD}
        self._given = arguments(self._pieces)
        task = remote(merge).options(**PLAIN_TASK, **options)
        return task.remote(self._packed_open, self._num_rows_out, self._given)


def outcome(start: Callable[[list[Any]], list[Any]], items: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Run a task on stored batches, again if its worker dies or batches are lost.

    Return its first object, and references to the others.
    """
    num_deaths = 0
    while True:
        given = arguments(items)
        first, *others = start(given)
        try:
            return ray.get(first), others
        except ray.exceptions.RayError as exc:
            for other in others:
                other.future()  # read, or Ray would print its error
            num_deaths += is_death(exc)
            if num_deaths > MAX_DEATHS or not (is_death(exc) or has_restored(items, given, exc)):
                raise translated(exc) from exc


@cache
def remote(function: Callable[..., Any]) -> Any:
    return ray.remote(function)  # each one is sent to the workers once


def starts(counts: Sequence[int]) -> list[int]:
    """Return the first row of each piece; pieces without rows get numbers of others.

    >>> starts([3, 0, 2])
    [0, 3, 3]
    """
    return [0, *accumulate(counts)][:-1]


def input_of(bundles: Sequence[Bundle]) -> TaskInput:
    slices = tuple((bundle.offset, bundle.num_rows) for bundle in bundles)
    return TaskInput(0, slices, [bundle.handle for bundle in bundles])


def groups_of(bundles: Sequence[Bundle], nbytes: int) -> Iterator[list[Bundle]]:
    """Yield bundles in groups of about ``nbytes``."""
    group: list[Bundle] = []
    for bundle in bundles:
        group.append(bundle)
        if sum(each.nbytes for each in group) >= nbytes:
            yield group
            group = []
    if group:
        yield group


# --- in workers ---


def sample(keys: Any, slices: Slices, *items: PackedBatch) -> list[bytes]:
    return [key for batch in slices_from(slices, items) for key in sampled(batch, keys)]


def divide(
    parts: Parts, num_parts: int, work: RunRelation, known: dict[int, PieceForm], slices: Slices, *items: PackedBatch
) -> list[Any]:
    """Return the form of each input, the number of rows of each piece and this node; then the pieces, one input after
    another.

    ``known`` are the forms of earlier rows. Without one, the rows are grouped if that halves them.
    """
    batches = slices_from(slices, items)
    forms: dict[int, PieceForm] = {}
    pieces: list[pa.RecordBatch | None] = []
    for side in range(len(work.schemas)):
        mine = [batch for batch in batches if int(batch.schema.metadata[SIDE.encode()]) == side and batch.num_rows]
        if not mine:
            pieces += [None] * num_parts
            continue
        schema = known[side].schema if side in known else mine[0].schema.remove_metadata()
        rows = joined([with_types(work.relation, batch, schema) for batch in mine])
        steps = in_two_steps(work.relation, Schema.from_arrow(schema))
        is_grouped = steps is not None and (side not in known or known[side].is_grouped)
        if steps is not None and is_grouped:
            groups = computed(steps[0], rows)
            is_grouped = side in known or 2 * groups.num_rows <= rows.num_rows
            rows = groups if is_grouped else rows
        forms[side] = PieceForm(schema, is_grouped)
        marked = rows.replace_schema_metadata({SIDE: str(side)})
        pieces += divided(marked, parts, num_parts, side)
    counts = [0 if piece is None else piece.num_rows for piece in pieces]
    return [
        (forms, counts, ray.get_runtime_context().get_node_id()),
        *(packed_batch(piece) if count and piece else None for count, piece in zip(counts, pieces, strict=True)),
    ]


def merge(packed_open: bytes, num_skipped: int, pieces: Sequence[Any]) -> Iterator[Any]:
    """Yield the output of a relation over some pieces after ``num_skipped`` rows: a batch, its size and this node,
    another batch, its size and this node, and so on.
    """
    node_id = ray.get_runtime_context().get_node_id()
    for batch in merged(packed_open, pieces):
        rest = batch.slice(min(num_skipped, batch.num_rows))
        num_skipped -= batch.num_rows - rest.num_rows
        if rest.num_rows or not batch.num_rows:
            yield packed_batch(rest)
            yield rest.num_rows, rest.nbytes, node_id


def merge_rows(packed_open: bytes, start: int, num_rows: int, pieces: Sequence[Any]) -> tuple[None, PackedBatch]:
    """Return some rows of the output of a relation over some pieces."""
    return None, packed_batch(rows_of(merged(packed_open, pieces), start, num_rows))


def merged(packed_open: bytes, pieces: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    """Yield the output of a relation over some pieces. One thread makes the order of the rows the same each time."""
    with config(num_threads=1):
        handler = pickle.loads(packed_open)(WorkerContext(lambda: False, lambda error: None))
        try:
            for item in (*pieces, None):
                given = EndOfInput() if item is None else unpacked_batch(ray.get(item))
                yield from handler.process(given, 0)
        finally:
            handler.close()
