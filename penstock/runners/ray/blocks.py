"""Results of a query as tables in Ray's object store, for Ray Data."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
import ray

from penstock.contracts import Bundle
from penstock.runners.ray.failures import is_death, translated
from penstock.runners.ray.pool import MAX_DEATHS
from penstock.runners.ray.runner import RayRunner
from penstock.runners.ray.stored import TaskInput, arguments, has_restored
from penstock.runners.ray.worker import PackedBatch, Slices, input_from


class BlockRunner(RayRunner):
    """Gives references to tables instead of rows. A task makes each table from a batch; the driver gets neither."""

    def fetch(self, bundle: Bundle) -> Any:
        rows, num_deaths = TaskInput.of_bundles([bundle]), 0
        while True:
            given = arguments(rows.items)
            is_made, block = block_maker().remote(rows.slices, *given)
            try:
                ray.get(is_made)
            except ray.exceptions.RayError as exc:
                block.future()  # read, or Ray would print its error
                num_deaths += is_death(exc)
                if num_deaths > MAX_DEATHS or not (is_death(exc) or has_restored(rows.items, given, exc)):
                    raise translated(exc) from exc
            else:
                return block


@cache
def block_maker() -> Any:
    """Return the task. It holds no core, since the actors of the query may hold all of them.

    Ray itself must not run it again: it cannot remake the batches of actors.
    """
    return ray.remote(num_cpus=0, scheduling_strategy="SPREAD", max_retries=0, num_returns=2)(make_block)


def make_block(slices: Slices, item: PackedBatch) -> tuple[None, pa.Table]:
    return None, pa.table(input_from(slices, (item,)))
