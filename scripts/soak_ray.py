"""Run queries on a Ray cluster of several nodes, again and again, while workers and nodes are killed at random.

    python scripts/soak_ray.py --minutes 20 --json soak.json

Each query reads, calls a function and a class, and collects; each second one also groups and sorts more rows than it
has memory for. Its rows must be exact. Needs no cluster: three nodes are started on this machine. Each node has an
object store of 200 MB, and the files of Ray are in a folder of their own that is removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster

import penstock as ps

NUM_ROWS = 2000
NODE = {"num_cpus": 1, "object_store_memory": 200_000_000}
HEALTH = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}
KILLED = ("ray::Worker", "ray::divide", "ray::merge")
MEMORY = 10_000_000  # of the queries that exchange rows
MB = 2**20


@dataclass
class Summary:
    """What has happened so far. The sizes are of the driver's process and of the files of Ray."""

    num_queries: int = 0
    num_exchanges: int = 0
    num_workers_killed: int = 0
    num_nodes_killed: int = 0
    minutes: float = 0.0
    slowest_query_s: float = 0.0
    driver_mb: list[int] = field(default_factory=list)  # once a minute
    files_mb: list[int] = field(default_factory=list)
    error: str | None = None

    def __str__(self) -> str:
        outcome = "all rows were exact" if self.error is None else f"then: {self.error}"
        return (
            f"{self.num_queries} queries of {NUM_ROWS} rows in {self.minutes:.1f} minutes, {self.num_exchanges} of "
            f"them with an exchange, while {self.num_workers_killed} workers and {self.num_nodes_killed} nodes were "
            f"killed; {outcome}. The slowest took {self.slowest_query_s:.0f} s. Each minute the driver had "
            f"{', '.join(map(str, self.driver_mb))} MB, and the files of Ray {', '.join(map(str, self.files_mb))} MB."
        )


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


def run_query(*, has_exchange: bool) -> None:
    df = ps.range(NUM_ROWS).with_column("blob", blob(ps.col("id")))
    if has_exchange:
        df = df.groupby("id").agg(ps.col("blob").any_value()).sort("id")
    with ps.config(memory_limit=MEMORY if has_exchange else None):
        rows = df.map_batches(Model, batch_size=32).to_pydict()
    assert rows["id"] == list(range(NUM_ROWS)), "rows are missing, doubled or out of order"
    assert rows["size"] == [20_000 + x % 7 + x for x in range(NUM_ROWS)], "values are wrong"


class Queries(threading.Thread):
    """Runs one query after another. Nodes are started by the main thread, because Ray sets signal handlers."""

    def __init__(self, summary: Summary) -> None:
        super().__init__()
        self._summary = summary
        self.error: BaseException | None = None
        self.must_stop = False

    def run(self) -> None:
        try:
            while not self.must_stop:
                has_exchange, started_s = self._summary.num_queries % 2 == 1, time.monotonic()
                run_query(has_exchange=has_exchange)
                self._summary.num_queries += 1
                self._summary.num_exchanges += has_exchange
                self._summary.slowest_query_s = max(self._summary.slowest_query_s, time.monotonic() - started_s)
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
        return process.name().startswith(KILLED)
    except psutil.NoSuchProcess:
        return False


def measure(summary: Summary, folder: str) -> None:
    found = subprocess.run(["du", "-sm", folder], capture_output=True, text=True, check=False)  # files may vanish
    summary.files_mb.append(int(found.stdout.split()[0]))
    summary.driver_mb.append(psutil.Process().memory_info().rss // MB)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--every", type=float, default=4, help="seconds between two kills, on average")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="a file for the summary, which is also printed")
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="soak", dir="/tmp")  # a short path: Ray has sockets in it
    cluster = Cluster()
    summary, chance = Summary(), random.Random(args.seed)
    queries = Queries(summary)
    try:
        cluster.add_node(**NODE, include_dashboard=False, _system_config=HEALTH, temp_dir=folder)
        for _ in range(2):
            cluster.add_node(**NODE)
        ray.init(cluster.address, log_to_driver=False)
        ps.set_runner_ray()
        ps.set_config(progress=False)
        run_query(has_exchange=False)
        queries.start()
        started_s = time.monotonic()
        while summary.minutes < args.minutes and queries.error is None:
            time.sleep(chance.uniform(0.5, 1.5) * args.every)
            if chance.random() < 0.1:
                kill_node(cluster, chance)
                summary.num_nodes_killed += 1
            else:
                summary.num_workers_killed += has_killed_worker(chance)
            if summary.minutes >= len(summary.files_mb):
                measure(summary, folder)
            summary.minutes = (time.monotonic() - started_s) / 60
        queries.must_stop = True
        queries.join()
        summary.error = queries.error and f"{type(queries.error).__name__}: {queries.error}"
        print(summary)
        if args.json:
            args.json.write_text(json.dumps(asdict(summary), indent=1))
        if queries.error is not None:
            raise queries.error
    finally:
        ray.shutdown()
        for node in [*cluster.worker_nodes, cluster.head_node]:
            cluster.remove_node(node, allow_graceful=False)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
