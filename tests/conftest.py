"""Fixtures shared by the tests of the engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One small Ray cluster for the session; a test that asks for it must be marked ``ray``."""
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=200_000_000)
    yield
    ray.shutdown()


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.ray)])
def runner(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test once on each runner."""
    import penstock as ps

    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
        ps.set_runner_ray()
    yield request.param
    ps.set_runner_local()
