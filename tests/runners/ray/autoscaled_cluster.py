"""A query on a cluster with an autoscaler that has no node type for its workers. ``main`` writes what it said."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

import penstock as ps
from penstock.errors import QueryStalledError

COMMANDS = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
CONFIG: dict[str, Any] = {
    "cluster_name": "fake",
    "max_workers": 1,
    "provider": {"type": "fake_multinode"},
    "auth": {"ssh_user": "nobody"},
    "available_node_types": {
        "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
        "worker": {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 1},
    },
    "head_node_type": "ray.head.default",
    "upscaling_speed": 1.0,
    "idle_timeout_minutes": 1,
    "file_mounts": {},
    "cluster_synced_files": [],
    "file_mounts_sync_continuously": False,
    "rsync_exclude": [],
    "rsync_filter": [],
    **{f"{name}_commands": [] for name in COMMANDS},
}


class Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts = list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


class Same:
    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch


def main(path: str) -> None:
    os.environ |= {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    config = Path(tempfile.mkdtemp()) / "config.json"
    config.write_text(json.dumps(CONFIG))
    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100_000_000}
    cluster = Cluster(initialize_head=True, head_node_args=head | {"autoscaling_config": str(config)})
    warnings = Warnings()
    logging.getLogger("penstock.workers").addHandler(warnings)
    try:
        ray.init(cluster.address, log_to_driver=False)
        ps.set_runner_ray()
        ps.set_config(progress=False, stall_timeout=20)
        error = ""
        try:
            ps.range(10).map_batches(Same, num_gpus=1).collect()
        except QueryStalledError as exc:
            error = str(exc)
        Path(path).write_text(json.dumps({"warnings": warnings.texts, "error": error}))
    finally:
        ray.shutdown()
        cluster.remove_node(cluster.head_node, allow_graceful=False)
        if ray._private.utils.read_ray_address() == cluster.address:  # or the next script looks for the cluster
            Path(ray._private.utils.get_ray_address_file(None)).unlink()


if __name__ == "__main__":
    main(sys.argv[1])
