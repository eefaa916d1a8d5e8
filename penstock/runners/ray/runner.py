"""The Ray runner: connect to a cluster and choose the actors of each stage."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import ray

from penstock.config import Config, get_config, task_share
from penstock.contracts import Bundle, Emit
from penstock.engine.lineage import kind_of
from penstock.engine.pools.handler_slot import OpenHandler
from penstock.engine.pools.threads import ThreadPool, Threads
from penstock.engine.resources import Cores
from penstock.engine.task_costs import Footprint
from penstock.engine.workers import PoolChoice
from penstock.errors import InvalidArgumentError
from penstock.events.loop_thread import LoopThread
from penstock.expr.udf import API_LOOP, Resources
from penstock.plan.optimizer import RULES
from penstock.plan.stages import CallBatch, CallUdf, RunRelation, Stage, Work, WriteOut
from penstock.protocols import OneWriterSink, PartSink, RunSink, Sink
from penstock.relational.partition import HashParts, RangeParts, parts_of
from penstock.runners.openers import async_pool, opener, packed, restart_policy, writing_opener
from penstock.runners.placement import WorkerRequest, most_workers, place, sharing_key
from penstock.runners.query import Workplace
from penstock.runners.ray.actor_group import PoolSize
from penstock.runners.ray.actors import Actors, ActorSlot
from penstock.runners.ray.cluster import (
    Cluster,
    connect,
    described_nodes,
    forked_from,
    has_autoscaler,
    is_same_address,
)
from penstock.runners.ray.node_memory import NodeMemory
from penstock.runners.ray.pool import RayPool
from penstock.runners.ray.shuffle import RowShuffle
from penstock.runners.ray.shuffle_pool import ShufflePool
from penstock.runners.ray.stage_requests import actor_key, actor_options, actor_requests, labels_of
from penstock.runners.ray.stored import put_batch, read_input

PLAIN = actor_options(Resources())
GATHERED_NBYTES = 32 * 2**20  # of a batch between stages: a call and the storing of its result cost milliseconds
ARROW_WORK = Footprint(num_inputs=0, num_outputs=3)  # a kernel's intermediate results, its result, the stored one
PYTHON_WORK = Footprint(num_inputs=1, num_outputs=3)  # arguments and results as Python objects or arrays as well
CALL_COST_S = 0.01  # of all processes, with the storing of its result


class RayRunner:
    """Runs stages on a Ray cluster: at ``address``, the one this process is connected to, or a new local one.

    A local cluster stays until the process ends, because starting it takes seconds.
    """

    rules = RULES

    def __init__(self, address: str | None = None) -> None:
        self._address = address

    @contextmanager
    def open(self, config: Config, stages: Sequence[Stage]) -> Iterator[Workplace]:
        self._connect()
        cluster, requests = Cluster(partial(labels_of, stages)), actor_requests(stages)
        may_grow = bool(requests) and has_autoscaler()
        if not may_grow:
            offer = f"the Ray cluster has no autoscaler, and these nodes: {described_nodes(cluster.nodes)}"
            place(cluster.nodes, list(requests.values()), offer)
        cores = Cores(cluster.num_cores)

        def follow() -> None:
            cores.num_cores = cluster.num_cores

        cluster.on_poll(follow)
        cluster.start()
        try:
            memory_bytes = config.memory_limit or cluster.store_nbytes
            with closing(RayPools(cluster, stages, requests, memory_bytes, may_grow=may_grow)) as pools:
                yield Workplace(
                    pools.make, cores=cores, memory_bytes=memory_bytes, most_task_nbytes=cluster.task_nbytes or None
                )
        finally:
            cluster.close()

    def _connect(self) -> None:
        """Connect to the cluster, unless this process is connected. Raise InvalidArgumentError if it is connected to
        another."""
        address = self._address or os.environ.get("RAY_ADDRESS", "")
        if address.startswith("ray://") or ray.util.client.ray.is_connected():
            raise InvalidArgumentError(
                f"Penstock cannot use Ray Client ({address or 'ray.init was called with ray://'}), because its process "
                "is not part of the cluster. Run the script on a node, or with: ray job submit -- python script.py"
            )
        if not ray.is_initialized():
            return connect(address)
        if forked_from:
            raise InvalidArgumentError(
                f"This process was forked from process {forked_from[-1]}, whose connection to Ray it cannot use. Start "
                "it in another way: for a DataLoader, with multiprocessing_context='spawn', or with num_workers=0."
            )
        connected = ray.get_runtime_context().gcs_address
        if self._address not in (None, "auto", "local") and not is_same_address(self._address, connected):
            raise InvalidArgumentError(
                f"This process is connected to Ray at {connected} and cannot use {self._address!r} as well. "
                "Call ray.shutdown() first, or set_runner_ray() without an address."
            )

    def fetch(self, bundle: Bundle) -> pa.RecordBatch:
        batch: pa.RecordBatch = bundle.handle.fetch()
        return batch.slice(bundle.offset, bundle.num_rows)


class RayPools:
    """Makes the pools of one query. Stages that share processes or an event loop on one machine share actors.

    ``requests`` are requests for actors with resources. With ``may_grow``, Ray adds nodes for actors that find no room.
    """

    def __init__(
        self,
        cluster: Cluster,
        stages: Sequence[Stage],
        requests: Mapping[str, WorkerRequest],
        memory_bytes: int,
        *,
        may_grow: bool,
    ) -> None:
        self._cluster = cluster
        self._requests = requests
        self._may_grow = may_grow
        most_nbytes = task_share(memory_bytes, cluster.num_cores), cluster.task_nbytes or GATHERED_NBYTES
        self._gathered_nbytes = min(GATHERED_NBYTES, *most_nbytes)
        self._workers = Actors(cluster, PLAIN, is_shared=True)
        self._threads = Threads()
        self._memory = NodeMemory(partial(cluster.node_nbytes, memory_limit=get_config().memory_limit))
        self._sinks = dict(_next_sinks(stages))
        self._own: dict[str, Actors] = {}
        self._sized: list[RayPool] = []  # with actors of their own
        self._loops: dict[str, LoopThread] = {}

    def make(self, stage: Stage, work: Work, emit: Emit) -> PoolChoice:
        """Return actors for a stage. Actors without cores of their own share the cluster's cores in the executor."""
        resources = stage.resources
        options = actor_options(resources)
        is_async = isinstance(work, CallUdf) and work.spec.target.is_async
        takes_core = not (is_async or resources.max_workers or resources.cpus or resources.gpus)
        match work:
            case CallUdf() if (remote := _with_remote_engine(work)) is not None:
                return self._async_pool(stage, remote, emit)
            case CallUdf() if is_async and options == PLAIN and not resources.use_process:
                return self._async_pool(stage, work, emit)
            case CallUdf() | CallBatch():
                num_tasks, is_class = resources.tasks_per_worker, work.spec.target.is_class
                most = (lambda: 1) if is_async else self._most(stage)
                size = PoolSize(most, resources.min_workers, num_tasks, is_gradual=is_class)
                is_shared = options == PLAIN and takes_core and not is_class
                sink = self._sinks.get(id(stage)) if is_shared else None
                opening = _put(self._calling(work, sink), work.spec.name), 0
                slot = (self._workers if is_shared else self._own_actors(stage, options)).join(opening)
                restart = restart_policy(work)
                calls = self._pool(stage.name, slot, size, emit, restart=restart, may_write=sink is not None)
                if actor_key(stage) in self._requests:
                    self._sized.append(calls)
                return PoolChoice(calls, takes_core, PYTHON_WORK, task_cost_s=CALL_COST_S)
            case RunRelation(relation, schemas):
                parts = parts_of(relation, schemas)
                if parts is not None:
                    return PoolChoice(self._shuffle_pool(work, parts, emit), takes_core=False)
                return PoolChoice(self._driver_pool(work, emit), takes_core=False)
            case WriteOut(PartSink() as sink, is_in_parts) if is_in_parts or not _needs_one_writer(sink):
                # Parts are complete files, so that a writer that dies loses only the part that it writes.
                slot = self._workers.join((_put(opener(WriteOut(sink, is_in_parts=True)), stage.name), 0))
                writers = self._pool(stage.name, slot, PoolSize(self._most(stage)), emit)
                return PoolChoice(writers, takes_core, gathered_nbytes=self._gathered_nbytes)
            case WriteOut(sink):
                num_writers = 1 if _needs_one_writer(sink) else get_config().thread_count
                return PoolChoice(self._driver_pool(work, emit, num_writers), takes_core=False)
            case _:
                slot = self._workers.join((_put(opener(work), stage.name), self._gathered_nbytes))
                size = PoolSize(self._most(stage))
                return PoolChoice(self._pool(stage.name, slot, size, emit), takes_core, ARROW_WORK)

    def close(self) -> None:
        """Keep the shared workers for the next query. The pools are closed before."""
        self._workers.close()
        self._threads.close()

    def _most(self, stage: Stage) -> Callable[[], int]:
        """Return a function that returns how many workers a stage may have: as the user says, or all that fit."""
        most, key = stage.resources.max_workers, actor_key(stage)
        if key in self._requests and (most is None or not self._may_grow):
            return lambda: min(most or sys.maxsize, self._num_fitting(key))
        return lambda: most or self._cluster.num_cores  # those without room make the cluster grow

    def _num_fitting(self, key: str) -> int:
        """Return how many actors fit if each other stage keeps the actors it has, or gets its minimum."""
        num_actors = {other: actors.num_actors for other, actors in self._own.items()}
        others = [(other, request) for other, request in self._requests.items() if other != key]
        taken = [(request.demand, max(request.min_workers, num_actors.get(other, 0))) for other, request in others]
        return most_workers(self._cluster.nodes, self._requests[key].demand, taken)

    def _own_actors(self, stage: Stage, options: dict[str, Any]) -> Actors:
        """Return the actors of a stage. Stages that call other methods of the same object share them."""
        actors = Actors(self._cluster, options, stage.resources.tasks_per_worker, self._adjust_sizes)
        return self._own.setdefault(sharing_key(stage), actors)

    def _adjust_sizes(self) -> None:
        """Let the stages with resources follow each other's numbers of actors."""
        for pool in self._sized:
            pool.follow_size()

    def _calling(self, work: CallUdf | CallBatch, sink: PartSink | None) -> OpenHandler:
        if sink is None or isinstance(work, CallBatch):
            return opener(work)
        return writing_opener(work, sink, self._gathered_nbytes // 2)

    def _driver_pool(self, work: Work, emit: Emit, num_workers: int = 1) -> ThreadPool:
        """Return workers in the driver's process, for work that holds state until the query ends."""
        return ThreadPool(opener(work), num_workers, self._threads, emit, read=read_input, put=put_batch)

    def _shuffle_pool(self, work: RunRelation, parts: HashParts | RangeParts, emit: Emit) -> ShufflePool:
        num_cores = self._cluster.num_cores
        max_nbytes = min(work.memory_bytes, get_config().memory_bytes)
        make_shuffle = partial(RowShuffle, work, parts, num_cores, partial(self._part_pool, str(work.relation)))
        return ShufflePool(partial(self._driver_pool, work), make_shuffle, num_cores, max_nbytes, emit)

    def _part_pool(self, name: str, open_handler: OpenHandler, emit: Emit, **options: Any) -> RayPool:
        slot = self._workers.join((_put(open_handler, name), self._gathered_nbytes))
        return self._pool(name, slot, PoolSize(lambda: self._cluster.num_cores), emit, **options)

    def _async_pool(self, stage: Stage, work: CallUdf, emit: Emit) -> PoolChoice:
        """Return a pool in the driver's process: calls wait, and one limiter, budget and ledger of remote models serve
        all queries of a process, as on one machine. So does one queue, which knows the prefixes of each replica.
        """
        pool = async_pool(stage, work, emit, self._loops, read=read_input, put=put_batch, may_block=True)
        return PoolChoice(pool, False, PYTHON_WORK, is_gated=True)

    def _pool(self, name: str, slot: ActorSlot, size: PoolSize, emit: Emit, **options: Any) -> RayPool:
        pool = RayPool(name, slot, size, self._cluster, emit, self._memory, **options)
        self._cluster.on_poll(pool.adjust)
        return pool


def _put(open_handler: OpenHandler, name: str) -> Any:
    """Return a reference to the pickled opener of the handlers of ``name``."""
    return ray.put(packed(open_handler, name, "a Ray worker"))


def _next_sinks(stages: Sequence[Stage]) -> Iterator[tuple[int, PartSink]]:
    """Yield the sinks that directly follow a function with one output row for each input row, with the id of its stage.
    If rows are in order, a row has the same position in the function's input and in the output, and parts are named by
    it. A job commits the parts of its own size, and a database knows a part that it has by its first row, so those are
    written by the stage of the write alone: it cuts the same parts again if a worker dies.
    """
    for stage in stages:
        match stage.work:
            case WriteOut(sink, False) if isinstance(sink, PartSink) and not isinstance(sink, RunSink):
                if _needs_one_writer(sink):
                    continue
                source = stages[stage.inputs[0]]
                if source.is_ordered and isinstance(source.work, CallUdf) and kind_of(source.work) == "rows":
                    yield id(source), sink


def _needs_one_writer(sink: Sink) -> bool:
    return isinstance(sink, OneWriterSink) and sink.needs_one_writer


def _with_remote_engine(work: CallUdf) -> CallUdf | None:
    if work.spec.builtin.event_loop in (None, API_LOOP):
        return None
    from penstock.runners.ray.engines import with_remote_engine  # few queries need the models

    return with_remote_engine(work)
