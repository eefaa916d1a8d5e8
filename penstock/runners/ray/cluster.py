"""The nodes of the Ray cluster, followed while a query runs."""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ray

from penstock.config import task_share
from penstock.errors import InvalidArgumentError
from penstock.runners.placement import Amounts, described_node, labels_among
from penstock.runners.ray.failures import one_line

log = logging.getLogger("penstock.workers")

POLL_S = 2.0
REPORT_S = 6.0  # until the autoscaler of a cluster that has just started has written its first report
MAX_KINDS = 5  # of nodes in a message
ANSWER_S = 10.0  # a busy cluster answers late
forked_from: list[int] = []  # the ids of the processes that this one was forked from
os.register_at_fork(after_in_child=lambda: forked_from.append(os.getppid()))
STORE_SHARE = 0.75  # of the object store that bundles may fill; Ray spills to disk from 0.8 on


class Cluster:
    """The nodes that may get work: alive and not draining. Read again every ``POLL_S`` seconds by a thread."""

    def __init__(self, labels_of: Callable[[Mapping[str, Any]], Amounts]) -> None:
        self._labels_of = labels_of  # labels of a node that count as resources
        self.usable: dict[str, Amounts] = {}  # the resources of each node by its id
        self._listeners: list[Callable[[], None]] = []
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="penstock-ray-nodes", daemon=True)
        self.poll()

    @property
    def nodes(self) -> list[Amounts]:
        return list(self.usable.values())

    def free_nodes(self) -> list[Amounts]:
        """Return the resources of each node that no actor or task has, of this query or another."""
        free = ray._private.state.available_resources_per_node()
        nodes = [(node_id, labels_among(amounts)) for node_id, amounts in list(self.usable.items())]
        return [{**labels, **free.get(node_id, {})} for node_id, labels in nodes]

    @property
    def num_cores(self) -> int:
        return max(1, int(sum(resources.get("CPU", 0) for resources in self.usable.values())))

    @property
    def store_nbytes(self) -> int:
        """Bytes of the object stores that bundles may fill."""
        return int(STORE_SHARE * sum(resources.get("object_store_memory", 0) for resources in self.usable.values()))

    @property
    def task_nbytes(self) -> int:
        """Bytes of the input or output of a task, so that tasks on all cores fit on the node with least memory."""
        return task_share(int(STORE_SHARE * least_per_core(self.usable.values())), num_cores=1)

    def node_nbytes(self, node_id: str, memory_limit: int = 0) -> int:
        """Return the bytes that tasks on a node may hold, bounded by its store, its heaps and its share of the
        limit."""
        node = self.usable.get(node_id, {})
        nbytes = STORE_SHARE * node.get("object_store_memory", 0)
        if memory_limit:
            nbytes = min(nbytes, memory_limit * nbytes / max(self.store_nbytes, 1))
        return int(min(nbytes, node.get("memory", nbytes)))

    def on_poll(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` on the thread of this object after each poll."""
        self._listeners.append(listener)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._is_closed.set()
        self._thread.join()
        self._listeners.clear()

    def poll(self) -> None:
        draining = ray._private.state.state.get_draining_nodes()  # no public function tells
        nodes = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] not in draining]
        self.usable = {node["NodeID"]: {**node["Resources"], **self._labels_of(node)} for node in nodes}

    def _follow(self) -> None:
        while not self._is_closed.wait(POLL_S):
            for act in (self.poll, *self._listeners):
                try:
                    act()
                except Exception as exc:  # the GCS may be away for a while; the query goes on with what is known
                    log.warning("The nodes of the Ray cluster could not be read; trying again. %s", one_line(exc))


def connect(named: str) -> None:
    """Connect this process to the cluster that the user names, to the one on this machine, or to a new local one."""
    # Errors alone: Ray warns of its own settings, such as token authentication.
    ray.init(reachable_address(named), ignore_reinit_error=True, include_dashboard=False, logging_level=logging.ERROR)


def has_autoscaler() -> bool:
    """Return whether a process adds nodes when an actor finds no room.

    Ray has no function that tells. An autoscaler knows the types of its nodes; the autoscaler of a cluster of fixed
    size only reports, and invents a type for each node.
    """
    from ray.autoscaler.v2.utils import is_autoscaler_v2

    if ray._private.worker._global_node.is_head():  # of a local cluster, which this process has started
        return False
    client = ray._private.worker.global_worker.gcs_client
    if is_autoscaler_v2(fetch_from_server=True, gcs_client=client):
        from ray.autoscaler.v2.sdk import get_cluster_resource_state

        return any(node.ray_node_type_name for node in get_cluster_resource_state(client).node_states)
    deadline, report = time.monotonic() + REPORT_S, None
    while report is None and time.monotonic() < deadline:
        status = ray.experimental.internal_kv._internal_kv_get(ray._private.ray_constants.DEBUG_AUTOSCALING_STATUS)
        report = json.loads(status or b"{}").get("autoscaler_report")
        if report is None:
            time.sleep(REPORT_S / 20)
    types: Mapping[str, str] = (report or {}).get("node_type_mapping") or {}
    return any(kind != f"node_{node_id}" for node_id, kind in types.items())


def is_node_alive(node_id: str) -> bool:
    """Return whether Ray's process on a node takes connections. Ray itself notices a dead node only after seconds."""
    node = next((node for node in ray.nodes() if node["NodeID"] == node_id and node["Alive"]), None)
    if node is None:
        return False
    return _takes_connections(node["NodeManagerAddress"], node["NodeManagerPort"])


def reachable_address(named: str) -> str:
    """Return the address of the cluster that the user names, or of the cluster on this machine; "local" if there is
    none.

    Ray waits forever for a cluster that does not answer, even for one that was killed and left its address here.
    """
    address = ray._private.services.canonicalize_bootstrap_address(named or None)
    if address is None:
        return "local"
    host, _, port = address.rpartition(":")
    if _answers_grpc(host.strip("[]"), int(port)):
        return str(address)
    if named and named != "auto":
        raise InvalidArgumentError(
            f"No Ray cluster answers at {named}. Start one there, or name the address of another."
        )
    return "local"


def is_same_address(one: str, other: str) -> bool:
    """Return whether two addresses lead to the same server: host names, and the names of this machine, are resolved.

    >>> is_same_address("127.0.0.1:6379", "localhost:6379"), is_same_address("127.0.0.1:6379", "127.0.0.1:6380")
    (True, False)
    """
    return one == other or not _resolved(one).isdisjoint(_resolved(other))


def _resolved(address: str) -> set[tuple[str, str]]:
    """Return the IP addresses of a host, each with the port; a loopback address stands for this machine."""
    host, _, port = address.rpartition(":")
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host.strip("[]"), None)}
    except OSError:
        return set()
    here = ray.util.get_node_ip_address()
    is_here = here in found or any(ipaddress.ip_address(ip).is_loopback for ip in found)
    return {(ip, port) for ip in ({*found, here, "127.0.0.1"} if is_here else found)}


def _takes_connections(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=POLL_S).close()
    except OSError:
        return False
    return True


def _answers_grpc(host: str, port: int) -> bool:
    """Return whether a gRPC server listens. The port of a dead cluster can belong to another program, such as Redis."""
    import grpc

    if not _takes_connections(host, port):
        return False
    if os.environ.get("RAY_USE_TLS", "0") in ("1", "true"):
        return True
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=ANSWER_S)
        except grpc.FutureTimeoutError:
            return False
    return True


def described_nodes(nodes: Iterable[Amounts]) -> str:
    """Return the resources of nodes, the most frequent kind first.

    >>> described_nodes([{"CPU": 4, "memory": 2**30}, {"CPU": 4, "memory": 2**30}])
    '2 with 4 CPUs, 1.0 GiB of memory, no GPU'
    """
    kinds = Counter(map(described_node, nodes)).most_common()
    found = [f"{number} with {kind}" for kind, number in kinds[:MAX_KINDS]]
    if len(kinds) > MAX_KINDS:
        found.append(f"{sum(number for _, number in kinds[MAX_KINDS:])} others")
    return "; ".join(found) or "none"


def least_per_core(nodes: Iterable[Mapping[str, float]]) -> float:
    """Return the bytes of object store for each core, on the node that has least; 0 without cores.

    >>> least_per_core([{"CPU": 2, "object_store_memory": 800}, {"CPU": 8, "object_store_memory": 1600}, {"GPU": 1}])
    200.0
    """
    return min((node.get("object_store_memory", 0) / node["CPU"] for node in nodes if node.get("CPU")), default=0.0)


def emptiest_node(nodes: Mapping[str, Mapping[str, float]], places: Iterable[str | None]) -> str | None:
    """Return the node that would have the most cores per worker with one more worker; None without cores.

    ``places`` are the nodes of the workers.

    >>> nodes = {"a": {"CPU": 4}, "b": {"CPU": 2}, "driver": {}}
    >>> places = []
    >>> for _ in range(6):
    ...     places.append(emptiest_node(nodes, places))
    >>> places
    ['a', 'a', 'b', 'a', 'a', 'b']
    """
    num_workers = Counter(places)
    found = max(nodes, key=lambda node: nodes[node].get("CPU", 0) / (num_workers[node] + 1), default=None)
    return found if found is not None and nodes[found].get("CPU") else None
