"""What a row gives that ends every worker process it is given to: an error, null, or nothing, as ``on_error`` says.

Called in the user's process, with a batch of that one row: no worker that sees it can tell.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import WorkerDiedError
from penstock.plan.stages import CallBatch, CallUdf
from penstock.udf import batches
from penstock.udf.arguments import Arguments
from penstock.udf.call import ApplySteps, log_failure, row_failure, with_column


class LostCall:
    """For ``func``, ``cls`` and their methods: the row stays, its result is null."""

    def __init__(self, work: CallUdf, steps: ApplySteps) -> None:
        self._work = work
        self._steps = steps

    def __call__(self, row: pa.RecordBatch, first_row: int, death: WorkerDiedError) -> pa.RecordBatch:
        spec = self._work.call.udf
        if spec.policy.on_error == "raise":
            values = Arguments(self._work.call).at(row, 0)
            raise WorkerDiedError(row_failure(spec, values, death)) from death
        log_failure(spec, death)
        return self._steps(with_column(row, self._work, pa.nulls(1, spec.return_dtype.arrow)), first_row)


class LostBatch:
    """For ``map_batches`` and its kind: the row is left out."""

    def __init__(self, work: CallBatch) -> None:
        self._spec = work.spec

    def __call__(self, row: pa.RecordBatch, first_row: int, death: WorkerDiedError) -> None:
        text = batches.batch_failure(self._spec, row, death)
        if self._spec.policy.on_error == "raise":
            raise WorkerDiedError(text) from death
        batches.log_failure(self._spec, text)
