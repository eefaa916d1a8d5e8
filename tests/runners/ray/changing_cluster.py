"""Queries on a cluster whose nodes come and go. ``main`` runs all of them and writes what it saw to a file."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from contextvars import copy_context
from itertools import accumulate
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import In, NodeLabelSchedulingStrategy

import penstock as ps
from tests.faults.process_memory import PeakMemory, tree_memory
from tests.runners.ray.placed_engine import PlacedProvider, asked

NUM_ROWS = 40
NUM_DIVIDED = 4096  # rows of 4 kB, in pieces too large for Ray to send them with its messages
NUM_INFLATED = 200  # rows of 5 MB in the end
NODE = {"object_store_memory": 200_000_000}
SYSTEM = {
    "health_check_period_ms": 1000,  # a dead node is noticed in seconds
    "health_check_failure_threshold": 3,
    "worker_niceness": 0,  # or workers starve on a busy machine
}


def main(path: str) -> None:
    storage = {"gcs_storage": "rocksdb", "gcs_storage_path": tempfile.mkdtemp()}  # or a restart forgets the cluster
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": SYSTEM | storage, **NODE}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        ray.init(cluster.address, log_to_driver=False)
        ps.set_runner_ray()
        ps.set_config(progress=False)
        seen = {"groups": lost_pieces(cluster, by_groups), "ranges": lost_pieces(cluster, by_ranges)}
        seen["lost"] = lost_node(cluster)
        seen |= {"inflated": inflated_rows(), "kinds": several_kinds_of_node(cluster)}
        seen |= {"small": small_node(cluster), "grown": grown_cluster(cluster), "drained": drained_node(cluster)}
        seen["restarted"] = restarted_gcs(cluster)
        Path(path).write_text(json.dumps(seen))
    finally:
        ray.shutdown()
        for node in [*cluster.worker_nodes, cluster.head_node]:
            cluster.remove_node(node, allow_graceful=False)  # at once: a node that is asked to end drains first
        if ray._private.utils.read_ray_address() == cluster.address:  # or the next script looks for the cluster
            Path(ray._private.utils.get_ray_address_file(None)).unlink()


class Gate:
    """A file that workers wait for, and a log of their calls."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp())
        self.opened, self.log = str(folder / "open"), str(folder / "log")
        Path(self.log).touch()

    def open(self) -> None:
        Path(self.opened).touch()

    def wait(self) -> None:
        while not os.path.exists(self.opened):
            time.sleep(0.01)

    def note(self, what: Any) -> None:
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND)
        os.write(descriptor, f"{what}\n".encode())
        os.close(descriptor)

    def noted(self) -> list[str]:
        return Path(self.log).read_text().split()


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Collected:
    """A query that runs on a thread of its own."""

    def __init__(self, df: ps.DataFrame) -> None:
        self._df = df
        self._rows: Any = None
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,))  # with the settings
        self._thread.start()

    def rows(self) -> Any:
        self._thread.join()
        if isinstance(self._rows, BaseException):
            raise self._rows
        return self._rows

    def _run(self) -> None:
        try:
            self._rows = self._df.to_pydict()
        except BaseException as exc:
            self._rows = exc


def inflated_rows() -> Any:
    """Rows grow fiftyfold on two nodes whose object stores cannot hold all of them."""
    payload = b"x" * 100_000

    def grown(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"], "text": [payload * 50 for _ in batch["id"]]}

    def measured(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"], "size": [len(text) for text in batch["text"]]}

    df = ps.from_pydict({"id": list(range(NUM_INFLATED)), "payload": [payload] * NUM_INFLATED})
    before = tree_memory(psutil.Process())
    with PeakMemory(os.getpid(), every_s=0.05) as peak:
        rows = df.map_batches(grown).map_batches(measured).to_pydict()
    expected = {"id": list(range(NUM_INFLATED)), "size": [50 * len(payload)] * NUM_INFLATED}
    return {"is_exact": rows == expected, "nbytes": peak.total - before.total}


def small_node(cluster: Cluster) -> Any:
    """Tasks of 48 MB, with the copies that workers make, on a node with room for one and on a node with room for many.

    A worker is on each of their cores, by a placement strategy of Ray.
    """
    small = cluster.add_node(num_cpus=2, object_store_memory=80_000_000, labels={"memory": "small"})
    large = cluster.add_node(num_cpus=2, object_store_memory=400_000_000, labels={"memory": "large"})
    gate, large_id = Gate(), large.node_id

    class Copied:
        def __init__(self) -> None:
            self._node = ray.get_runtime_context().get_node_id()

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            gate.note(f"+{self._node}")
            if self._node == large_id and batch["id"][0] >= NUM_ROWS // 2:
                until(lambda: most_at_once(gate.noted(), large_id) == 2)
            copies = [bytes(bytearray(text)) for text in batch["text"]]
            gate.note(f"-{self._node}")
            return {"id": batch["id"], "text": copies}

    def texts(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"], "text": [bytes(8_000_000) for _ in batch["id"]]}

    chosen = NodeLabelSchedulingStrategy(hard={"memory": In("small", "large")})
    options: Any = {"concurrency": (4, 4), "num_cpus": 1, "ray_options": {"scheduling_strategy": chosen}}
    df = ps.range(NUM_ROWS).map_batches(texts, batch_size=2)
    query = df.map_batches(Copied, batch_size=2, **options)
    ids = query.select("id").to_pydict()["id"]
    noted = gate.noted()
    most = {node.node_id: most_at_once(noted, node.node_id) for node in (small, large)}
    for node in (small, large):
        cluster.remove_node(node, allow_graceful=False)
    return {
        "is_exact": ids == list(range(NUM_ROWS)),
        "most_on_small": most[small.node_id],
        "most_on_large": most[large.node_id],
        "num_elsewhere": len({each[1:] for each in noted} - set(most)),
    }


def most_at_once(noted: list[str], node_id: str) -> int:
    """Return how many calls were on a node at once, which noted ``+`` and ``-`` with its id."""
    return max(accumulate(1 if each[0] == "+" else -1 for each in noted if each[1:] == node_id), default=0)


def lost_node(cluster: Cluster) -> Any:
    """The node with the finished batches of a stage is killed while the next stage waits."""
    node = cluster.add_node(num_cpus=1, num_gpus=1, **NODE)
    gate, made = Gate(), Gate()

    @ps.func(gpus=0.01, max_concurrency=1)
    def grown(x: int) -> bytes:
        made.note(ray.get_runtime_context().get_node_id())
        return bytes([x]) * 300_000

    @ps.func.batch(return_dtype=ps.DataType.int64(), batch_size=4, max_concurrency=1)
    def measured(y: Any) -> list[int]:
        gate.wait()
        return [value[0] * 1000 + len(value) // 300_000 for value in y.to_pylist()]

    df = ps.range(NUM_ROWS).into_batches(4).with_column("y", grown(ps.col("id")))
    query = Collected(df.with_column("y", measured(ps.col("y"))))
    until(lambda: len(made.noted()) >= 8)
    cluster.remove_node(node, allow_graceful=False)
    other = cluster.add_node(num_cpus=1, num_gpus=1, **NODE)
    gate.open()
    rows = query.rows()
    return {
        "is_exact": rows == {"id": list(range(NUM_ROWS)), "y": [1000 * x + 1 for x in range(NUM_ROWS)]},
        "num_calls": len(made.noted()),
        "is_on_gpu_nodes": set(made.noted()) == {node.node_id, other.node_id},
    }


class Warnings(logging.Handler):
    """The warnings of the engine while it is entered."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def __enter__(self) -> list[str]:
        logging.getLogger("penstock").addHandler(self)
        return self.texts

    def __exit__(self, *exc_info: object) -> None:
        logging.getLogger("penstock").removeHandler(self)


def lost_pieces(cluster: Cluster, relate: Callable[[ps.DataFrame], ps.DataFrame]) -> Any:
    """A node with all rows of a relation, and so with pieces of them, is killed while the next stage waits."""
    node = cluster.add_node(num_cpus=1, num_gpus=1, **NODE)
    gate = Gate()

    @ps.func(gpus=0.01, max_concurrency=1)
    def grown(x: int) -> str:
        return f"{x:>4000}"

    def measured(batch: dict[str, Any]) -> dict[str, Any]:
        gate.note("waits")
        gate.wait()
        return {"id": batch["id"], "text": [int(text) for text in batch["text"]]}

    df = ps.range(NUM_DIVIDED).with_column("text", grown(ps.col("id")))
    with ps.config(memory_limit=4_000_000), Warnings() as warnings:
        query = Collected(relate(df).map_batches(measured, batch_size=64, concurrency=1))
        until(lambda: bool(gate.noted()))
        cluster.remove_node(node, allow_graceful=False)
        other = cluster.add_node(num_cpus=1, num_gpus=1, **NODE)
        gate.open()
        rows = query.rows()
    cluster.remove_node(other, allow_graceful=False)
    ids = sorted(rows["id"])
    is_exact = ids == list(range(NUM_DIVIDED)) and rows["id"] == rows["text"]
    return {"is_exact": is_exact, "warnings": [text for text in warnings if "divided again" in text]}


def by_groups(df: ps.DataFrame) -> ps.DataFrame:
    return df.groupby("id").agg(ps.col("text").max())


def by_ranges(df: ps.DataFrame) -> ps.DataFrame:
    return df.sort("id", desc=True)


class Where:
    """Stands for a model on one core."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._node = ray.get_runtime_context().get_node_id()
        gate.note(self._node)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        self._gate.wait()
        return {"id": batch["id"], "node": [self._node] * len(batch["id"])}


@ps.cls(cpus=1, max_concurrency=3)
class Placed:
    """An object with two methods, which three workers share."""

    def __init__(self) -> None:
        self._node = ray.get_runtime_context().get_node_id()

    @ps.method.batch(return_dtype=ps.DataType.string(), batch_size=1)
    def one(self, x: ps.Series) -> list[str]:
        return [self._node] * len(x)

    @ps.method.batch(return_dtype=ps.DataType.string(), batch_size=1)
    def two(self, x: ps.Series) -> list[str]:
        return [self._node] * len(x)


def several_kinds_of_node(cluster: Cluster) -> Any:
    """A class uses nodes with one and with two GPUs. A function with ``ray_options`` runs on the second."""
    kind: Any = {"labels": {"kind": "large"}, "resources": {"accelerator_type:A100": 1}}
    large = cluster.add_node(num_cpus=1, num_gpus=2, **kind, **NODE)
    gate = Gate()
    query = Collected(ps.range(NUM_ROWS).map_batches(Where, batch_size=1, num_gpus=1, fn_constructor_args=(gate,)))
    until(lambda: len(gate.noted()) >= 3)
    gate.open()
    is_exact = query.rows()["id"] == list(range(NUM_ROWS))
    environment = {"env_vars": {"OF_RAY_OPTIONS": "7"}}
    options = {"label_selector": {"kind": "large"}, "accelerator_type": "A100", "runtime_env": environment}

    @ps.func(ray_options=options, max_concurrency=1)
    def place(x: int) -> list[str]:
        context = ray.get_runtime_context()
        return [context.get_node_id(), os.environ.get("OF_RAY_OPTIONS", ""), *context.get_assigned_resources()]

    placed = ps.range(1).select(place(ps.col("id"))).to_pydict()["id"][0]
    provider = PlacedProvider(tempfile.mkdtemp(), num_gpus=3)
    answers = asked([f"ALL {n}" for n in range(NUM_ROWS)], provider, max_concurrency=3).to_pydict()["a"]
    replicas = {tuple(answer.split("/")[1:]) for answer in answers}  # process, node and number of GPUs
    cluster.remove_node(large, allow_graceful=False)
    return {
        "is_exact": is_exact,
        "num_on_large": gate.noted().count(large.node_id),
        "num_elsewhere": len(set(gate.noted()) - {large.node_id}),
        "is_on_large": placed[0] == large.node_id,
        "placed": placed[1:],
        "engines_on_large": [node for _, node, _ in replicas].count(large.node_id),
        "engine_gpus": [num_gpus for _, _, num_gpus in replicas],
    }


def grown_cluster(cluster: Cluster) -> Any:
    """A class without ``concurrency`` starts on the nodes there are, and uses one that comes later."""
    gate = Gate()
    query = Collected(ps.range(NUM_ROWS).map_batches(Where, batch_size=1, num_cpus=1, fn_constructor_args=(gate,)))
    until(lambda: len(gate.noted()) >= 2)
    late = cluster.add_node(num_cpus=1, **NODE)
    until(lambda: late.node_id in gate.noted())
    gate.open()
    rows = query.rows()
    is_late_used = late.node_id in rows["node"]
    return {"is_exact": rows["id"] == list(range(NUM_ROWS)), "is_late_used": is_late_used}


def drained_node(cluster: Cluster) -> Any:
    """A node is marked as draining in the middle of a query: soon all rows come from other nodes."""
    from ray.core.generated import autoscaler_pb2

    node, placed = max(cluster.worker_nodes, key=lambda each: each.node_id), Placed()
    df = ps.range(10**6).with_column("one", placed.one(ps.col("id"))).with_column("two", placed.two(ps.col("id")))
    with closing(df.iter_rows()) as rows:
        ids = list[int]()
        nodes = ({row["one"], row["two"]} for row in rows if ids.append(row["id"]) is None)
        is_used_before = any(found == {node.node_id} for found in nodes)  # reads until both methods have run there
        reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        client = ray._raylet.GcsClient(address=cluster.address)
        is_accepted, why = client.drain_node(node.node_id, reason, "preempted", 2**63 - 1)
        assert is_accepted, why
        num_other = 0
        while num_other < 50:
            num_other = 0 if node.node_id in next(nodes) else num_other + 1
    return {"is_used_before": is_used_before, "is_exact": ids == list(range(len(ids)))}


def restarted_gcs(cluster: Cluster) -> Any:
    """The GCS, which knows nodes and actors, is killed in the middle of a query and started again."""
    gate = Gate()
    query = Collected(ps.range(NUM_ROWS).map_batches(Where, batch_size=1, concurrency=2, fn_constructor_args=(gate,)))
    until(lambda: len(gate.noted()) > 0)
    cluster.head_node.kill_gcs_server()
    cluster.head_node.start_gcs_server()
    gate.open()
    return {"is_exact": query.rows()["id"] == list(range(NUM_ROWS))}


if __name__ == "__main__":
    main(sys.argv[1])
