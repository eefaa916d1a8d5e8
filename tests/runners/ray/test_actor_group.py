"""Actors are lent to the tasks of a query that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import WorkerDiedError
from penstock.runners.ray.actor_group import ActorGroup, PoolSize
from penstock.runners.ray.actors import ActorSlot, Process


class NoActors:
    """A source that must not be asked for an actor."""

    options: Mapping[str, Any] = {}

    def acquire(self, stage: int, node_id: str | None = None, *, is_alone: bool = False) -> Process:
        raise AssertionError("an actor was started")

    def retire(self, stage: int, process: Process) -> None: ...

    def release(self, stage: int, idle: Sequence[Process], running: Mapping[Any, Process]) -> None: ...


class Owner:
    def actor_is_ready(self, borrower: Any, failure: BaseException | None) -> None: ...

    def capacity_changed(self) -> None: ...

    def on_thread(self, work: Callable[[], None]) -> None: ...


def test_a_task_that_starts_after_its_query_has_ended_gets_no_actor() -> None:
    cluster: Any = SimpleNamespace(usable={})
    owner = Owner()
    group = ActorGroup("map f", ActorSlot(NoActors(), 1, ()), PoolSize(lambda: 1), cluster, owner)
    group.close({})
    with pytest.raises(WorkerDiedError, match="map f: the query has ended"):
        group.lend(SimpleNamespace(actor=None), None, is_alone=False, has_room=lambda node_id: True)
