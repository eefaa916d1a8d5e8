"""The work of a shuffle in the workers: divide rows into pieces, and compute a part from its pieces."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import ray

from penstock.config import config
from penstock.contracts import EndOfInput, Handler, WorkerContext
from penstock.engine.handlers import StatelessHandler
from penstock.engine.pools.handler_slot import OpenHandler
from penstock.plan.stages import SIDE, RunRelation
from penstock.relational.partition import HashParts, RangeParts, divided, sampled
from penstock.relational.two_steps import computed, in_two_steps
from penstock.relational.typed_input import common_schema, with_types
from penstock.runners.ray.worker import PackedBatch, Slices, packed_batch, slices_from
from penstock.types import Schema, joined
from penstock.types.frozen import frozen

Parts = HashParts | RangeParts


class PieceForm(NamedTuple):
    """The columns of an input. With ``is_grouped`` its pieces are results of the first of two steps; see
    ``two_steps.py``.
    """

    schema: pa.Schema
    is_grouped: bool


def sample(keys: Any, slices: Slices, *items: PackedBatch) -> tuple[None, list[bytes]]:
    return None, [key for batch in slices_from(slices, items) for key in sampled(batch, keys)]


def divide(
    parts: Parts, num_parts: int, work: RunRelation, known: dict[int, PieceForm], slices: Slices, *items: PackedBatch
) -> list[Any]:
    """Return the pieces, one input after another; then the form of each input, the row count of each piece, the bytes
    of all pieces, and this node.

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
        schema = known[side].schema if side in known else common_schema(str(work.relation), mine)
        rows = joined([with_types(str(work.relation), batch, schema) for batch in mine])
        steps = in_two_steps(work.relation, Schema.from_arrow(schema))
        is_grouped = False
        if steps is not None and (side not in known or known[side].is_grouped):
            grouped = computed(steps[0], rows)
            is_grouped = side in known or 2 * grouped.num_rows <= rows.num_rows
            rows = grouped if is_grouped else rows
        forms[side] = PieceForm(schema, is_grouped)
        marked = rows.replace_schema_metadata({SIDE: str(side)})
        pieces += divided(marked, parts, num_parts, side)
    counts = [0 if piece is None else piece.num_rows for piece in pieces]
    packed = (packed_batch(piece) if count and piece else None for count, piece in zip(counts, pieces, strict=True))
    nbytes = sum(piece.nbytes for piece in pieces if piece is not None)
    return [*packed, (forms, counts, nbytes, ray.get_runtime_context().get_node_id())]


def no_handler(context: WorkerContext) -> Any:
    """Open nothing: functions that divide rows need no handler."""


@frozen
class PartOpener:
    """Opens the handler that computes parts; ``open`` of the relation's own handler does the rest."""

    open_relation: OpenHandler

    def __call__(self, context: WorkerContext) -> Handler:
        return PartsHandler(self.open_relation, context)


class PartsHandler(StatelessHandler):
    """Computes parts. One thread makes the order of the rows the same each time."""

    def __init__(self, open_relation: OpenHandler, context: WorkerContext) -> None:
        self._open_relation = open_relation
        self._context = context

    def process(self, item: Iterator[pa.RecordBatch], first_row: int) -> Iterator[pa.RecordBatch]:
        outputs = self._outputs(item)
        while True:
            with config(num_threads=1):  # other stages use this process between two outputs
                batch = next(outputs, None)
            if batch is None:
                return
            yield batch

    def _outputs(self, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        handler = self._open_relation(self._context)
        try:
            for item in chain(pieces, [EndOfInput()]):
                yield from handler.process(item, 0)
        finally:
            handler.close()
