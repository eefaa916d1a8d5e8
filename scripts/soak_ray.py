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


class Queries(threading.Thread):
    """Runs one query after another. Nodes are started by the main thread, because Ray sets signal handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.num_done = 0
        self.error: BaseException | None = None
        self.must_stop = False

    def run(self) -> None:
        try:
            while not self.must_stop:
                run_query()
                self.num_done += 1
        except BaseException as exc:
            self.error = exc


def kill_node(cluster: Cluster, chance: random.Random) -> None:
    """Kill a node that is not the driver's, and start another one."""
    cluster.remove_node(chance.choice(list(cluster.worker_nodes)), allow_graceful=False)
    cluster.add_node(**NODE)


def has_killed_worker(chance: random.Random) -> bool:
    found = [each for each in psutil.Process().children(recursive=True) if is_worker(each)]
    if found:
        os.kill(chance.choice(found).pid, signal.SIGKILL)
    return bool(found)


def is_worker(process: psutil.Process) -> bool:
    try:
        return process.name().startswith("ray::Worker")
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
    queries, chance, num_workers, num_nodes = Queries(), random.Random(args.seed), 0, 0
    queries.start()
    try:
        ends_at = time.monotonic() + 60 * args.minutes
        while time.monotonic() < ends_at and queries.error is None:
            time.sleep(chance.uniform(0.5, 1.5) * args.every)
            if chance.random() < 0.1:
                kill_node(cluster, chance)
                num_nodes += 1
            else:
                num_workers += has_killed_worker(chance)
        queries.must_stop = True
        queries.join()
        if queries.error is not None:
            raise queries.error
        print(f"{queries.num_done} queries of {NUM_ROWS} rows were exact in {args.minutes:g} minutes, while ", end="")
        print(f"{num_workers} workers and {num_nodes} nodes were killed.")
    finally:
        ray.shutdown()
        for node in [*cluster.worker_nodes, cluster.head_node]:
            cluster.remove_node(node, allow_graceful=False)


if __name__ == "__main__":
    main()
