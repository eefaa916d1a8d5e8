"""From a stage's work, which is data, to the handler that does it. Called in the worker, wherever that is."""

from __future__ import annotations

import os
import pickle
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.cache.ledger.open_ledgers import inherit_job_folder, job_folder
from penstock.config import get_config, set_config
from penstock.cost.accounts import AccountTerms, inherit_account
from penstock.engine.pools.threads import OpenHandler
from penstock.engine.pools.worker_restart import Revival
from penstock.engine.steps import ReadHandler, Steps, TransformHandler
from penstock.errors import WriteError
from penstock.plan.nodes import sink_name
from penstock.plan.stages import CallBatch, CallUdf, CombineSets, Read, Transform, Work, WriteOut
from penstock.protocols import Handler, PartSink, Sink, WorkerContext
from penstock.storage.remembered import remembered, restore
from penstock.storage.secret import known_secrets, tell_secrets
from penstock.types.plain import arrow_array
from penstock.udf.batches import BatchHandler
from penstock.udf.call import UdfHandler
from penstock.udf.worker_death import LostBatch, LostCall

if TYPE_CHECKING:
    from penstock.engine.pools.asyncio import OpenAsyncHandler

SETTINGS = ("allow_local_files", "allow_private_urls", "cache_dir", "prices", "temp_dir")
"""What holds for user code in workers too. How a query runs is for the process that runs it."""

RECORD = "record"  # the column that carries what a sink says of each piece it wrote


def opener(work: Work) -> OpenHandler:
    """Return a picklable function that makes the handler of ``work``, with the settings of this process."""
    return partial(_open, work, Surroundings.here())


def async_opener(work: CallUdf) -> OpenAsyncHandler:
    """Return a function that makes the handler of an async UDF; asyncio is only loaded by those who use it."""
    from penstock.udf.aio import AsyncUdfHandler

    surroundings = Surroundings.here()

    def open_handler(context: WorkerContext) -> AsyncUdfHandler:
        surroundings.take_over()
        return AsyncUdfHandler(work, Steps(work.steps), context)

    return open_handler


def revival(work: CallUdf | CallBatch) -> Revival:
    """Return what to do when a worker process dies of ``work``."""
    if isinstance(work, CallUdf):
        return Revival(LostCall(work, Steps(work.steps)), work.call.udf.policy.max_retries)
    return Revival(LostBatch(work), work.spec.policy.max_retries)


@dataclass(frozen=True)
class Surroundings:
    """What of the driver's process holds for its workers: settings, API keys, how to read the files of its columns.

    And the folder of the ledger of the job that they work for, and whether what their calls cost is counted.
    """

    pid: int
    settings: Mapping[str, Any]
    storage_options: Mapping[str, Mapping[str, Any]]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    job_folder: str = ""
    account: AccountTerms | None = None

    @staticmethod
    def here() -> Surroundings:
        config = get_config()
        return Surroundings(
            os.getpid(),
            {name: getattr(config, name) for name in SETTINGS},
            remembered(),
            known_secrets(),
            job_folder(),
            AccountTerms.here(),
        )

    def take_over(self) -> None:
        """Make them hold in this process, unless it is the driver's own."""
        if os.getpid() != self.pid:
            set_config(**self.settings)
            restore(self.storage_options)
            tell_secrets(self.secrets)
            inherit_job_folder(self.job_folder)
            inherit_account(self.account)


def _open(work: Work, surroundings: Surroundings, context: WorkerContext) -> Handler:
    surroundings.take_over()
    match work:
        case Read():
            return ReadHandler(work)
        case Transform(steps):
            return TransformHandler(steps)
        case CallUdf(steps=steps):
            return UdfHandler(work, Steps(steps), context)
        case CallBatch(steps=steps):
            return BatchHandler(work, Steps(steps), context)
        case CombineSets():
            from penstock.engine.set_operations import SetHandler

            return SetHandler(work)
        case WriteOut(sink, is_in_parts):
            return PartHandler(sink) if is_in_parts and isinstance(sink, PartSink) else WriteHandler(sink)


class WriteHandler:
    """One writer of a sink. What the sink says of finished pieces goes on to the driver as rows."""

    def __init__(self, sink: Sink) -> None:
        self._writer = sink.open()
        self._name = sink_name(sink)

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        return packed_records(self._checked(self._writer.write(item), "write"))

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield packed_records(self._checked(self._writer.finish(), "finish"))

    def close(self) -> None:
        self._writer.close()

    def _checked(self, records: Any, method: str) -> Iterable[dict[str, Any]]:
        if records is None:
            return ()
        if isinstance(records, Mapping | str | bytes) or not isinstance(records, Iterable):
            raise WriteError(
                f"Sink {self._name!r}: {method}() of its writer returned {reprlib.repr(records)}; it must return a "
                "list of records, one for each piece that is finished, or None."
            )
        return records


class PartHandler:
    """Makes a part of the output of each batch, whose records go on to the driver with it."""

    def __init__(self, sink: PartSink) -> None:
        self._sink = sink

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        writer = self._sink.open_part(first_row)
        try:
            written = list(writer.write(item) or ())
            return packed_records([*written, *(writer.finish() or ())])
        finally:
            writer.close()

    def finish(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def close(self) -> None:
        pass


def packed_records(records: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    packed = arrow_array([pickle.dumps(record) for record in records], pa.binary())
    return pa.RecordBatch.from_arrays([packed], names=[RECORD])


def unpacked_records(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [pickle.loads(record) for batch in batches for record in batch.column(RECORD).to_pylist()]
