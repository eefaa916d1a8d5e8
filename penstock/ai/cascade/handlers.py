"""The handlers of ``ask`` with a cheap judge: draw a sample of all rows, size it, and find the thresholds.

A handler takes and gives batches. It calls no model: the plan does, between these handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.ai.cascade.calibration import Calibration, LabelledRows, Numbers
from penstock.ai.cascade.thresholds import max_calibration_rows, pilot_rows, wanted_calibration_rows
from penstock.contracts import EndOfInput, Handler, check_not_cancelled
from penstock.cost.accounts import current_account, is_sampling
from penstock.events.metrics import increment_counter
from penstock.expr.arrays import validity
from penstock.expr.vector_matrix import matrix_of
from penstock.plan.cascade_relations import (
    ANSWER,
    HIGH,
    IS_ASKED,
    IS_KNOWN,
    IS_SCORED,
    LABEL,
    LOW,
    NUMBER,
    PROBE,
    SCORE,
    VECTOR,
    Calibrate,
    CascadeRelation,
    DrawSample,
    Route,
    SizeSample,
)
from penstock.plan.stages import RunRelation
from penstock.relational.handler import no_rows
from penstock.relational.spill import Place, SpilledBatches
from penstock.relational.typed_input import TypedInput
from penstock.types import Schema
from penstock.types.plain import arrow_numbers, numpy_values, without_nulls

SEED = 36  # fixed: a resumed job asks about the same rows, whose answers are in its ledger

ROUTES = ("asked for the sample", "asked", "no by the judge", "yes by the judge")


def cascade_handler(relation: CascadeRelation, work: RunRelation, is_cancelled: Callable[[], bool]) -> Handler:
    match relation:
        case DrawSample():
            return DrawHandler(relation, work, is_cancelled)
        case SizeSample():
            return SizeHandler(relation)
        case Calibrate():
            return CalibrateHandler(relation)
        case Route():
            return RouteHandler(relation)


class DrawHandler:
    """Holds all rows in a nameless file, then gives the pilot, the candidates and all rows, each in input order."""

    def __init__(self, relation: DrawSample, work: RunRelation, is_cancelled: Callable[[], bool]) -> None:
        self._relation = relation
        self._input = TypedInput(str(relation), work.schemas[0])
        self._is_cancelled = is_cancelled
        self._spilled = SpilledBatches(str(relation))
        self._held: list[Place] = []
        self._num_rows = 0

    def process(self, item: Any, first_row: int) -> Iterator[pa.RecordBatch]:
        if isinstance(item, EndOfInput):
            self._hold(self._input.end())
            return self._drawn()
        self._hold(self._input.add(item))
        return iter(())

    def close(self) -> None:
        self._input.close()
        self._spilled.close()

    def _hold(self, batches: Iterator[pa.RecordBatch]) -> None:
        for batch in batches:
            self._held.append(self._spilled.put(batch.replace_schema_metadata(None)))
            self._num_rows += batch.num_rows

    def _drawn(self) -> Iterator[pa.RecordBatch]:
        if (schema := self._input.schema) is None:
            return  # an input of unknown columns had no rows
        output = self._relation.schema(schema).to_arrow()
        for probes in draw_probes(self._num_rows):
            for batch, start in self._rows():
                own = np.arange(*np.searchsorted(probes[:, 0], [start, start + batch.num_rows]))
                if len(own):
                    numbers, ranks = probes[own].T
                    yield self._probed(batch.take(arrow_numbers(numbers - start)), numbers, ranks, output)
        for batch, start in self._rows():
            numbers = np.arange(start, start + batch.num_rows)
            yield _with_probe(batch, output, numbers, np.full(len(numbers), -1))
        yield no_rows(output)

    def _rows(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the rows that were held, each batch with the number of its first row."""
        start = 0
        for place in self._held:
            check_not_cancelled(self._is_cancelled)
            batch = self._spilled.get(place)
            yield batch, start
            start += batch.num_rows

    def _probed(self, rows: pa.RecordBatch, numbers: Numbers, ranks: Numbers, output: pa.Schema) -> pa.RecordBatch:
        """Return copies of rows with only the columns that the model and the judge read."""
        columns = [
            column if name in self._relation.columns else pa.nulls(len(column), column.type)
            for name, column in zip(rows.schema.names, rows.columns, strict=True)
        ]
        return _with_probe(pa.RecordBatch.from_arrays(columns, schema=rows.schema), output, numbers, ranks)


def draw_probes(num_rows: int, seed: int = SEED) -> tuple[Numbers, Numbers]:
    """Return the pilot and the candidates for calibration, uniform over all rows: pairs of a row's number and its rank.

    The ranks are random. The pilot has rank 0; the n first candidates are a uniform sample of n rows.
    """
    num_pilot = pilot_rows(num_rows)
    num_drawn = min(num_pilot + max_calibration_rows(num_rows), num_rows)
    numbers = np.random.default_rng(seed).choice(num_rows, num_drawn, replace=False, shuffle=True)
    ranks = np.maximum(np.arange(num_drawn) - num_pilot + 1, 0)
    pairs = np.column_stack([numbers, ranks]).astype(np.int64)
    pilot, candidates = pairs[:num_pilot], pairs[num_pilot:]
    return pilot[np.argsort(pilot[:, 0])], candidates[np.argsort(candidates[:, 0])]


class SizeHandler:
    """Passes rows on, without the candidates that are not needed after the labels of the pilot."""

    def __init__(self, relation: SizeSample) -> None:
        self._promise = relation.promise
        self._pilot: list[Numbers] = []
        self._num_needed: int | None = None

    def process(self, item: Any, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if isinstance(item, EndOfInput):
            return iter(())
        item = item.replace_schema_metadata(None)
        ranks = numpy_values(item.column(PROBE))
        self._pilot.append(_flags(item.column(LABEL))[ranks == 0])
        if not (ranks > 0).any():
            return item
        if self._num_needed is None:
            self._num_needed = wanted_calibration_rows(np.concatenate(self._pilot), self._promise)
        return item.filter(arrow_numbers(ranks <= self._num_needed))

    def close(self) -> None:
        pass


class CalibrateHandler:
    """Collects the samples, finds the thresholds when the first other row comes, and passes the other rows on."""

    def __init__(self, relation: Calibrate) -> None:
        self._relation = relation
        self._samples: list[LabelledRows] = []
        self._width = 0  # of the vectors
        self._found: Calibration | None = None

    def process(self, item: Any, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if isinstance(item, EndOfInput):
            return iter(())
        is_row = numpy_values(item.column(PROBE)) < 0
        if not is_row.all():
            self._samples.append(self._sampled(item.filter(arrow_numbers(~is_row))))
            item = item.filter(arrow_numbers(is_row))
        if item.num_rows and self._found is None:
            self._found = Calibration(LabelledRows.joined(self._samples), self._relation.promise)
            if not is_sampling():  # a cost estimate has too few rows to test the judge
                self._found.report(self._relation.title)
        return self._routed(item)

    def close(self) -> None:
        self._samples, self._found = [], None

    def _sampled(self, rows: pa.RecordBatch) -> LabelledRows:
        labels = rows.column(LABEL)
        is_null = ~validity(labels)
        numbers, ranks = numpy_values(rows.column(NUMBER)), numpy_values(rows.column(PROBE))
        return LabelledRows(
            numbers, ranks, _flags(labels), is_null, numpy_values(rows.column(SCORE)), self._vectors(rows)
        )

    def _vectors(self, rows: pa.RecordBatch) -> Numbers:
        """Return the vectors, NaN for a null."""
        if not self._relation.has_vector:
            return np.zeros((rows.num_rows, 0))
        found, places = matrix_of(rows.column(VECTOR), None, self._relation.title)
        self._width = max(self._width, found.shape[1])  # a batch may have nulls alone
        vectors = np.full((rows.num_rows, self._width), np.nan)
        if len(places):
            vectors[places] = found
        return vectors

    def _routed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        output = self._relation.schema(Schema.from_arrow(rows.schema.remove_metadata())).to_arrow()
        if self._found is None:
            return no_rows(output)
        found, num_rows = self._found, rows.num_rows
        labels, is_null, is_known = found.known(numpy_values(rows.column(NUMBER)))
        scores = found.learned_scores(self._vectors(rows), num_rows)
        made = {
            LABEL: arrow_numbers(labels, is_null),
            SCORE: arrow_numbers(scores, np.isnan(scores)),
            IS_KNOWN: arrow_numbers(is_known),
            IS_SCORED: arrow_numbers(~is_known & found.is_scored),
            LOW: arrow_numbers(np.full(num_rows, found.thresholds.low)),
            HIGH: arrow_numbers(np.full(num_rows, found.thresholds.high)),
        }
        columns = [made[name] if name in made else rows.column(name) for name in output.names]
        return pa.RecordBatch.from_arrays(columns, schema=output)


class RouteHandler:
    """Decides the rows outside the thresholds, and counts the rows on each route. A row without a score is asked."""

    def __init__(self, relation: Route) -> None:
        self._relation = relation

    def process(self, item: Any, first_row: int) -> pa.RecordBatch | Iterator[pa.RecordBatch]:
        if isinstance(item, EndOfInput):
            return iter(())
        labels, is_known = item.column(LABEL), numpy_values(item.column(IS_KNOWN))
        scores, low, high = (numpy_values(item.column(name)) for name in (SCORE, LOW, HIGH))
        is_no, is_yes = ~is_known & (scores < low), ~is_known & (scores >= high)
        is_asked = ~(is_known | is_no | is_yes)
        for route, rows in zip(ROUTES, (is_known, is_asked, is_no, is_yes), strict=True):
            if num_rows := int(rows.sum()):
                increment_counter(f"{self._relation.title}: {route}", num_rows)
        self._count_saved(int((is_no | is_yes).sum()))
        is_null = is_asked | (is_known & ~validity(labels))
        made = {
            IS_ASKED: arrow_numbers(is_asked),
            ANSWER: arrow_numbers(np.where(is_known, _flags(labels), is_yes), is_null),
        }
        output = self._relation.schema(Schema.from_arrow(item.schema.remove_metadata())).to_arrow()
        columns = [made[name] if name in made else item.column(name) for name in output.names]
        return pa.RecordBatch.from_arrays(columns, schema=output)

    def close(self) -> None:
        pass

    def _count_saved(self, num_rows: int) -> None:
        """Count the dollars that calls for these rows would cost, by the mean of the model's calls so far."""
        account = current_account()
        for use in account.models if account is not None else ():
            if (use.provider, use.model) == self._relation.billed_as and use.num_calls and use.dollars:
                saved = num_rows * use.dollars / use.num_calls
                increment_counter(f"{self._relation.title}: dollars that calls would cost", saved)


def _flags(labels: pa.Array) -> Numbers:
    """Return labels as booleans; a row that failed or that the model declined is not accepted, as in a filter."""
    return numpy_values(without_nulls(labels, False))


def _with_probe(rows: pa.RecordBatch, output: pa.Schema, numbers: Numbers, ranks: Numbers) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*rows.columns, arrow_numbers(numbers), arrow_numbers(ranks)], schema=output)
