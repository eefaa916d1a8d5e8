"""Ray as its users start it on one machine, quiet."""

from __future__ import annotations

import atexit
import logging
import warnings
from typing import Any

QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


def start() -> None:
    import ray

    prepare()
    ray.init(include_dashboard=False, **QUIET)


def start_nodes(num_nodes: int, store_nbytes: int) -> None:
    """Start nodes of one core, each with an object store of its own, and connect to them."""
    import ray
    from ray.cluster_utils import Cluster

    prepare()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": store_nbytes})
    for _ in range(num_nodes - 1):
        cluster.add_node(num_cpus=1, object_store_memory=store_nbytes)
    ray.init(address=cluster.address, **QUIET)
    atexit.register(ray.shutdown)  # before the nodes are killed, or the process ends with an error


def prepare() -> None:
    """Make Ray the same for every engine: the peers' environment lacks the packages of its dashboard, with which an
    agent starts on each node.
    """
    import ray._private.utils
    import ray.data  # no engine is charged for the import

    ray._private.utils.get_dashboard_dependency_error = ImportError
    warnings.filterwarnings("ignore")
