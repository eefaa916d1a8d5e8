"""A deployment of Ray Serve as the model of a processor."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.ai.options import AiOptions
from penstock.ai.provider import Model, loaded
from penstock.errors import InvalidArgumentError, TypeMismatchError, load_extra
from penstock.llm.configs import ProcessorConfig, check_mapping, check_text
from penstock.llm.rows import Row, error_fields
from penstock.udf.options import check_positive, refusing_unknown

BATCH_SIZE = 32
"""The default of Ray Data."""
_NOT_FOR_SERVE = ("max_retries", "timeout", "requests_per_minute", "tokens_per_minute")


@dataclass(frozen=True, kw_only=True)
class ServeDeploymentProcessorConfig(ProcessorConfig):
    """A deployment of Ray Serve in the cluster of this process, whose methods are generators.

    ``preprocess`` returns ``method`` and ``request_kwargs``, and optionally ``dtype``, the name of the request's class
    in ``dtype_mapping``; without it the method gets a dict. The first value of the generator, a dict or a pydantic
    model, is added to the row. The requests have ``request_id`` and ``idx_in_batch`` too, as in Ray Data, where a batch
    is one row here. The product of ``concurrency`` (1) and ``batch_size`` (32) limits the concurrent requests; Serve is
    slow if it exceeds ``max_ongoing_requests`` of all replicas.

    >>> ServeDeploymentProcessorConfig(deployment_name="Llm", app_name="chat").app_name
    'chat'
    """

    deployment_name: str
    app_name: str = "default"
    dtype_mapping: Mapping[str, Callable[..., Any]] | None = None
    request_timeout_s: float | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        for option in ("deployment_name", "app_name"):
            check_text(name, option, getattr(self, option))
        check_mapping(name, "dtype_mapping", self.dtype_mapping or {})
        check_positive(name, "request_timeout_s", self.request_timeout_s)
        for option in _NOT_FOR_SERVE:
            if getattr(self, option) is not None:
                raise InvalidArgumentError(
                    f"{name}: {option} is set by the deployment; use request_timeout_s for time."
                )
        super().__post_init__()

    def call_options(self, **changes: Any) -> AiOptions:
        if self.max_concurrency is None:
            changes["max_concurrency"] = (self.num_workers or 1) * (self.batch_size or BATCH_SIZE)
        return super().call_options(**changes)


ServeDeploymentProcessorConfig.__init__ = refusing_unknown(  # type: ignore[method-assign]
    ServeDeploymentProcessorConfig.__name__
)(ServeDeploymentProcessorConfig.__init__)


class Deployment(Model):
    """The handle of a deployment, which is made in the worker."""

    def __init__(self, config: ServeDeploymentProcessorConfig) -> None:
        self._config = config
        self._handle: Any = None

    def load(self) -> None:
        serve = load_extra("ray.serve", "serve", "ServeDeploymentProcessorConfig")
        _connect()
        name, app_name = self._config.deployment_name, self._config.app_name
        try:
            found = serve.get_deployment_handle(name, app_name)
        except (KeyError, serve.exceptions.RayServeException) as exc:
            apps = serve.status().applications
            known = ", ".join(f"{each!r} of {app!r}" for app in apps for each in apps[app].deployments)
            raise InvalidArgumentError(
                f"Ray Serve has no deployment {name!r} of the application {app_name!r}; it has: {known or 'none'}."
            ) from exc
        self._handle, self._ids = found.options(stream=True), itertools.count()

    async def call(self, method: str, request_kwargs: Mapping[str, Any], dtype: str | None) -> dict[str, Any]:
        """Return the first value of a method, as a dict, with the id and the time of the request."""
        request: Any = {"request_id": str(next(self._ids)), "idx_in_batch": 0, **request_kwargs}
        start, request_id = time.perf_counter(), request["request_id"]
        answers = getattr(self._handle, method).remote(self._typed(request, dtype))
        answer: Any = await asyncio.wait_for(anext(answers, None), self._config.request_timeout_s)
        fields = answer.model_dump() if hasattr(answer, "model_dump") else answer
        if not isinstance(fields, Mapping):
            raise TypeMismatchError(
                f"{self._config.deployment_name}.{method} must yield a dict or a pydantic model; it yielded {answer!r}."
            )
        return {**fields, "request_id": request_id, "time_taken": time.perf_counter() - start}

    def _typed(self, request: dict[str, Any], dtype: str | None) -> Any:
        classes = self._config.dtype_mapping or {}
        if dtype is None:
            return request
        if dtype not in classes:
            raise InvalidArgumentError(
                f"dtype {dtype!r} is not in the dtype_mapping of ServeDeploymentProcessorConfig."
            )
        return classes[dtype](**request)


def _connect() -> None:
    """Connect this process to Ray, unless it is connected. Serve itself waits forever for a cluster that is gone."""
    import ray

    from penstock.engine.runners.ray.cluster import connect, reachable_address

    if ray.is_initialized():
        return
    address = reachable_address(os.environ.get("RAY_ADDRESS", ""))
    if address == "local":
        raise InvalidArgumentError(
            "ServeDeploymentProcessorConfig: this process is not connected to Ray, and no cluster runs on this "
            "machine. First deploy the application with serve.run(), or connect with ray.init(address=...)."
        )
    connect(address)


class ServeRows:
    """Call the method that each row names."""

    def __init__(self, deployment: Deployment, keeps_failed: bool) -> None:
        self._deployment = loaded(deployment)
        self._keeps_failed = keeps_failed

    async def ask(self, row: Row) -> dict[str, Any]:
        try:
            method, request_kwargs = row.fields.get("method"), row.fields.get("request_kwargs")
            if not isinstance(method, str) or not isinstance(request_kwargs, Mapping):
                raise InvalidArgumentError(
                    "preprocess must return 'method', the name of a method, and 'request_kwargs', a dict; "
                    f"got {method!r} and {request_kwargs!r}."
                )
            return await self._deployment.call(method, request_kwargs, row.fields.get("dtype"))
        except Exception as exc:
            return error_fields(_raised_by_deployment(exc), self._keeps_failed)


def _raised_by_deployment(error: Exception) -> Exception:
    """Return the error that Ray wrapped, whose message has no traceback of Ray; or the error itself."""
    from ray.exceptions import RayTaskError

    return error.cause if isinstance(error, RayTaskError) and isinstance(error.cause, Exception) else error
