"""Run a query on a Ray cluster of several nodes, again and again, while workers and nodes are killed at random.

    python scripts/soak_ray.py --minutes 20

Each query reads, calls a function and a class, and collects; its rows must be exact. Needs no cluster: three nodes are
started on this machine.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import threading
import time
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster

import penstock as ps

NUM_ROWS = 2000
NODE = {"num_cpus": 1, "object_store_memory": 200_000_000}
HEALTH = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}


class Model:
    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.02)
        return {
            "id": batch["id"],
            "size": [len(value) + int(x) for x, value in zip(batch["id"], batch["blob"], strict=True)],
        }


@ps.func
def blob(x: int) -> bytes:
    time.sleep(0.001)
    return bytes(20_000 + x % 7)


def run_query() -> None:
    rows = ps.range(NUM_ROWS).with_column("blob", blob(ps.col("id"))).map_batches(Model, batch_size=32).to_pydict()
    assert rows["id"] == list(range(NUM_ROWS)), "rows are missing, doubled or out of order"
    assert rows["size"] == [20_000 + x % 7 + x for x in range(NUM_ROWS)], "values are wrong"


class Killer(threading.Thread):
    """Kills a worker process every ``every_s`` seconds, and each tenth time a node, which is replaced."""

    def __init__(self, cluster: Cluster, every_s: float, seed: int) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._every_s = every_s
        self._random = random.Random(seed)
        self._is_over = threading.Event()
        self.num_workers = self.num_nodes = 0

    def run(self) -> None:
        count = 0
        while not self._is_over.wait(self._random.uniform(0.5, 1.5) * self._every_s):
            count += 1
            if count % 10 == 0:
                self._kill_node()
            else:
                self._kill_worker()

    def stop(self) -> None:
        self._is_over.set()
        self.join()

    def _kill_node(self) -> None:
        node = self._random.choice(sorted(self._cluster.worker_nodes, key=lambda each: str(each.node_id)))
        self._cluster.remove_node(node, allow_graceful=False)
        self._cluster.add_node(**NODE)
        self.num_nodes += 1

    def _kill_worker(self) -> None:
        found = [each for each in psutil.Process().children(recursive=True) if is_worker(each)]
        if found:
            os.kill(self._random.choice(found).pid, signal.SIGKILL)
            self.num_workers += 1


def is_worker(process: psutil.Process) -> bool:
    try:
        return process.name().startswith("ray::")
    except psutil.NoSuchProcess:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--every", type=float, default=4, help="seconds between two kills, on average")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    head = {**NODE, "include_dashboard": False, "_system_config": HEALTH}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(**NODE)
    ray.init(cluster.address, log_to_driver=False)
    ps.set_runner_ray()
    ps.set_config(progress=False)
    run_query()
    killer = Killer(cluster, args.every, args.seed)
    killer.start()
    num_queries, ends_at = 0, time.monotonic() + 60 * args.minutes
    try:
        while time.monotonic() < ends_at:
            run_query()
            num_queries += 1
        print(f"{num_queries} queries of {NUM_ROWS} rows were exact in {args.minutes:g} minutes, while ", end="")
        print(f"{killer.num_workers} workers and {killer.num_nodes} nodes were killed.")
    finally:
        killer.stop()
        ray.shutdown()
        for node in [*cluster.worker_nodes, cluster.head_node]:
            cluster.remove_node(node, allow_graceful=False)


if __name__ == "__main__":
    main()
