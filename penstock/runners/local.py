"""Queries on this machine: threads for Arrow work, an event loop for async calls, processes on request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.config import Config
from penstock.contracts import Bundle, Emit
from penstock.engine.pools.threads import ThreadPool, Threads
from penstock.engine.resources import Cores
from penstock.engine.task_costs import Footprint
from penstock.engine.workers import PoolChoice
from penstock.errors import UdfError
from penstock.plan.optimizer import LOCAL_RULES
from penstock.plan.stages import CallBatch, CallUdf, RunRelation, Stage, Work, WriteOut
from penstock.protocols import OneWriterSink
from penstock.runners.openers import async_pool, opener, packed, restart_policy
from penstock.runners.placement import (
    Devices,
    placed_workers,
    sharing_key,
    this_machine,
)
from penstock.runners.query import Workplace

if TYPE_CHECKING:
    from penstock.engine.pools.process_group import ProcessGroup
    from penstock.events.loop_thread import LoopThread

ARROW_WORK = Footprint(num_inputs=0, num_outputs=2)  # a kernel's intermediate results
PYTHON_WORK = Footprint(num_inputs=1, num_outputs=2)  # arguments and results as Python objects or arrays
PROCESS_WORK = Footprint(num_inputs=2, num_outputs=3)  # the same, and both in shared memory on their way
WRITE_WORK = Footprint(num_inputs=1, num_outputs=1)  # the encoded rows

MAX_MOVED_NBYTES = 64 * 2**20
"""A function that carries more data stays on threads unless it asks for processes, because each would hold a copy."""


class LocalRunner:
    """Runs stages in this process and in worker processes on this machine."""

    rules = LOCAL_RULES

    @contextmanager
    def open(self, config: Config, stages: Sequence[Stage]) -> Iterator[Workplace]:
        workers = placed_workers(this_machine(), stages, config.thread_count)
        threads = Threads()
        try:
            make_pool = LocalPools(threads, config.thread_count, workers).make
            yield Workplace(make_pool, cores=Cores(config.thread_count), memory_bytes=config.memory_bytes)
        finally:
            threads.close()

    def fetch(self, bundle: Bundle) -> pa.RecordBatch:
        is_whole = bundle.num_rows == bundle.handle.num_rows  # a slice takes long with thousands of columns
        return bundle.handle if is_whole else bundle.handle.slice(bundle.offset, bundle.num_rows)


class LocalPools:
    """Makes the pools of one query. Stages that call methods of one object get the same processes or event loop."""

    def __init__(self, threads: Threads, num_cores: int, workers: Mapping[str, Sequence[Devices]]) -> None:
        self._threads = threads
        self._num_cores = num_cores
        self._workers = workers
        self._process_groups: dict[str, ProcessGroup] = {}
        self._loops: dict[str, LoopThread] = {}

    def make(self, stage: Stage, work: Work, emit: Emit) -> PoolChoice:
        """Return the pool for a stage, by the kind of its function and the user's options."""
        match work:
            case CallUdf(call) if call.udf.target.is_async and not stage.resources.use_process:
                return PoolChoice(async_pool(stage, work, emit, self._loops), False, PYTHON_WORK, is_gated=True)
            case CallUdf() | CallBatch():
                return self._function_pool(stage, work, emit)
            case RunRelation():  # one worker, which needs all the rows; DuckDB has threads of its own
                return PoolChoice(ThreadPool(opener(work), 1, self._threads, emit), takes_core=False)
            case WriteOut(sink, is_in_parts):
                has_one = not is_in_parts and isinstance(sink, OneWriterSink) and sink.needs_one_writer
                num_writers = 1 if has_one else self._num_cores
                return PoolChoice(ThreadPool(opener(work), num_writers, self._threads, emit), True, WRITE_WORK)
            case _:
                return PoolChoice(ThreadPool(opener(work), self._num_cores, self._threads, emit), True, ARROW_WORK)

    def _function_pool(self, stage: Stage, work: CallUdf | CallBatch, emit: Emit) -> PoolChoice:
        """Return processes or threads as requested; by default, threads that move to processes if that is faster."""
        num_workers, resources = len(self._workers[sharing_key(stage)]), stage.resources
        if resources.use_process or resources.gpus:
            return PoolChoice(self._process_pool(stage, work, _packed(work), emit), False, PROCESS_WORK)
        takes_core = resources.max_workers is None  # a number of workers that the user gives is for calls that wait
        open_handler = self._threads.one_at_a_time(opener(work)) if work.spec.target.is_class else opener(work)
        make_threads = partial(ThreadPool, open_handler, num_workers * resources.tasks_per_worker, self._threads)
        if resources.use_process is False or not 1 < num_workers <= self._num_cores:
            return PoolChoice(make_threads(emit), takes_core, PYTHON_WORK, is_gated=work.spec.target.is_async)

        from penstock.engine.pools.thread_to_process import ThreadToProcessPool
        from penstock.events.cpu_clock import wanted_cpu_s

        context = copy_context()  # the query's context: workers record in its account

        def make_processes(emit: Emit) -> ThreadPool | None:
            try:
                packed_open = context.run(_packed, work)
            except UdfError:
                return None
            return self._process_pool(stage, work, packed_open, emit) if len(packed_open) <= MAX_MOVED_NBYTES else None

        pool = ThreadToProcessPool(partial(make_threads, cpu_clock=wanted_cpu_s), make_processes, emit, work.spec.name)
        return PoolChoice(pool, takes_core, PROCESS_WORK, is_gated=work.spec.target.is_async)

    def _process_pool(self, stage: Stage, work: CallUdf | CallBatch, packed_open: bytes, emit: Emit) -> ThreadPool:
        from penstock.engine.pools.process_group import ProcessGroup
        from penstock.engine.pools.processes import process_opener

        key = sharing_key(stage)
        workers = self._workers[key]
        num_channels = stage.resources.tasks_per_worker
        environments = [environment(devices) for devices in workers]
        group = self._process_groups.setdefault(key, ProcessGroup(environments, num_channels))
        open_handler = process_opener(packed_open, group, restart_policy(work))
        return ThreadPool(open_handler, len(workers) * num_channels, self._threads, emit)


def _packed(work: CallUdf | CallBatch) -> bytes:
    return packed(opener(work), work.spec.name)


def environment(devices: Devices) -> dict[str, str]:
    """Return the variables that show a worker process only its own devices; without devices it sees all."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}
