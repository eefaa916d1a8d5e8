"""A query can be paused, resumed, cancelled and slowed down while it runs."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

import penstock as ps
from penstock.contracts import Emit, QueryControl, Task
from penstock.engine.executor import Executor
from penstock.engine.resources import Cores
from penstock.engine.workers import PoolChoice
from penstock.errors import QueryCancelledError
from penstock.events.events import BundleProduced, Event
from penstock.plan.stages import Read, Stage, Work
from penstock.protocols import ReadRequest
from penstock.runners import read_rows
from tests.engine.test_executor import Pool, Query


class Mailbox(SimpleQueue[Any]):
    """Calls ``on_wait`` when the driver would wait although no task runs."""

    on_wait: Callable[[], None]

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self.empty() and block:
            self.on_wait()
        return super().get(block, timeout)


class Remote:
    """A subscriber with the control of its query, which calls ``act`` after each bundle."""

    pool: CountedPool

    def __init__(self, act: Callable[[QueryControl], Any]) -> None:
        self._act = act
        self.num_bundles = 0

    def on_control(self, control: QueryControl) -> None:
        self.control = control

    def on_event(self, event: Event) -> None:
        if isinstance(event, BundleProduced):
            self.num_bundles += 1
            self._act(self.control)


class CountedPool(Pool):
    """Counts the tasks that run."""

    num_submitted = 0

    def submit(self, task: Task) -> None:
        self.num_submitted += 1
        super().submit(task)


def run_reads(remote: Remote, mailbox: Mailbox | None = None, **options: Any) -> int:
    """Run fifty reads, at most two at once, and return the number of their bundles."""

    def make_pool(stage: Stage, work: Work, emit: Emit) -> PoolChoice:
        remote.pool = CountedPool(stage.name, emit, [])
        return PoolChoice(remote.pool, takes_core=True)

    stages = [Stage("a", Read(Query(), ReadRequest()))]
    executor = Executor(
        stages, make_pool, memory_bytes=10**6, cores=Cores(4), subscribers=[remote], mailbox=mailbox, **options
    )
    return len(list(executor.run()))


def test_a_paused_query_starts_nothing_until_it_is_resumed() -> None:
    now, waits = [0.0], []

    def pause_once(control: QueryControl) -> None:
        if remote.num_bundles == 10:
            control.set_paused(True)

    def resume() -> None:
        waits.append(remote.num_bundles)
        now[0] += 1000.0  # a long pause is not a stall
        remote.control.set_paused(False)

    remote, mailbox = Remote(pause_once), Mailbox()
    mailbox.on_wait = resume
    assert run_reads(remote, mailbox, clock=lambda: now[0], stall_timeout_s=10.0) == 50
    assert waits in ([10], [11])  # a second read may have been under way


def test_a_stage_can_be_limited_to_fewer_tasks() -> None:
    num_running = []

    def limit_later(control: QueryControl) -> None:
        num_running.append(remote.pool.num_submitted - remote.num_bundles + 1)
        if remote.num_bundles == 25:
            control.limit_tasks(0, 1)

    remote = Remote(limit_later)
    assert run_reads(remote) == 50
    assert max(num_running[:25]) == 2
    assert set(num_running[26:]) == {1}


def test_a_query_can_be_cancelled() -> None:
    numbers = ps.range(1_000_000).map_batches(lambda batch: batch, batch_size=10)
    with pytest.raises(QueryCancelledError):
        list(read_rows(numbers._plan, subscribers=[Remote(lambda control: control.cancel())]))
