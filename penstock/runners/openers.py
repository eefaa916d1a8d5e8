"""Open the handler of a stage's work in a worker, with the settings of the driver."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.cache.ledger.open_ledgers import inherit_job_folder, job_folder
from penstock.config import get_config, inherit_task_nbytes, set_config
from penstock.contracts import Emit, Handler, WorkerContext
from penstock.engine.handlers import PartHandler, ReadHandler, TransformHandler, WriteHandler, WritingHandler
from penstock.engine.pools.handler_slot import OpenHandler
from penstock.engine.pools.worker_restart import RestartPolicy
from penstock.engine.steps import Steps
from penstock.errors import UdfError
from penstock.events.metrics import collect_for_driver
from penstock.plan.cascade_relations import Calibrate, DrawSample, Route, SizeSample
from penstock.plan.pair_relations import NearestMaker
from penstock.plan.relations import DeferredRelation, GroupRows, Relation, Sort
from penstock.plan.similarity import DropNear, DropSimilar, Nearest
from penstock.plan.stages import CallBatch, CallUdf, Read, RunRelation, Stage, Step, Transform, Work, WriteOut
from penstock.protocols import PartSink
from penstock.runners.placement import num_async_tasks, sharing_key, this_machine
from penstock.storage.secret import known_secrets, restore_secrets
from penstock.storage.storage_options import all_shared_options, restore_shared_options
from penstock.types import Schema
from penstock.udf.batches import BatchHandler
from penstock.udf.call import UdfHandler
from penstock.udf.worker_death import deadly_row_result

if TYPE_CHECKING:
    from penstock.engine.pools.asyncio import AsyncPool, OpenAsyncHandler
    from penstock.events.loop_thread import LoopThread

SETTINGS = ("allow_local_files", "allow_private_urls", "cache_dir", "max_response_bytes", "prices", "temp_dir")
"""The settings that apply to user code in workers. The others are for the process that runs the query."""


def opener(work: Work) -> OpenHandler:
    """Return a picklable function that opens the handler of ``work`` with the settings of this process."""
    if isinstance(work, Read):  # without its source, which may hold connections: workers get tasks
        return partial(_open_read, work.source.name, work.schema, work.steps, DriverState.here())
    return partial(_open, work, DriverState.here())


def writing_opener(work: CallUdf, sink: PartSink, min_nbytes: int) -> OpenHandler:
    """Return a picklable function that opens a ``WritingHandler``."""
    return partial(_open_writing, opener(work), sink, min_nbytes)


def async_opener(work: CallUdf) -> OpenAsyncHandler:
    """Return a picklable function that opens the handler of an async UDF. Only async queries load asyncio."""
    from penstock.udf.aio import AsyncUdfHandler

    driver = DriverState.here()

    def open_handler(context: WorkerContext) -> AsyncUdfHandler:
        driver.apply()
        return AsyncUdfHandler(work, Steps(work.steps), context)

    return open_handler


def async_pool(stage: Stage, work: CallUdf, emit: Emit, loops: dict[str, LoopThread], **options: Any) -> AsyncPool:
    """Return a pool on one of the ``loops`` of a query: all remote models share one, as do methods of one object."""
    from penstock.engine.pools.asyncio import LOOP_NAME, ApiLoop, AsyncPool
    from penstock.events.loop_thread import LoopThread

    key = work.spec.builtin.event_loop or sharing_key(stage)
    if key not in loops:
        loops[key] = LoopThread(LOOP_NAME) if work.spec.builtin.event_loop is None else ApiLoop()
    return AsyncPool(async_opener(work), num_async_tasks(stage, work.spec), emit, loops[key], **options)


def packed(open_handler: OpenHandler, name: str, where: str = "a worker process") -> bytes:
    """Pickle the opener of the handlers of ``name``. Raise UdfError if user code cannot be pickled."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(open_handler))
    except Exception as exc:  # __reduce__ of an object may raise anything
        raise UdfError(
            f"{name!r} cannot be sent to {where} because something it uses cannot be pickled: {exc}. Make it inside "
            "the function or in __init__ of a class; on one machine, use_process=False keeps it in this process."
        ) from exc


def restart_policy(work: CallUdf | CallBatch) -> RestartPolicy:
    """Return the policy for worker processes that die of ``work``."""
    give_up, size = partial(deadly_row_result, work, Steps(work.steps)), work.spec.batch_size
    num_retries = max(work.spec.policy.max_retries, 1)
    return RestartPolicy(give_up, num_retries, size if isinstance(size, int) else None)


@dataclass(frozen=True)
class DriverState:
    """State of the driver that its workers copy: settings, storage options, secrets, the folder of a job."""

    pid: int
    settings: Mapping[str, Any]
    storage_options: Mapping[str, Mapping[str, Any]]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    job_folder: str = ""
    task_nbytes: int = 0  # see ``piece_nbytes``

    @staticmethod
    def here() -> DriverState:
        config = get_config()
        if folder := job_folder():
            os.makedirs(folder, exist_ok=True)  # for workers of other machines that see the folder
        return DriverState(
            os.getpid(),
            {name: getattr(config, name) for name in SETTINGS},
            all_shared_options(),
            known_secrets(),
            folder,
            config.task_nbytes,
        )

    def apply(self) -> None:
        """Apply the state to this process, unless it is the driver's."""
        if os.getpid() != self.pid:
            set_config(**self.settings, dashboard=False)  # the driver's page shows the query
            restore_shared_options(self.storage_options)
            restore_secrets(self.secrets)
            inherit_job_folder(self.job_folder if os.path.isdir(self.job_folder) else "")
            inherit_task_nbytes(self.task_nbytes)
            collect_for_driver()


def _open_read(
    source_name: str, schema: Schema | None, steps: Sequence[Step], driver: DriverState, context: WorkerContext
) -> Handler:
    driver.apply()
    return ReadHandler(source_name, schema, steps)


def _open_writing(open_handler: OpenHandler, sink: PartSink, min_nbytes: int, context: WorkerContext) -> Handler:
    return WritingHandler(open_handler(context), PartHandler(sink), min_nbytes)


def _open(
    work: Transform | CallUdf | CallBatch | RunRelation | WriteOut, driver: DriverState, context: WorkerContext
) -> Handler:
    driver.apply()
    match work:
        case Transform(steps):
            return TransformHandler(steps)
        case CallUdf(steps=steps) if work.spec.target.is_async:
            from penstock.udf.aio import OwnLoopHandler

            return OwnLoopHandler(work, Steps(steps), context)
        case CallUdf(steps=steps):
            return UdfHandler(work, Steps(steps), context)
        case CallBatch(steps=steps):
            return BatchHandler(work, Steps(steps), context)
        case RunRelation(relation):
            return _open_relation(relation, work, context)
        case WriteOut(sink, is_in_parts):
            return PartHandler(sink) if is_in_parts and isinstance(sink, PartSink) else WriteHandler(sink)


def _open_relation(relation: Relation, work: RunRelation, context: WorkerContext) -> Handler:
    # A share of a cluster's memory may be larger than this machine's memory.
    work = replace(work, memory_bytes=min(work.memory_bytes, get_config().memory_bytes))
    match relation:
        case (Nearest() as nearest) | DeferredRelation(NearestMaker() as nearest):
            from penstock.similarity.nearest import NearestHandler

            return NearestHandler(nearest, work, has_gpu=bool(this_machine().gpus), is_cancelled=context.is_cancelled)
        case DropNear():
            from penstock.similarity.near_duplicates import DropNearHandler

            return DropNearHandler(relation, work.memory_bytes, context.is_cancelled)
        case DrawSample() | SizeSample() | Calibrate() | Route():
            from penstock.ai.cascade.handlers import cascade_handler

            return cascade_handler(relation, work, context.is_cancelled)
        case DropSimilar():
            from penstock.similarity.similar_texts import DropSimilarHandler

            return DropSimilarHandler(relation, work, context.is_cancelled)
        case Sort(num_rows=None) | GroupRows():
            from penstock.relational.external_sort import SortHandler

            return SortHandler(relation, work, context.is_cancelled)
        case _:
            from penstock.relational.handler import RelationHandler

            return RelationHandler(relation, work)
