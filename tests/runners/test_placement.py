"""Which worker gets which devices: the assignment as a pure function, and what worker processes really see."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import penstock as ps
from penstock import ActorPoolStrategy, DataType, Series, col
from penstock.errors import InvalidArgumentError
from penstock.expr.udf import Resources
from penstock.runners.placement import Amounts, WorkerRequest, demand_of, place

GIB = 2**30


def machine(num_gpus: int = 2, num_cpus: float = 8, gib: int = 16) -> Amounts:
    return {"CPU": num_cpus, "GPU": num_gpus, "memory": gib * GIB, "node:10.0.0.1": 1}


def request(gpus: float = 0, least: int = 1, most: int | None = None, **resources: Any) -> WorkerRequest:
    return WorkerRequest("embed", demand_of(Resources(gpus=gpus, **resources)), least, most)


# --- the assignment ---


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([request(1)], [[[0], [1], [2]]]),
        ([request(2)], [[[0, 1]]]),
        ([request(0.5, most=3)], [[[0], [0], [1]]]),
        ([request(1, most=8)], [[[0], [1], [2]]]),
        ([request(1, least=2, most=2)], [[[0], [1]]]),
        ([request(0.4, 2, 2), request(0.6, 2, 2), request(1, 1, 1)], [[[1], [2]], [[1], [2]], [[0]]]),
        ([request(1), request(1)], [[[0], [2]], [[1]]]),
        ([request(0, most=4)], [[[], [], [], []]]),
        ([request(0, most=8, cpus=3)], [[[], []]]),
        ([request(0, most=8, memory_bytes=5 * GIB)], [[[], [], []]]),
        ([request(1, cpus=4)], [[[0], [1]]]),
        ([request(0.1, most=10, cpus=0.8)], [[[0]] * 10]),
    ],
)
def test_workers_and_their_devices(requests: list[WorkerRequest], expected: list[list[list[int]]]) -> None:
    assert place([machine(num_gpus=3)], requests, "") == expected


AT_ONCE = "This query needs more than there is at once: the offer. It needs"


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([request(3)], "embed needs 3 GPUs for each worker, but the offer"),
        ([request(cpus=9, most=1)], "embed needs 9 CPUs for each worker, but the offer"),
        ([request(memory_bytes=17 * GIB, most=1)], "needs 17.0 GiB of memory for each worker, but the offer"),
        ([request(1, 3, 3)], f"{AT_ONCE} 3 workers of embed with 1 GPU each"),
        (
            [request(1, 2, 2), request(most=4), request(0.5)],
            "2 workers of embed with 1 GPU each; 1 worker of embed with 0.5 GPU",
        ),
        ([request(cpus=3, least=3, most=3)], f"{AT_ONCE} 3 workers of embed with 3 CPUs each"),
        ([request(1.5)], "gpus=1.5; a worker gets a part of one GPU or several whole ones"),
        ([request(0.001)], "gpus=0.001; the least part of a GPU is 0.01"),
    ],
)
def test_what_cannot_run_is_refused_with_what_there_is(requests: list[WorkerRequest], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        place([machine()], requests, "the offer")


@pytest.mark.parametrize(
    ("requests", "num_placed"),
    [
        ([request(1), request(0.1, most=3)], [3, 3]),
        ([request(2), request(1)], [1, 2]),  # on no two nodes; the smallest node that has room
        ([request(0.6)], [4]),  # no two on one device
        ([request(cpus=5, most=9), request(cpus=5, most=9)], [2, 1]),
    ],
)
def test_workers_on_several_nodes(requests: list[WorkerRequest], num_placed: list[int]) -> None:
    nodes = [machine(num_gpus=2), machine(num_gpus=1, gib=1), machine(num_gpus=1)]
    assert list(map(len, place(nodes, requests, ""))) == num_placed


@pytest.mark.parametrize(
    "requests",
    [[request(3)], [request(2, 2)], [request(1, 3, 3), request(2)], [request(memory_bytes=9 * GIB, least=3)]],
)
def test_what_does_not_fit_on_several_nodes_is_refused(requests: list[WorkerRequest]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"for each worker, but the offer|than there is at once: the offer"):
        place([machine(num_gpus=2), machine(num_gpus=1, gib=1), machine(num_gpus=1)], requests, "the offer")


AMOUNTS = st.builds(
    Resources,
    gpus=st.one_of(st.just(0), st.integers(1, 3), st.floats(0.01, 1)),
    cpus=st.one_of(st.none(), st.floats(0.05, 4)),
    memory_bytes=st.one_of(st.none(), st.integers(1, 8 * GIB)),
)


@st.composite
def request_lists(draw: st.DrawFn) -> list[WorkerRequest]:
    requests = []
    for number in range(draw(st.integers(1, 4))):
        resources, least = draw(AMOUNTS), draw(st.integers(1, 3))
        has_limit = not resources.gpus or draw(st.booleans())
        most = least + draw(st.integers(0, 5)) if has_limit else None
        requests.append(WorkerRequest(str(number), demand_of(resources), least, most))
    return requests


@settings(deadline=None)
@given(requests=request_lists(), num_gpus=st.integers(0, 4), num_cpus=st.integers(1, 16), gib=st.integers(1, 32))
def test_nothing_is_given_out_twice(requests: list[WorkerRequest], num_gpus: int, num_cpus: int, gib: int) -> None:
    try:
        placed = place([machine(num_gpus, num_cpus, gib)], requests, "the offer")
    except InvalidArgumentError:
        return
    used: dict[int | str, float] = defaultdict(float)
    for asked, workers in zip(requests, placed, strict=True):
        gpus = asked.demand.get("GPU", 0)
        assert asked.min_workers <= len(workers) <= (asked.max_workers or len(workers))
        for devices in workers:
            assert len(set(devices)) == len(devices) == (max(1, int(gpus)) if gpus else 0)
            for device in devices:
                used[device] += min(gpus, 1)
            used["cpus"] += asked.demand.get("CPU", 0)
            used["memory"] += asked.demand.get("memory", 0)
    assert used.pop("cpus") <= num_cpus + 1e-6
    assert used.pop("memory") <= gib * GIB
    assert set(used) <= set(range(num_gpus))
    assert all(share <= 1 + 1e-6 for share in used.values())


# --- real workers ---


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three devices that CUDA would see."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,GPU-aa")


class Devices:
    """Says which devices it sees, once the others of its stage have been called too."""

    def __init__(self, folder: Path, num_workers: int) -> None:
        self.folder, self.num_workers = folder, num_workers

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        (self.folder / str(os.getpid())).touch()
        while len(os.listdir(self.folder)) < self.num_workers:
            time.sleep(0.01)
        return {"pid": [os.getpid()], "seen": [os.environ["CUDA_VISIBLE_DEVICES"]]}


def devices_seen(folder: Path, num_workers: int, **options: Any) -> list[str]:
    """Return what each worker of a stage sees, once for each of them."""
    df = ps.range(40).map_batches(Devices, fn_constructor_args=(folder, num_workers), batch_size=1, **options)
    rows = df.to_pylist()
    seen = {row["pid"]: row["seen"] for row in rows}
    assert {(row["pid"], row["seen"]) for row in rows} == set(seen.items())
    return sorted(seen.values())


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"num_gpus": 1}, ["3", "5", "GPU-aa"]),
        ({"num_gpus": 1, "concurrency": 2}, ["3", "5"]),
        ({"num_gpus": 1, "concurrency": (1, 9)}, ["3", "5", "GPU-aa"]),
        ({"num_gpus": 1, "compute": ActorPoolStrategy(size=3)}, ["3", "5", "GPU-aa"]),
        ({"num_gpus": 2}, ["3,5"]),
        ({"num_gpus": 0.5, "concurrency": 3}, ["3", "3", "5"]),
        ({"use_process": True}, ["3,5,GPU-aa"]),
    ],
)
def test_each_worker_sees_its_own_devices(tmp_path: Path, options: dict[str, Any], expected: list[str]) -> None:
    assert devices_seen(tmp_path, len(expected), **options) == expected


@pytest.mark.usefixtures("gpus")
def test_func_and_cls_share_the_devices_of_a_query() -> None:
    @ps.func.batch(return_dtype=DataType.string(), gpus=1, max_concurrency=1)
    def first(ids: Series) -> list[str]:
        return [os.environ["CUDA_VISIBLE_DEVICES"]] * len(ids)

    @ps.cls(gpus=2, max_concurrency=8)
    class Second:
        def __call__(self, x: int) -> str:
            return os.environ["CUDA_VISIBLE_DEVICES"]

    rows = ps.range(3).select(a=first(col("id")), b=Second()(col("id"))).to_pylist()
    assert rows == [{"a": "GPU-aa", "b": "3,5"}] * 3


@pytest.mark.usefixtures("gpus")
def test_a_worker_that_is_replaced_keeps_its_device(tmp_path: Path) -> None:
    @ps.func(gpus=1, max_concurrency=1)
    def dies_once(x: int) -> str:
        if not os.listdir(tmp_path):
            (tmp_path / "died").touch()
            os._exit(1)
        return os.environ["CUDA_VISIBLE_DEVICES"]

    assert ps.range(2).select(dies_once(col("id"))).to_pydict() == {"id": ["3", "3"]}


def identity(batch: dict[str, Any]) -> dict[str, Any]:
    return batch


async def identity_async(x: int) -> int:
    return x


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda df: df.map_batches(identity, num_gpus=4),
            "map_batches identity needs 4 GPUs for each worker, but this machine has .* 3 GPUs",
        ),
        (
            lambda df: df.map_batches(identity, num_gpus=1, concurrency=4),
            "4 workers of map_batches identity with 1 GPU",
        ),
        (lambda df: df.map_batches(identity, num_gpus=1, concurrency=(4, 5)), "4 workers of map_batches identity"),
        (
            lambda df: df.map_batches(identity, num_gpus=1, compute=ActorPoolStrategy(size=4)),
            "needs more than there is",
        ),
        (lambda df: df.map_batches(identity, num_gpus=2).map_batches(identity, num_gpus=2), "needs more than there is"),
        (lambda df: df.map_batches(identity, num_cpus=10**4), "needs 10000 CPUs for each worker"),
        (lambda df: df.map_batches(identity, memory="1000TB"), "GiB of memory for each worker, but this machine has"),
        (
            lambda df: df.map_batches(identity, num_gpus=1, use_process=False),
            "gpus=1 with use_process=False: only a worker process",
        ),
        (lambda df: df.select(ps.func(gpus=1)(identity_async)(col("id"))), "async functions share this process"),
    ],
)
def test_it_is_refused_before_anything_is_read(
    tmp_path: Path, build: Callable[[ps.DataFrame], ps.DataFrame], message: str
) -> None:
    reads = []

    def read(batch: dict[str, Any]) -> dict[str, Any]:
        reads.append(batch)
        return batch

    df = build(ps.range(3).map_batches(read))
    with pytest.raises(InvalidArgumentError, match=message):
        df.collect()
    with pytest.raises(InvalidArgumentError, match=message):
        df.write_parquet(str(tmp_path / "out"))
    assert not reads
    assert not list(tmp_path.rglob("*.parquet"))


def test_without_gpus_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(InvalidArgumentError, match=r"1 GPU for each worker, but this machine has .*, no GPU"):
        ps.range(3).map_batches(identity, num_gpus=1).collect()


def test_amounts_must_be_finite() -> None:
    for amount in (float("nan"), float("inf")):
        with pytest.raises(InvalidArgumentError, match="gpus must be a number of 0 or more"):
            ps.range(3).map_batches(identity, num_gpus=amount)
