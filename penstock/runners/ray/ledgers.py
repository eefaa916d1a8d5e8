"""The ledgers of the driver's node for workers on other nodes, which may not see its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from penstock.cache.ledger.open_ledgers import SharedLedger, job_folder, open_ledgers_with
from penstock.config import get_config
from penstock.plan.stages import CallBatch, CallUdf, Stage
from penstock.protocols import CachesAnswers, Ledger

MAX_UNANSWERED = 256  # values that a worker sends ahead


class LedgerActor:
    """Opens ledgers on the driver's node. It has no other state, so Ray may restart it."""

    def __init__(self) -> None:
        self._ledgers: dict[Path, SharedLedger] = {}

    def get(self, folder: Path, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return self._opened(folder).get(keys)

    def put(self, folder: Path, key: bytes, value: bytes) -> None:
        self._opened(folder).put(key, value)

    def flush(self, folder: Path) -> None:
        self._opened(folder).flush()

    def _opened(self, folder: Path) -> SharedLedger:
        if folder not in self._ledgers:
            self._ledgers[folder] = SharedLedger(folder)
        return self._ledgers[folder]


class RemoteLedger:
    """Implements ``Ledger`` with the actor. A value counts as stored at once: it outlives the worker that sends it."""

    def __init__(self, actor: Any, folder: Path) -> None:
        self._actor, self._folder = actor, folder
        self._unanswered: list[Any] = []

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = ray.get(self._actor.get.remote(self._folder, keys))
        return found

    def put(self, key: bytes, value: bytes) -> None:
        self._unanswered.append(self._actor.put.remote(self._folder, key, value))
        if len(self._unanswered) >= MAX_UNANSWERED:
            self._await_all()

    def flush(self) -> None:
        self._await_all()
        ray.get(self._actor.flush.remote(self._folder))

    def close(self) -> None:
        self.flush()

    def _await_all(self) -> None:
        unanswered, self._unanswered = self._unanswered, []
        ray.get(unanswered)


class DriverLedgers:
    """Opens the ledgers of the driver's node from any node. Picklable."""

    def __init__(self) -> None:
        self._node_id = ray.get_runtime_context().get_node_id()
        here = NodeAffinitySchedulingStrategy(self._node_id, soft=False)
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": here}
        self.actor = ray.remote(LedgerActor).options(**options).remote()

    def use(self) -> None:
        """Make this worker process use the ledgers of the driver's node."""
        is_here = ray.get_runtime_context().get_node_id() == self._node_id
        open_ledgers_with(None if is_here else self._open)

    def _open(self, folder: Path) -> Ledger:
        return RemoteLedger(self.actor, folder)


@contextmanager
def driver_ledgers(stages: Sequence[Stage]) -> Iterator[DriverLedgers | None]:
    """Serve the ledgers of this node to the workers of a query, if its functions cache results."""
    if not (job_folder() or get_config().cache_dir) or not any(map(_caches, stages)):
        yield None
        return
    ledgers = DriverLedgers()
    try:
        yield ledgers
    finally:
        if ray.is_initialized():
            ray.kill(ledgers.actor)  # the workers have flushed what they sent, and it may not even have started


def _caches(stage: Stage) -> bool:
    if not isinstance(stage.work, CallUdf | CallBatch):
        return False
    spec = stage.work.spec
    models = (each for each in spec.target.init_args if isinstance(each, CachesAnswers))
    return bool(spec.cache_key) or any(model.cache is not False for model in models)


def with_ledgers(ledgers: DriverLedgers | None, open_handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return an opener whose handlers use the ledgers of the driver's node."""

    if ledgers is None:
        return open_handler

    def opened(context: Any) -> Any:
        ledgers.use()
        return open_handler(context)

    return opened
