"""The nodes and actors of the Ray cluster that this process uses, as Ray's public functions give them."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

REREAD_S = 3.0
MAX_ACTORS = 200
API_TIMEOUT_S = 2

_lock = threading.Lock()
_read_at_s = -REREAD_S
_state: dict[str, Any] | None = None
_has_actor_list = True  # until Ray's API server refuses


def cluster_state() -> dict[str, Any] | None:
    """Return the nodes and living actors as JSON values, not older than seconds; None without a cluster."""
    global _read_at_s, _state
    if (ray := sys.modules.get("ray")) is None or not ray.is_initialized():
        return None
    with _lock:
        if time.monotonic() - _read_at_s > REREAD_S:
            try:
                _state = {"nodes": [_node(each) for each in ray.nodes()], "free": _counts(ray.available_resources())}
                _state |= {"actors": _actors()}
            except Exception:  # the cluster is going away
                _state = None
            _read_at_s = time.monotonic()
        return _state


def _node(node: dict[str, Any]) -> dict[str, Any]:
    resources = node["Resources"]
    kinds = [name.removeprefix("accelerator_type:") for name in resources if name.startswith("accelerator_type:")]
    return {
        "name": node["NodeManagerHostname"],
        "address": node["NodeManagerAddress"],
        "is_alive": node["Alive"],
        "gpu_kind": ", ".join(kinds),
        **_counts(resources),
    }


def _counts(resources: dict[str, float]) -> dict[str, float]:
    """Return CPUs, GPUs and bytes of memory."""
    return {name.lower(): resources.get(name, 0.0) for name in ("CPU", "GPU", "memory")}


def _actors() -> list[dict[str, Any]] | None:
    """Return the living actors; None if the cluster has no API server, as one that Penstock starts."""
    global _has_actor_list
    if not _has_actor_list:
        return None
    try:
        from ray.util.state import list_actors

        found = list_actors(filters=[("state", "=", "ALIVE")], limit=MAX_ACTORS, timeout=API_TIMEOUT_S)
    except Exception:  # no API server
        _has_actor_list = False
        return None
    return [{"name": each.name or each.class_name, "node": each.node_id, "pid": each.pid} for each in found]
