"""Adapter for programs of Ray Data: ``import penstock.compat.ray as ray`` and then ``ray.data.read_parquet(...)``.

data/    ``ray.data``

Tasks, actors and objects belong to Ray itself; ``ps.set_runner_ray()`` runs queries on it. It may import everything.
"""

from typing import Any

from penstock.compat.ray import data
from penstock.errors import PenstockError

__all__ = ["data"]


class NotRayError(PenstockError, AttributeError):
    """A name of Ray that is not part of Ray Data."""


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise NotRayError(
        f"penstock.compat.ray has ray.data only, not ray.{name}. Use `import ray` for Ray's tasks, actors and objects; "
        "penstock.set_runner_ray() runs queries on a cluster."
    )
