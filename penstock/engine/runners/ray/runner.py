"""The Ray runner: connect to a cluster and choose the actors of each stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import ray

from penstock.config import Config
from penstock.engine.runners.openers import async_opener, opener
from penstock.engine.runners.placement import num_async_tasks, sharing_key, worker_count
from penstock.engine.runners.query import Workplace
from penstock.engine.runners.ray.actors import OwnActors, SharedActor, actor_options
from penstock.engine.runners.ray.pool import RayPool, translated
from penstock.engine.stage import PoolChoice
from penstock.errors import InvalidArgumentError
from penstock.plan.stages import CallBatch, CallUdf, RunRelation, Stage, Work
from penstock.protocols import Bundle, Emit
from penstock.types.ipc import from_ipc

STORE_SHARE = 0.75  # of the object store that bundles may fill; Ray spills to disk from 0.8 on


class RayRunner:
    """Runs stages on a Ray cluster: at ``address``, the one this process is connected to, or a new local one.

    A local cluster stays until the process ends, because starting it takes seconds.
    """

    def __init__(self, address: str | None = None) -> None:
        self._address = address

    @contextmanager
    def open(self, config: Config, stages: Sequence[Stage]) -> Iterator[Workplace]:
        if ray.is_initialized():
            self._check_connection()
        else:
            ray.init(self._address, ignore_reinit_error=True, include_dashboard=False)
        cluster = ray.cluster_resources()
        num_cores = max(1, int(cluster.get("CPU", 0)))
        memory_bytes = config.memory_limit or int(cluster["object_store_memory"] * STORE_SHARE)
        yield Workplace(RayPools(num_cores).make, num_cores=num_cores, memory_bytes=memory_bytes)

    def _check_connection(self) -> None:
        """Raise InvalidArgumentError if this process is connected to another cluster than ``address``."""
        connected = ray.get_runtime_context().gcs_address
        if self._address not in (None, "auto", "local", connected):
            raise InvalidArgumentError(
                f"This process is connected to Ray at {connected} and cannot use {self._address!r} as well. "
                "Call ray.shutdown() first, or set_runner_ray() without an address."
            )

    def fetch(self, bundle: Bundle) -> pa.RecordBatch:
        try:
            return from_ipc(ray.get(bundle.handle)).slice(bundle.offset, bundle.num_rows)
        except ray.exceptions.RayError as exc:
            raise translated(exc) from exc


class RayPools:
    """Makes the pools of one query. Async stages that would share an event loop on one machine share an actor."""

    def __init__(self, num_cores: int) -> None:
        self._num_cores = num_cores
        self._shared: dict[str, SharedActor] = {}

    def make(self, stage: Stage, work: Work, emit: Emit) -> PoolChoice:
        """Return actors for a stage. Actors without cores of their own share the cluster's cores in the executor."""
        if isinstance(work, CallUdf) and work.spec.target.is_async:
            return self._async_pool(stage, work, emit)
        resources, is_reusable, num_workers = stage.resources, True, self._num_cores
        if isinstance(work, CallUdf | CallBatch):
            is_reusable, num_workers = not work.spec.target.is_class, worker_count(work.spec, self._num_cores)
        elif isinstance(work, RunRelation):  # one worker, which needs all the rows
            num_workers = 1
        actors = OwnActors(opener(work), actor_options(resources), is_reusable=is_reusable)
        takes_core = not (resources.max_workers or resources.cpus or resources.gpus)
        return PoolChoice(RayPool(actors, num_workers, 1, emit), takes_core)

    def _async_pool(self, stage: Stage, work: CallUdf, emit: Emit) -> PoolChoice:
        options = actor_options(stage.resources)
        key = f"{work.spec.builtin.event_loop or sharing_key(stage)} {options}"
        if key not in self._shared:
            self._shared[key] = SharedActor(options)
        num_tasks = num_async_tasks(stage, work.spec)
        slot = self._shared[key].join(async_opener(work), num_tasks)
        return PoolChoice(RayPool(slot, 1, num_tasks, emit), takes_core=False)
