"""Where queries run. The runner is a setting like any other, so it can be chosen by environment or in a block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config import get_config, set_config

if TYPE_CHECKING:
    from penstock.runners.query import Runner

_ray_options: dict[str, Any] = {}


def current_runner() -> Runner:
    """Return the runner that the settings name."""
    if get_config().runner == "ray":
        from penstock.runners.ray import RayRunner

        return RayRunner(**_ray_options)
    from penstock.runners.local import LocalRunner

    return LocalRunner()


def set_runner_ray(address: str | None = None) -> None:
    """Run queries on Ray: on the cluster at ``address``, the one this process is connected to, or a new local one."""
    _ray_options.clear()
    _ray_options["address"] = address
    set_config(runner="ray")


def set_runner_local() -> None:
    """Run queries on this machine."""
    set_config(runner="local")
