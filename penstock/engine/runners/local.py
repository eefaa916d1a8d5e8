"""Queries on this machine: threads for Arrow work, an event loop for async calls, processes where asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from penstock.config import Config
from penstock.engine.pools.threads import Threads
from penstock.engine.runners.placement import Machine, placed_workers, this_machine
from penstock.engine.runners.pools import LocalPools
from penstock.engine.runners.query import Workplace
from penstock.plan.stages import Stage
from penstock.protocols import Bundle


class LocalRunner:
    """Runs stages in this process and in worker processes on this machine."""

    def __init__(self, machine: Machine | None = None) -> None:
        self._machine = machine

    @contextmanager
    def open(self, config: Config, stages: Sequence[Stage]) -> Iterator[Workplace]:
        workers = placed_workers(self._machine or this_machine(), stages, config.thread_count)
        threads = Threads()
        try:
            yield Workplace(
                LocalPools(threads, config.thread_count, workers).make,
                num_cores=config.thread_count,
                memory_bytes=config.memory_bytes,
            )
        finally:
            threads.close()

    def fetch(self, bundle: Bundle) -> pa.RecordBatch:
        return bundle.handle.slice(bundle.offset, bundle.num_rows)
