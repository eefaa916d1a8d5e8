"""Each option of ``map_batches`` does what it says; what is tested elsewhere is not tested here again."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import ActorPoolStrategy, TaskPoolStrategy
from penstock.config import available_cpus
from penstock.errors import InvalidArgumentError, TooManyErrorsError, TypeMismatchError, UdfError
from penstock.udf import retry

Batch = dict[str, Any]


class Crowd:
    """Counts the calls that run at once; each waits for ``num_together`` of them to be there."""

    def __init__(self, num_together: int) -> None:
        self.most = 0
        self.num_built = 0
        self._num_now = 0
        self._lock = threading.Lock()
        self._together = threading.Barrier(num_together, timeout=60)

    def enter(self, batch: Batch) -> Batch:
        with self._lock:
            self._num_now += 1
            self.most = max(self.most, self._num_now)
        self._together.wait()
        with self._lock:
            self._num_now -= 1
        return batch


class Member:
    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        crowd.num_built += 1

    def __call__(self, batch: Batch) -> Batch:
        return self.crowd.enter(batch)


@pytest.mark.one_machine
@pytest.mark.parametrize(
    ("options", "num_workers"),
    [
        ({"concurrency": 1}, 1),
        ({"concurrency": 3}, 3),
        ({"concurrency": (1, 3)}, 3),
        ({"concurrency": (3, 3)}, 3),
        ({"compute": ActorPoolStrategy(size=1)}, 1),
        ({"compute": ActorPoolStrategy(size=3)}, 3),
        ({"compute": ActorPoolStrategy(min_size=1, max_size=3)}, 3),
        ({"compute": ActorPoolStrategy(3, max_size=3)}, 3),
        ({"compute": TaskPoolStrategy(size=1)}, 1),
        ({"compute": TaskPoolStrategy(3)}, 3),
    ],
)
def test_as_many_workers_as_asked_for(options: dict[str, Any], num_workers: int) -> None:
    functions, members = Crowd(num_workers), Crowd(num_workers)
    df = ps.range(9 * num_workers).into_batches(3)
    assert df.map_batches(functions.enter, batch_size=3, **options).count_rows() == 9 * num_workers
    df = df.map_batches(Member, fn_constructor_args=(members,), batch_size=3, **options)
    assert df.to_pydict() == {"id": list(range(9 * num_workers))}
    assert functions.most == members.most == members.num_built == num_workers


@pytest.mark.parametrize("compute", [ActorPoolStrategy(), TaskPoolStrategy()])
def test_a_strategy_without_a_number_lets_the_engine_choose(compute: Any) -> None:
    assert ps.range(10).map_batches(lambda batch: batch, batch_size=1, compute=compute).count_rows() == 10


class Scale:
    def __init__(self, factor: int, *, offset: int = 0) -> None:
        self.factor, self.offset = factor, offset

    def __call__(self, batch: Batch, power: int, *, name: str = "x") -> Batch:
        batch["id"] *= self.factor
        return {name: batch["id"] ** power + self.offset}


def test_all_options_at_once() -> None:
    options: dict[str, Any] = {
        "batch_size": 2,
        "batch_format": "numpy",
        "zero_copy_batch": False,
        "max_batch_bytes": "1KB",
        "max_batch_tokens": None,  # counts text
        "split_on": MemoryError,
        "compute": ActorPoolStrategy(size=1),
        "fn_args": (2,),
        "fn_kwargs": {"name": "y"},
        "fn_constructor_args": (10,),
        "fn_constructor_kwargs": {"offset": 1},
        "cpus": 0.5,
        "gpus": 0,
        "memory": "10MB",
        "max_retries": 1,
        "retry_on": ValueError,
        "on_error": "null",
        "max_errors": 3,
        "timeout": 30,
        "use_process": True,
        "ray_options": {"max_restarts": 0},
    }
    known = set(inspect.signature(ps.DataFrame.map_batches).parameters) - {"self", "fn"}
    assert known - set(options) == {"concurrency", "cache"}  # of which one goes without compute, one needs a place
    df = ps.range(4).map_batches(Scale, **options)
    assert df.to_pydict() == {"y": [1, 101, 401, 901]}
    assert df.errors().count_rows() == 0


@pytest.mark.one_machine
def test_what_workers_take_bounds_how_many_there_are() -> None:
    crowd = Crowd(1)
    df = ps.range(8).map_batches(crowd.enter, batch_size=1, num_cpus=available_cpus())
    assert df.count_rows() == 8
    assert crowd.most == 1


@pytest.mark.one_machine
def test_a_batch_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.001)
    tries: list[int] = []

    def flaky(batch: Batch) -> Batch:
        tries.append(len(batch["id"]))
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return batch

    assert ps.range(4).map_batches(flaky, max_retries=2).count_rows() == 4
    assert tries == [4, 4, 4]
    tries.clear()
    with pytest.raises(UdfError, match="ConnectionError: not yet"):
        ps.range(4).map_batches(flaky, max_retries=1).collect()


def test_a_batch_that_takes_too_long_fails() -> None:
    def slow(batch: Batch) -> Batch:
        time.sleep(60 if 2 in batch["id"] else 0)
        return batch

    df = ps.range(4).map_batches(slow, batch_size=1, timeout=4, use_process=True, concurrency=1, on_error="ignore")
    assert df.to_pydict() == {"id": [0, 1, 3]}
    assert df.errors().to_pydict()["error_type"] == ["TimeoutError"]


def test_more_errors_than_allowed_end_it() -> None:
    def fail(batch: Batch) -> Batch:
        raise ValueError("no")

    assert ps.range(4).map_batches(fail, on_error="ignore", max_errors=4).count_rows() == 0
    with pytest.raises(TooManyErrorsError, match="max_errors=3"):
        ps.range(4).map_batches(fail, on_error="ignore", max_errors=3).collect()


def gives_parts(batch: Batch) -> Iterator[Any]:
    yield batch
    yield 7


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda batch: 7, "returned 7 of type int, expected a dict of arrays or lists, a pyarrow Table"),
        (lambda batch: "text", "returned 'text' of type str, expected a dict"),
        (lambda batch: batch["id"], "of type ndarray, expected a dict"),
        (gives_parts, "returned 7 of type int, expected a dict"),
        (lambda batch: {"x": 5}, "column 'x': has 5 of type int, expected one value for each row"),
        (lambda batch: {"x": np.array(5)}, "column 'x': has the single value"),
        (lambda batch: {"x": [1, 2], "y": [1]}, "unequal lengths: 'x' has 2, 'y' has 1"),
    ],
)
def test_what_is_no_batch_is_named(fn: Any, message: str) -> None:
    with pytest.raises(TypeMismatchError, match="map_batches") as caught:
        ps.range(3).map_batches(fn).collect()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "concurrency is a number of 1 or more, or (min, max); got 0"),
        ({"concurrency": (3, 2)}, "got (3, 2)"),
        ({"concurrency": (1, 2, 3)}, "got (1, 2, 3)"),
        ({"concurrency": 2, "compute": TaskPoolStrategy()}, "give compute= or concurrency=, not both"),
        ({"compute": 4}, "compute is an ActorPoolStrategy or a TaskPoolStrategy; got 4"),
        ({"zero_copy_batch": "no"}, "zero_copy_batch must be True or False; got 'no'"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ps.range(1).map_batches(lambda batch: batch, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize("make", [lambda: ActorPoolStrategy(size=0), lambda: TaskPoolStrategy(size=0)])
def test_a_strategy_has_at_least_one_worker(make: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="size"):
        make()


def test_a_strategy_has_its_bounds_in_order() -> None:
    with pytest.raises(InvalidArgumentError, match="max_size must not be less than min_size"):
        ActorPoolStrategy(min_size=3, max_size=2)


def test_the_spellings_of_other_engines_are_ours() -> None:
    options: dict[str, Any] = {"num_cpus": 0.5, "num_gpus": 0, "max_retries": 1, "retry_on": ValueError}
    assert ps.range(2).map_batches(lambda batch: batch, **options).count_rows() == 2
    assert ps.range(2).map(lambda row: row, num_cpus=0.5).count_rows() == 2
    double = ps.func(lambda x: 2 * x, return_dtype=int, max_concurrency=2, num_cpus=0.5)  # type: ignore[call-overload]
    assert ps.range(2).select(x=double(ps.col("id"))).to_pydict() == {"x": [0, 2]}
    with pytest.raises(InvalidArgumentError, match="num_cpus= means cpus=; give one of them"):
        ps.range(2).map_batches(lambda batch: batch, cpus=1, num_cpus=1)


@pytest.mark.one_machine
def test_retry_on_repeats_only_its_exceptions() -> None:
    calls: list[int] = []

    def fail_once(batch: dict[str, Any]) -> dict[str, Any]:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("again")
        return batch

    df = ps.range(2).map_batches(fail_once, max_retries=1, retry_on=KeyError, use_process=False)
    assert df.count_rows() == 2
    assert len(calls) == 2
