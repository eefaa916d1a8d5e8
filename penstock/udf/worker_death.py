"""The result of a row that ends every worker process: an error, null, or no row, depending on ``on_error``.

Called in the user's process with a batch of that one row.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import WorkerDiedError
from penstock.plan.stages import CallBatch, CallUdf
from penstock.udf.arguments import Arguments
from penstock.udf.batches import values_of
from penstock.udf.call import ApplySteps
from penstock.udf.failures import Failures, Record
from penstock.udf.results import with_column


def deadly_row_result(
    work: CallUdf | CallBatch,
    steps: ApplySteps,
    row: pa.RecordBatch,
    first_row: int,
    death: WorkerDiedError,
    record: Record,
) -> pa.RecordBatch | None:
    """Handle a row that ends its worker. ``func`` and ``cls`` give null for it; ``map_batches`` and others drop it."""
    values = Arguments(work.call).row_values if isinstance(work, CallUdf) else values_of(work.spec)
    failures = Failures(work, values, record)
    if not failures.is_tolerant:
        raise WorkerDiedError(failures.message(row, 0, first_row, death)) from death
    failures.record(row, 0, first_row, death)
    if isinstance(work, CallBatch):
        return None
    return steps(with_column(row, work, pa.nulls(1, work.spec.return_dtype.arrow)), first_row)
