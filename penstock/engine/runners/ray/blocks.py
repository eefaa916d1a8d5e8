"""Results of a query as tables in Ray's object store, for Ray Data."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.engine.protocols import Bundle
from penstock.engine.runners.ray.exchange import PLAIN_TASK, input_of, outcome, remote
from penstock.engine.runners.ray.runner import RayRunner
from penstock.engine.runners.ray.worker import PackedBatch, Slices, input_from


class BlockRunner(RayRunner):
    """Gives references to tables instead of rows. A task makes each table from a batch; the driver gets neither."""

    def fetch(self, bundle: Bundle) -> Any:
        rows, task = input_of([bundle]), remote(make_block).options(num_returns=2, **PLAIN_TASK)
        _, (block,) = outcome(lambda given: task.remote(rows.slices, *given), rows.items)
        return block


def make_block(slices: Slices, item: PackedBatch) -> tuple[None, pa.Table]:
    return None, pa.table(input_from(slices, (item,)))
