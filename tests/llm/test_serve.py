"""Processors whose model is a real deployment of Ray Serve."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pydantic
import pytest

import penstock.compat.ray as ray_adapter
from penstock.compat.ray.data.llm import ServeDeploymentProcessorConfig, build_processor
from penstock.errors import InvalidArgumentError

pytestmark = pytest.mark.ray


class Question(pydantic.BaseModel):
    request_id: str
    number: int


@pytest.fixture(scope="module")
def deployment(ray_cluster: None) -> Iterator[str]:
    with warnings.catch_warnings():  # Serve's own, of pydantic
        warnings.simplefilter("ignore")
        from ray import serve

    @serve.deployment(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=100)
    class Doubles:
        async def double(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
            if request["number"] == 3:
                raise ValueError("no threes")
            yield {"answer": request["number"] * 2}

        async def describe(self, request: Any) -> AsyncIterator[Any]:
            yield type(request)(request_id="x", number=request.number + 100)

        async def hang(self, request: Any) -> AsyncIterator[Any]:
            import asyncio

            await asyncio.Event().wait()
            yield {}

    serve.start(proxy_location="Disabled")
    serve.run(Doubles.bind(), name="app", route_prefix=None)  # type: ignore[attr-defined]
    yield "Doubles"
    serve.shutdown()


def config(**options: Any) -> ServeDeploymentProcessorConfig:
    return ServeDeploymentProcessorConfig(deployment_name="Doubles", app_name="app", **options)


def request(row: dict[str, Any]) -> dict[str, Any]:
    return {"method": "double", "request_kwargs": {"number": row["id"]}}


def test_rows_get_the_answers_of_a_deployment(deployment: str) -> None:
    processor = build_processor(config(), request, lambda row: {"id": row["id"], "answer": row["answer"]})
    assert processor(ray_adapter.data.range(3)).take_all() == [{"id": n, "answer": 2 * n} for n in range(3)]


def test_requests_are_objects_of_the_class_that_a_row_names(deployment: str) -> None:
    typed = {"method": "describe", "dtype": "Question", "request_kwargs": {"number": 1}}
    options = {"dtype_mapping": {"Question": Question}, "concurrency": 2, "batch_size": 1}
    [row] = build_processor(config(**options), lambda row: typed)(ray_adapter.data.range(1)).take_all()
    assert row["number"] == 101
    assert row["time_taken"] > 0


def test_failed_rows_are_kept_or_end_the_query(deployment: str) -> None:
    kept = build_processor(config(should_continue_on_error=True), request)(ray_adapter.data.range(4)).take_all()
    assert [row["__inference_error__"].endswith("no threes") for row in kept] == [False, False, False, True]
    with pytest.raises(ValueError, match="no threes"):
        build_processor(config(), request)(ray_adapter.data.range(4)).take_all()
    hanging = {"method": "hang", "request_kwargs": {}}
    with pytest.raises(TimeoutError):
        build_processor(config(request_timeout_s=0.2), lambda row: hanging)(ray_adapter.data.range(1)).take_all()


def test_what_the_deployment_decides_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="max_retries is set by the deployment"):
        config(max_retries=3)
