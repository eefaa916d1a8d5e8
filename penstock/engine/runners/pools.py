"""Which pool suits which stage of a query on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.engine.pools.threads import OpenHandler, ThreadPool, Threads
from penstock.engine.runners.handlers import async_opener, opener, revival
from penstock.engine.runners.placement import Devices, sharing_key
from penstock.engine.scheduling import Footprint
from penstock.engine.stage import PoolChoice
from penstock.errors import UdfError
from penstock.expr.udf import UdfSpec
from penstock.plan.stages import AtMost, CallBatch, CallUdf, CombineSets, Exactly, Stage, Work, WriteOut
from penstock.protocols import Emit

if TYPE_CHECKING:
    from penstock.engine.pools.asyncio import LoopThread
    from penstock.engine.pools.process_group import Crew
    from penstock.engine.pools.processes import ProcessPool

SPARE_ASYNC_TASKS = 8
"""Tasks of an async stage beyond those whose calls can all wait at once: while one waits for its slowest row, the loop
makes the calls of the next."""

TASKS_THAT_LINGER = 8
"""How many times as many tasks of an API stage are in flight as would do if all calls took as long: of those, most wait
for their slowest row. Answers of models differ in length, and so in time, by a factor of ten and more."""

ARROW_WORK = Footprint(num_inputs=0, num_outputs=2)  # a kernel's intermediate results
PYTHON_WORK = Footprint(num_inputs=1, num_outputs=2)  # the arguments as objects or arrays of their own; the results too
PROCESS_WORK = Footprint(num_inputs=2, num_outputs=3)  # as well, and both in the memory in which they travel
WRITE_WORK = Footprint(num_inputs=1, num_outputs=1)  # what is being encoded

MAX_MOVED_NBYTES = 64 * 2**20
"""A function that carries more data with it stays on threads, unless it is asked to run in processes: each would hold
the data again."""


class LocalPools:
    """Makes the pools of one query. Stages that call methods of one object get the same processes or event loop."""

    def __init__(self, threads: Threads, num_cores: int, workers: Mapping[str, Sequence[Devices]]) -> None:
        self._threads = threads
        self._num_cores = num_cores
        self._workers = workers
        self._crews: dict[str, Crew] = {}
        self._loops: dict[str, LoopThread] = {}

    def make(self, stage: Stage, work: Work, emit: Emit) -> PoolChoice:
        """Return the pool that suits a stage: by the kind of its function and by what the user asked for."""
        match work:
            case CallUdf(call) if call.udf.target.is_async:
                return self._async_pool(stage, work, emit)
            case CallUdf() | CallBatch():
                return self._function_pool(stage, work, emit)
            case CombineSets():  # one worker, which must have all the rows
                return PoolChoice(ThreadPool(opener(work), 1, self._threads, emit), takes_core=True)
            case _:
                footprint = WRITE_WORK if isinstance(work, WriteOut) else ARROW_WORK
                return PoolChoice(ThreadPool(opener(work), self._num_cores, self._threads, emit), True, footprint)

    def _async_pool(self, stage: Stage, work: CallUdf, emit: Emit) -> PoolChoice:
        from penstock.engine.pools.asyncio import AsyncPool, LoopThread

        loop = work.call.udf.builtin.event_loop
        key = loop or sharing_key(stage)
        if key not in self._loops:
            self._loops[key] = LoopThread(is_fast=loop is not None)
        capacity = num_async_tasks(stage, work.call.udf)
        return PoolChoice(AsyncPool(async_opener(work), capacity, emit, self._loops[key]), False, PYTHON_WORK)

    def _function_pool(self, stage: Stage, work: CallUdf | CallBatch, emit: Emit) -> PoolChoice:
        """Return processes or threads as asked; without a word, threads that move to processes if that is better."""
        num_workers, resources = len(self._workers[sharing_key(stage)]), stage.resources
        if resources.use_process or resources.gpus:
            return PoolChoice(self._process_pool(stage, work, emit), False, PROCESS_WORK)
        # A number of workers that the user gave is for calls that wait; it is not bound by the cores.
        takes_core = resources.max_workers is None
        if resources.use_process is False or not 1 < num_workers <= self._num_cores:
            return PoolChoice(ThreadPool(self._opener(work), num_workers, self._threads, emit), takes_core, PYTHON_WORK)

        from penstock.engine.pools.thread_to_process import MovingPool
        from penstock.udf.cpu_clock import wanted_cpu_s

        def make_threads(emit: Emit) -> ThreadPool:
            return ThreadPool(self._opener(work), num_workers, self._threads, emit, wanted_cpu_s)

        def make_processes(emit: Emit) -> ProcessPool | None:
            try:
                pool = self._process_pool(stage, work, emit)
            except UdfError:
                return None
            return pool if len(pool.packed_open) <= MAX_MOVED_NBYTES else None

        return PoolChoice(MovingPool(make_threads, make_processes, emit), takes_core, PROCESS_WORK)

    def _opener(self, work: CallUdf | CallBatch) -> OpenHandler:
        """Return what opens handlers on threads; those with an instance one after the other."""
        is_class = (work.call.udf if isinstance(work, CallUdf) else work.spec).target.is_class
        return self._threads.in_turn(opener(work)) if is_class else opener(work)

    def _process_pool(self, stage: Stage, work: CallUdf | CallBatch, emit: Emit) -> ProcessPool:
        from penstock.engine.pools.process_group import Crew
        from penstock.engine.pools.processes import ProcessPool

        key = sharing_key(stage)
        workers = self._workers[key]
        crew = self._crews.setdefault(key, Crew([environment(devices) for devices in workers]))
        try:
            return ProcessPool(opener(work), len(workers), self._threads, emit, crew, revival(work))
        except Exception as exc:  # whatever __reduce__ of an object raises
            spec = work.call.udf if isinstance(work, CallUdf) else work.spec
            raise UdfError(
                f"{spec.name!r} cannot be sent to a worker process, as something it uses cannot be pickled: "
                f"{exc}. Make it inside the function or in __init__ of a class, or set use_process=False."
            ) from exc


def num_async_tasks(stage: Stage, spec: UdfSpec) -> int:
    """Return how many tasks of an async stage are in flight at once, so that its calls are never fewer than allowed."""
    calls_per_task = (
        stage.inbox.num_rows if isinstance(stage.inbox, Exactly | AtMost) and not spec.target.is_batch else 1
    )
    num_tasks = spec.max_concurrent_calls // calls_per_task
    return SPARE_ASYNC_TASKS + (num_tasks if spec.builtin.task_rows is None else num_tasks * TASKS_THAT_LINGER)


def environment(devices: Devices) -> dict[str, str]:
    """Return what makes a worker process see its own devices only; one that asked for none sees what this one sees."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}
