"""Instances in one process are built one after the other, as libraries that load models are not safe otherwise."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import penstock as ps
from penstock.contracts import WorkerContext
from penstock.engine.pools.threads import Threads
from penstock.errors import QueryCancelledError


class Builds:
    """What the instances of a test share."""

    def __init__(self, num_expected: int) -> None:
        self.num_built = 0
        self.have_overlapped = False
        self.all_built = threading.Event()
        self._num_expected = num_expected
        self._meeting = threading.Barrier(2)

    def build(self) -> None:
        try:
            self._meeting.wait(timeout=0.1)  # two that are being built at the same time meet here
            self.have_overlapped = True
        except threading.BrokenBarrierError:
            self._meeting.reset()
        self.num_built += 1
        if self.num_built == self._num_expected:
            self.all_built.set()


def model_of(builds: Builds) -> type:
    class Model:
        def __init__(self) -> None:
            builds.build()

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            assert builds.all_built.wait(timeout=60)  # keeps its worker busy, so that the next is built
            return batch

    return Model


@pytest.mark.one_machine
def test_the_workers_of_a_stage() -> None:
    builds = Builds(num_expected=3)
    df = ps.range(3).map_batches(model_of(builds), batch_size=1, concurrency=3)
    assert df.count_rows() == 3
    assert builds.num_built == 3
    assert not builds.have_overlapped


def test_an_init_may_run_a_query_with_models_of_its_own() -> None:
    @ps.cls
    class Inner:
        def __init__(self) -> None:
            self.offset = 10

        def __call__(self, x: int) -> int:
            return x + self.offset

    @ps.cls
    class Outer:
        def __init__(self) -> None:
            self.known = ps.range(2).select(x=Inner()(ps.col("id"))).to_pydict()["x"]

        def __call__(self, x: int) -> int:
            return int(self.known[x])

    assert ps.range(2).select(Outer()(ps.col("id"))).to_pydict() == {"id": [10, 11]}


def test_a_query_that_is_stopped_builds_no_more() -> None:
    opened: list[WorkerContext] = []
    open_handler = Threads().one_at_a_time(opened.append)
    with pytest.raises(QueryCancelledError):
        open_handler(WorkerContext(lambda: True, lambda error: None))
    assert not opened
