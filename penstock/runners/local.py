"""Queries on this machine: threads for Arrow work, an event loop for async calls, processes where asked for."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from penstock.config import Config
from penstock.errors import UdfError
from penstock.execution.executor import PoolChoice
from penstock.execution.scheduling import Footprint
from penstock.execution.threads import ThreadPool, Threads
from penstock.expr.udf import UdfSpec
from penstock.plan.stages import AtMost, CallBatch, CallUdf, CombineSets, Exactly, Stage, Work, WriteOut
from penstock.protocols import Bundle, Emit
from penstock.runners.handlers import async_opener, opener, revival
from penstock.runners.placement import Devices, Machine, place, this_machine, wish_of
from penstock.runners.query import Workplace

SPARE_ASYNC_TASKS = 8
"""Tasks of an async stage beyond those whose calls can all wait at once: while one waits for its slowest row, the loop
makes the calls of the next."""

ARROW_WORK = Footprint(num_inputs=0, num_outputs=2)  # a kernel's intermediate results
PYTHON_WORK = Footprint(num_inputs=1, num_outputs=2)  # the arguments as objects or arrays of their own; the results too
PROCESS_WORK = Footprint(num_inputs=2, num_outputs=3)  # as well, and both in the memory in which they travel
WRITE_WORK = Footprint(num_inputs=1, num_outputs=1)  # what is being encoded


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
                lambda stage, work, emit: make_pool(
                    stage, work, emit, threads, config.thread_count, workers.get(id(stage), ())
                ),
                num_cores=config.thread_count,
                memory_bytes=config.memory_bytes,
            )
        finally:
            threads.close()

    def fetch(self, bundle: Bundle) -> pa.RecordBatch:
        return bundle.handle.slice(bundle.offset, bundle.num_rows)


def placed_workers(machine: Machine, stages: Sequence[Stage], num_cores: int) -> dict[int, list[Devices]]:
    """Return the workers of each stage that has a user's function, each with its devices, by the stage's identity."""
    wishes = {id(stage): wish for stage in stages if (wish := wish_of(stage, num_cores)) is not None}
    return dict(zip(wishes, place(machine, list(wishes.values())), strict=True))


def make_pool(
    stage: Stage, work: Work, emit: Emit, threads: Threads, num_cores: int, workers: Sequence[Devices]
) -> PoolChoice:
    """Return the pool that suits a stage: by the kind of its function and by what the user asked for."""
    match work:
        case CallUdf(call) if call.udf.is_async:
            from penstock.execution.aio import AsyncPool

            num_tasks = num_async_tasks(stage, call.udf)
            return PoolChoice(AsyncPool(async_opener(work), num_tasks, emit), False, PYTHON_WORK)
        case CallUdf() | CallBatch():
            spec = work.call.udf if isinstance(work, CallUdf) else work.spec
            if stage.resources.use_process or stage.resources.gpus:
                from penstock.execution.processes import ProcessPool

                try:
                    environments = [environment(devices) for devices in workers]
                    pool = ProcessPool(opener(work), len(workers), threads, emit, environments, revival(work))
                except (TypeError, AttributeError, pickle.PicklingError) as exc:
                    raise UdfError(
                        f"{spec.name!r} cannot be sent to a worker process, as something it uses cannot be pickled: "
                        f"{exc}. Make it inside the function or in __init__ of a class, or set use_process=False."
                    ) from exc
                return PoolChoice(pool, False, PROCESS_WORK)
            # A number that the user gave is for calls that wait; it is not bound by the cores.
            return PoolChoice(
                ThreadPool(opener(work), len(workers), threads, emit),
                takes_core=stage.resources.max_workers is None,
                footprint=PYTHON_WORK,
            )
        case CombineSets():  # one worker, which must have all the rows
            return PoolChoice(ThreadPool(opener(work), 1, threads, emit), takes_core=True)
        case _:
            footprint = WRITE_WORK if isinstance(work, WriteOut) else ARROW_WORK
            return PoolChoice(ThreadPool(opener(work), num_cores, threads, emit), True, footprint)


def num_async_tasks(stage: Stage, spec: UdfSpec) -> int:
    """Return how many tasks of an async stage are in flight at once, so that its calls are never fewer than allowed."""
    calls_per_task = stage.inbox.num_rows if isinstance(stage.inbox, Exactly | AtMost) and not spec.is_batch else 1
    return SPARE_ASYNC_TASKS + spec.num_at_once // calls_per_task


def environment(devices: Devices) -> dict[str, str]:
    """Return what makes a worker process see its own devices only; one that asked for none sees what this one sees."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}
