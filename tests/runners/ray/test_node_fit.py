"""Workers that no node can hold are refused, and workers that wait for room say what is missing."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.util.scheduling_strategies import In, NodeAffinitySchedulingStrategy, NodeLabelSchedulingStrategy

import penstock as ps
from penstock.errors import InvalidArgumentError, QueryStalledError
from penstock.runners.ray.node_fit import ActorRequest, Node, check_fit
from tests.runners.ray import autoscaled_cluster

pytestmark = pytest.mark.ray

GIB = 2**30


def node(name: str = "a", cpus: float = 4, gpus: int = 0, gib: int = 8, **labels: str) -> Node:
    return Node(name, {"CPU": cpus, "GPU": gpus, "memory": gib * GIB, "node:10.0.0.1": 1}, labels)


def request(least: int = 1, **options: Any) -> ActorRequest:
    return ActorRequest("map_batches G", options, least)


# --- the decision ---

HAS = "The nodes: 2 with 4 CPUs, no GPU, 8.0 GiB of memory"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_gpus": 1}, f"needs 1 GPU for each worker, but no node of the Ray cluster has that. {HAS}"),
        ({"num_cpus": 5}, f"needs 5 CPUs for each worker, but .* {HAS}"),
        ({"memory": 9 * GIB}, f"needs 9.0 GiB of memory for each worker, but .* {HAS}"),
        ({"resources": {"tpu": 1}}, f"needs 1 tpu for each worker, but .* {HAS}"),
        ({"accelerator_type": "A100"}, f"needs accelerator_type:A100 for each worker, but .* {HAS}"),
        ({"label_selector": {"kind": "large"}}, f"needs the label kind=large .*{HAS}, no label kind"),
        ({"scheduling_strategy": NodeAffinitySchedulingStrategy("c" * 56, soft=False)}, "needs the node c+ for each"),
        (
            {"scheduling_strategy": NodeLabelSchedulingStrategy({"kind": In("large", "huge")})},
            "needs the label kind In large, huge",
        ),
    ],
)
def test_a_worker_that_no_node_can_hold_is_refused_with_what_the_nodes_have(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=f"map_batches G {message}"):
        check_fit([node("a"), node("b")], [request(**options)])


@pytest.mark.parametrize(
    ("nodes", "requests"),
    [
        ([node(gpus=1)], [request(num_gpus=1), request(num_gpus=0.1)]),
        ([node(gpus=1), node(gpus=1)], [request(num_gpus=2)]),  # on no single node
        ([node(gpus=2)], [request(3, num_gpus=0.6)]),  # no two on one device
        ([node(cpus=2), node(cpus=2)], [request(2, num_cpus=1), request(num_cpus=2), request(num_cpus=1)]),
        ([node(kind="small"), node(kind="large")], [request(2, memory=5 * GIB, label_selector={"kind": "large"})]),
    ],
)
def test_stages_that_do_not_fit_together_are_refused(nodes: list[Node], requests: list[ActorRequest]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"than the Ray cluster has at once|no node of the Ray cluster"):
        check_fit(nodes, requests)


@pytest.mark.parametrize(
    "requests",
    [
        [request(num_gpus=0.4), request(num_gpus=0.6), request(num_gpus=1)],
        [request(2, num_cpus=4), request(num_cpus=0)],
        [request(label_selector={"kind": "!in(small, tiny)"})],
        [request(num_gpus=9, placement_group="its own reserve")],
    ],
)
def test_what_fits_is_not_refused(requests: list[ActorRequest]) -> None:
    check_fit([node(gpus=1), node(gpus=1, kind="small")], requests)


# --- on a cluster of two cores ---


@pytest.fixture
def on_ray(ray_cluster: None) -> Iterator[None]:
    ps.set_runner_ray()
    yield
    ps.set_runner_local()


class Same:
    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_gpus": 1}, "map_batches Same needs 1 GPU .* The nodes: 1 with 2 CPUs, no GPU"),
        ({"num_cpus": 4}, "map_batches Same needs 4 CPUs .* The nodes: 1 with 2 CPUs, no GPU"),
        ({"memory": "100TB"}, "map_batches Same needs .* GiB of memory .* The nodes: 1 with 2 CPUs, no GPU"),
        ({"ray_options": {"label_selector": {"kind": "large"}}}, "map_batches Same needs the label kind=large"),
        ({"ray_options": {"num_gpu": 1}}, "map_batches Same: ray_options has 'num_gpu'.* Did you mean 'num_gpus'?"),
        ({"ray_options": {"num_gpus": "one"}}, "map_batches Same: Ray refuses an option of its actors: .*num_gpus"),
    ],
)
def test_a_query_that_can_never_run_is_refused_before_it_starts(
    on_ray: None, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ps.range(10).map_batches(Same, **options).collect()


def test_an_async_function_that_no_node_can_hold_is_refused(on_ray: None) -> None:
    @ps.func(cpus=3)
    async def same(x: int) -> int:
        return x

    with pytest.raises(InvalidArgumentError, match="same needs 3 CPUs for each worker"):
        ps.range(10).select(same(ps.col("id"))).collect()


def test_two_stages_that_do_not_fit_together_are_refused(on_ray: None) -> None:
    df = ps.range(2000).map_batches(Same, batch_size=1, num_cpus=2).map_batches(Same, batch_size=1, num_cpus=2)
    with pytest.raises(InvalidArgumentError, match=r"1 worker of map_batches Same \(1\) with 2 CPUs each; 1 worker of"):
        df.collect()


def test_a_stage_leaves_the_others_their_least(on_ray: None) -> None:
    """The first stage may have two workers, which are all the cores: the second must get one."""
    df = ps.range(400).map_batches(Same, batch_size=1, num_cpus=1, concurrency=(1, 2))
    rows = df.map_batches(Same, batch_size=1, num_cpus=1, concurrency=(1, 2)).to_pydict()
    assert rows == {"id": list(range(400))}


class Holder:
    """An actor of another program."""

    def ready(self) -> None: ...


class FirstWarning(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        self.came = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.text = self.text or record.getMessage()
        self.came.set()


@pytest.fixture
def holder(on_ray: None) -> Iterator[Any]:
    """An actor that holds both cores."""
    actor = ray.remote(num_cpus=2)(Holder).remote()
    ray.get(actor.ready.remote())
    yield actor
    ray.kill(actor)


MISSING = r"it needs 2 CPUs, and no node has that free. The nodes: 1 with 2 CPUs, no GPU.*; free now: 1 with no CPU"


def test_a_worker_that_waits_for_room_says_so_and_starts_when_there_is_some(holder: Any) -> None:
    warning = FirstWarning()
    logging.getLogger("penstock.workers").addHandler(warning)
    free = threading.Thread(target=lambda: warning.came.wait() and ray.kill(holder))
    free.start()
    try:
        assert ps.range(3).map_batches(Same, num_cpus=2).to_pydict() == {"id": [0, 1, 2]}
    finally:
        warning.came.set()
        free.join()
        logging.getLogger("penstock.workers").removeHandler(warning)
    assert re.search(f"map_batches Same waits for a Ray worker: {MISSING}", warning.text)


def test_a_stall_says_what_the_worker_waits_for(holder: Any) -> None:
    with ps.config(stall_timeout=20), pytest.raises(QueryStalledError, match=f"has not started: {MISSING}"):
        ps.range(3).map_batches(Same, num_cpus=2).collect()


def test_where_an_autoscaler_runs_a_query_waits_and_says_what_is_missing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", autoscaled_cluster.__name__, str(tmp_path / "seen.json")], check=True)
    seen = json.loads((tmp_path / "seen.json").read_text())
    missing = "it needs 1 GPU, and no node has that. The nodes: 1 with 1 CPU, no GPU"
    (warning,) = seen["warnings"]
    assert warning.startswith(f"map_batches Same waits for a Ray worker: {missing}")
    assert f"a worker that has not started: {missing}" in seen["error"]
