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

import penstock as ps
from penstock.errors import InvalidArgumentError, QueryStalledError
from tests.runners.ray import autoscaled_cluster

pytestmark = pytest.mark.ray


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
        ({"num_gpus": 1}, "map_batches Same needs 1 GPU .* these nodes: 1 with 2 CPUs, .*, no GPU"),
        ({"num_cpus": 4}, "map_batches Same needs 4 CPUs .* these nodes: 1 with 2 CPUs"),
        ({"memory": "100TB"}, "map_batches Same needs .* GiB of memory .* these nodes: 1 with 2 CPUs"),
        ({"ray_options": {"label_selector": {"kind": "large"}}}, "map_batches Same needs label kind=large for each"),
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


MISSING = (
    r"it needs 2 CPUs, and no node has that free. The nodes: 1 with 2 CPUs, .*, no GPU; free now: 1 with .*, no CPU"
)


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
    missing = "it needs 1 GPU, and no node has that. The nodes: 1 with 1 CPU"
    (warning,) = seen["warnings"]
    assert warning.startswith(f"map_batches Same waits for a Ray worker: {missing}")
    assert f"a worker that has not started: {missing}" in seen["error"]
