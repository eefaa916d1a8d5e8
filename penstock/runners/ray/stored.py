"""Batches in the object store, and how to recompute them if the node that holds them is lost.

Ray could remake the output of an actor only while the same actor, with the same state, is alive; it cannot for ours.
So each batch has a recipe: the task that made it and the recipes of its inputs. Recipes hold no batches, so the store
is free to drop a batch once no bundle needs it.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import ray
from ray.exceptions import RayTaskError

from penstock.contracts import Bundle, Task
from penstock.runners.ray.cluster import is_node_alive
from penstock.runners.ray.failures import DEATHS, is_death, lost_object, translated
from penstock.runners.ray.worker import PackedBatch, Slices, input_from, packed_batch, unpacked_batch

NUM_REMADE_AT_ONCE = 8  # of the inputs of a task


class Remaker(Protocol):
    """Runs a task again, as often as wanted if it ``is_cheap``."""

    is_cheap: bool

    def remake(self, recipe: Recipe) -> Any:
        """Return a reference to the rows of a recipe, which are in the store. Blocks."""


class StoredBatch:
    """A batch in the object store: the handle of a bundle."""

    __slots__ = ("__weakref__", "node_id", "recipe", "ref")

    def __init__(self, ref: Any, recipe: Recipe | None, node_id: str | None = None) -> None:
        self.ref = ref
        self.node_id = node_id  # of the worker that made it; None if unknown
        self.recipe = recipe  # None: lives on the driver's node, without which there is no query
        if recipe is not None:
            recipe.stored = weakref.ref(self)

    def fetch(self) -> pa.RecordBatch:
        """Implements ``RemoteBatch``."""
        return unpacked_batch(fetched(self))

    def restore(self, lost: str) -> None:
        """Recompute the batch, unless another task has done so since its object was ``lost``."""
        assert self.recipe is not None
        with self.recipe.lock:
            if self.ref.hex() == lost:
                self.ref, self.node_id = self.recipe.remaker.remake(self.recipe), None


@dataclass(eq=False, slots=True)
class Recipe:
    """The rows of a task's output from ``start`` on, and the task's ``input`` as recipes."""

    remaker: Remaker
    input: TaskInput
    start: int
    num_rows: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    stored: weakref.ref[StoredBatch] | None = None

    def batch(self) -> StoredBatch:
        """Return the batch; recompute it if no bundle holds it."""
        with self.lock:
            stored = self.stored and self.stored()
            return stored or StoredBatch(self.remaker.remake(self), self)


@dataclass(slots=True)
class TaskInput:
    """A task's input, or the input for some of its rows, as an actor gets it."""

    first_row: int
    slices: Slices | None  # None: the only item is a read task
    items: list[Any]  # a read task, or stored batches; in ``as_recipes`` the recipes of the batches that have one

    @staticmethod
    def of(task: Task, offset: int = 0, num_rows: int | None = None) -> TaskInput:
        """Return the input of ``num_rows`` rows of a task after the first ``offset``; by default of all."""
        if not isinstance(task.item, tuple):
            return TaskInput(task.first_row, None, [task.item])
        bundles = task.item if num_rows is None else cut(task.item, offset, num_rows)
        return TaskInput.of_bundles(bundles, task.first_row + offset)

    @staticmethod
    def of_bundles(bundles: Sequence[Bundle], first_row: int = 0) -> TaskInput:
        slices = tuple((bundle.offset, bundle.num_rows) for bundle in bundles)
        return TaskInput(first_row, slices, [bundle.handle for bundle in bundles])

    def node_id(self) -> str | None:
        """Return the node that has most of the rows."""
        num_rows = Counter[str | None]()
        for item, (_, count) in zip(self.items, self.slices or (), strict=False):
            num_rows[item.node_id] += count
        return max(num_rows, key=num_rows.__getitem__, default=None)

    def as_recipes(self) -> TaskInput:
        """Return this input for a recipe, which holds no batches that can be recomputed."""
        items = [item.recipe or item if isinstance(item, StoredBatch) else item for item in self.items]
        return TaskInput(self.first_row, self.slices, items)

    def from_recipes(self) -> TaskInput:
        """Return the input of a recipe with its batches; recompute batches that no longer exist."""
        with ThreadPoolExecutor(NUM_REMADE_AT_ONCE, "penstock-ray-recovery") as threads:
            items = list(threads.map(lambda item: item.batch() if isinstance(item, Recipe) else item, self.items))
        return TaskInput(self.first_row, self.slices, items)

    def fetched(self) -> pa.RecordBatch:
        """Return the rows in this process."""
        return input_from(self.slices, tuple(map(fetched, self.items)))


def arguments(items: Sequence[Any]) -> list[Any]:
    """Return items as the arguments of a call; Ray replaces references with their objects."""
    return [item.ref if isinstance(item, StoredBatch) else item for item in items]


def has_restored(items: Sequence[Any], given: Sequence[Any], failure: BaseException) -> bool:
    """Recompute the items whose loss made a call fail, and cheap ones of lost nodes; ``given`` are their references.

    Return False if the call failed for another reason, or the item has no recipe. If a task's worker or node died, its
    batch may hold an error that does not name the batch. Then recompute the batches of lost nodes, or all batches if no
    node is lost. Blocks.
    """
    lost, is_unnamed = lost_object(failure), isinstance(failure, RayTaskError) and isinstance(failure.cause, DEATHS)
    if lost is None and not is_unnamed:
        return False
    known = [
        (item, item.recipe.remaker, ref.hex())
        for item, ref in zip(items, given, strict=True)
        if isinstance(item, StoredBatch) and item.recipe
    ]
    dead = {node_id for node_id in {item.node_id for item, _, _ in known} if node_id and not is_node_alive(node_id)}
    found = [
        (item, ref)
        for item, remaker, ref in known
        if ref == lost or (item.node_id in dead and (is_unnamed or remaker.is_cheap))
    ]
    if is_unnamed and not found:
        found = [(item, ref) for item, _, ref in known]
    with ThreadPoolExecutor(NUM_REMADE_AT_ONCE, "penstock-ray-recovery") as threads:
        list(threads.map(lambda lost: lost[0].restore(lost[1]), found))
    return bool(found)


def fetched(stored: StoredBatch) -> PackedBatch:
    """Return the object of a batch; recompute it if it is lost."""
    while True:
        ref = stored.ref
        try:
            return ray.get(ref)
        except ray.exceptions.RayError as exc:
            if is_death(exc) and stored.recipe is not None:  # of the task that made it
                stored.restore(ref.hex())
            elif not has_restored([stored], [ref], exc):
                raise translated(exc) from exc


def put_batch(batch: pa.RecordBatch) -> Bundle:
    """Put a batch into the store of the driver's node."""
    return Bundle(StoredBatch(ray.put(packed_batch(batch)), None), batch.num_rows, batch.nbytes)


def read_input(task: Task) -> Any:
    """Return the input of a handler in the driver's process."""
    return TaskInput.of(task).fetched() if isinstance(task.item, tuple) else task.item


def cut(bundles: tuple[Bundle, ...], offset: int, num_rows: int) -> tuple[Bundle, ...]:
    """Return ``num_rows`` rows of consecutive bundles after the first ``offset``."""
    found = []
    for bundle in bundles:
        first, last = max(offset, 0), min(offset + num_rows, bundle.num_rows)
        if first < last:
            found.append(bundle.slice(first, last - first))
        offset -= bundle.num_rows
    return tuple(found)
