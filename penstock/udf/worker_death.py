"""What a row gives that ends every worker process it is given to: an error, null, or nothing, as ``on_error`` says.

Called in the user's process, with a batch of that one row: no worker that sees it can tell.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import WorkerDiedError
from penstock.plan.stages import CallBatch, CallUdf
from penstock.udf import batches
from penstock.udf.arguments import Arguments
from penstock.udf.call import ApplySteps, Failures, Record, row_failure, with_column


class LostCall:
    """For ``func``, ``cls`` and their methods: the row stays, its result is null."""

    def __init__(self, work: CallUdf, steps: ApplySteps) -> None:
        self._work = work
        self._steps = steps

    def __call__(self, row: pa.RecordBatch, first_row: int, death: WorkerDiedError, record: Record) -> pa.RecordBatch:
        spec, arguments = self._work.call.udf, Arguments(self._work.call)
        if spec.policy.on_error == "raise":
            raise WorkerDiedError(row_failure(spec, arguments.at(row, 0), death)) from death
        Failures(spec, arguments, record).note(row, 0, first_row, death)
        return self._steps(with_column(row, self._work, pa.nulls(1, spec.return_dtype.arrow)), first_row)


class LostBatch:
    """For ``map_batches`` and its kind: the row is left out."""

    def __init__(self, work: CallBatch) -> None:
        self._spec = work.spec

    def __call__(self, row: pa.RecordBatch, first_row: int, death: WorkerDiedError, record: Record) -> None:
        if self._spec.policy.on_error == "raise":
            raise WorkerDiedError(batches.batch_failure(self._spec, row, death)) from death
        batches.note_failure(self._spec, row, first_row, death, record)
