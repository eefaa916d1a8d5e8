"""Processors whose model is a real deployment of Ray Serve."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pydantic
import pytest

import penstock.compat.ray as ray_adapter
from penstock.compat.ray.data.llm import ServeDeploymentProcessorConfig, build_processor
from penstock.errors import InvalidArgumentError, UdfError

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

        async def text(self, request: Any) -> AsyncIterator[str]:
            yield "four"

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


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"request_kwargs": {}}, "must return 'method', the name of a method"),
        ({"method": "double", "request_kwargs": 3}, "and 'request_kwargs', a dict; got 'double' and 3"),
        ({"method": "triple", "request_kwargs": {}}, "triple"),
        ({"method": "text", "request_kwargs": {}}, "Doubles.text must yield a dict or a pydantic model"),
        ({"method": "double", "request_kwargs": {}}, "KeyError: 'number'"),
    ],
)  # fmt: skip
def test_wrong_requests_and_answers_are_one_line(deployment: str, row: dict[str, Any], message: str) -> None:
    processor = build_processor(config(should_continue_on_error=True), lambda _: row)
    [found] = processor(ray_adapter.data.range(1)).take_all()
    assert message in found["__inference_error__"]
    assert "ServeReplica" not in found["__inference_error__"]


def test_an_unknown_deployment_is_an_error_that_names_the_known_ones(deployment: str) -> None:
    for name, app_name in (("Triples", "app"), ("Doubles", "default")):
        unknown = ServeDeploymentProcessorConfig(deployment_name=name, app_name=app_name)
        processor = build_processor(unknown, request)
        with pytest.raises(UdfError, match="it has: 'Doubles' of 'app'"):
            processor(ray_adapter.data.range(1)).take_all()


def test_without_a_cluster_there_is_one_error(tmp_path: Path) -> None:
    """Serve itself waits for a cluster that was killed and has left its address."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
    code = (
        "from penstock.llm import ServeDeploymentProcessorConfig, build_processor; import penstock as ps\n"
        "config = ServeDeploymentProcessorConfig(deployment_name='x')\n"
        "build_processor(config, lambda row: {'request_kwargs': {}})(ps.range(1)).collect()"
    )
    variables = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    run = subprocess.run(
        [sys.executable, "-c", code], env={**variables, "RAY_TMPDIR": str(tmp_path)}, capture_output=True, text=True
    )
    assert "this process is not connected to Ray, and no cluster runs on this machine" in run.stderr


def test_what_the_deployment_decides_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="max_retries is set by the deployment"):
        config(max_retries=3)
