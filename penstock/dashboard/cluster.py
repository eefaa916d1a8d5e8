"""The nodes and actors of the Ray cluster that this process uses, from Ray's public functions and metrics."""

from __future__ import annotations

import re
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

REREAD_S = 3.0
RETRY_S = 60.0  # after Ray refused
MAX_ACTORS = 200
API_TIMEOUT_S = 2
METRICS_TIMEOUT_S = 1.0
MAX_METRICS_NBYTES = 8 << 20
MAX_THREADS = 16

# Gauges that Ray documents, in the format of Prometheus: a name, labels in braces, a number.
GAUGE = re.compile(r"^ray_node_(cpu_utilization|gpus_utilization|mem_used)\{(.*)\} (\S+)$", re.MULTILINE)
GPU_INDEX = re.compile(r'GpuIndex="(\d+)"')


class Refreshed:
    """A value that is seconds old at most when someone asks for it. A thread reads it again, because Ray may take long
    to answer.
    """

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._next_s = 0.0
        self._thread: threading.Thread | None = None
        self._value: Any = None

    def value(self) -> Any:
        """Return the last value; None before the first answer, and after Ray has refused."""
        with self._lock:
            is_reading = self._thread is not None and self._thread.is_alive()
            if not is_reading and time.monotonic() >= self._next_s:
                self._thread = threading.Thread(target=self._refresh, name="penstock-cluster", daemon=True)
                self._thread.start()
            return self._value

    def _refresh(self) -> None:
        wait_s = REREAD_S
        try:
            self._value = self._read()
        except Exception:  # the cluster is going away, or it has no API server
            self._value, wait_s = None, RETRY_S
        self._next_s = time.monotonic() + wait_s


def cluster_state() -> dict[str, Any] | None:
    """Return the nodes and living actors as JSON values, not older than seconds; None without a cluster.

    Actors are None if the cluster has no API server, like the clusters that Penstock starts.
    """
    if (ray := sys.modules.get("ray")) is None or not ray.is_initialized() or (nodes := _nodes.value()) is None:
        return None
    return {**nodes, "actors": _actors.value()}


def _read_nodes() -> dict[str, Any]:
    import ray

    nodes = ray.nodes()
    with ThreadPoolExecutor(MAX_THREADS) as threads:
        used = list(threads.map(_use_of, nodes))
    return {
        "nodes": [_node(node) | use for node, use in zip(nodes, used, strict=True)],
        "free": _counts(ray.available_resources()),
    }


def _node(node: dict[str, Any]) -> dict[str, Any]:
    resources = node["Resources"]
    kinds = [name.removeprefix("accelerator_type:") for name in resources if name.startswith("accelerator_type:")]
    return {
        "id": node["NodeID"],
        "name": node["NodeManagerHostname"],
        "address": node["NodeManagerAddress"],
        "is_alive": node["Alive"],
        "gpu_kind": ", ".join(kinds),
        **_counts(resources),
    }


def _counts(resources: dict[str, float]) -> dict[str, float]:
    """Return CPUs, GPUs and bytes of memory."""
    return {name.lower(): resources.get(name, 0.0) for name in ("CPU", "GPU", "memory")}


def _use_of(node: dict[str, Any]) -> dict[str, Any]:
    """Return the use of a node as its agent reports it; without values if the agent does not answer here."""
    host = f"[{node['NodeManagerAddress']}]" if ":" in node["NodeManagerAddress"] else node["NodeManagerAddress"]
    try:
        open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        with open_url(f"http://{host}:{node['MetricsExportPort']}/metrics", timeout=METRICS_TIMEOUT_S) as answer:
            return use_in(answer.read(MAX_METRICS_NBYTES).decode())
    except (OSError, ValueError, KeyError):
        return use_in("")


def use_in(metrics: str) -> dict[str, Any]:
    """Return from a node's metrics how busy its CPUs and each GPU are, as shares, and the memory in use.

    >>> use_in('ray_node_cpu_utilization{ip="::1"} 50.0')
    {'cpu_busy': 0.5, 'gpus_busy': {}, 'memory_used': None}
    """
    found: dict[str, Any] = {"cpu_busy": None, "gpus_busy": {}, "memory_used": None}
    for name, labels, number in GAUGE.findall(metrics):
        value = float(number)
        if name == "cpu_utilization":
            found["cpu_busy"] = value / 100
        elif name == "mem_used":
            found["memory_used"] = value
        elif gpu := GPU_INDEX.search(labels):
            found["gpus_busy"][gpu[1]] = value / 100
    return found


def _read_actors() -> list[dict[str, Any]]:
    import ray
    from ray.util.state import list_actors

    address = ray.get_runtime_context().gcs_address  # this machine may have several clusters
    filters = [("state", "=", "ALIVE")]
    found: Iterable[Any] = list_actors(address, filters, limit=MAX_ACTORS, timeout=API_TIMEOUT_S)
    return [{"name": each.name or each.class_name, "node": each.node_id, "pid": each.pid} for each in found]


_nodes, _actors = Refreshed(_read_nodes), Refreshed(_read_actors)
