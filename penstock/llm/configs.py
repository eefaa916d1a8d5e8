"""Configurations of processors. Values are validated at construction; unknown names are refused."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.ai.client.addresses import checked_address
from penstock.ai.options import AiOptions
from penstock.ai.providers.remote_provider import checked_headers, checked_key
from penstock.errors import InvalidArgumentError
from penstock.expr.udf import MaxErrors
from penstock.storage.secret import Secret
from penstock.udf.options import check_positive, check_whole, refusing_unknown
from penstock.udf.specs import worker_range

CALLS_PER_WORKER = 64
"""The default batch size of Ray Data's HTTP processor."""


@dataclass(frozen=True, kw_only=True)
class ProcessorConfig:
    """The fields of all processors: first the options of Ray Data, then the options of ``prompt``.

    Rows are independent requests; none waits for the rest of a batch. A failed row ends the query; with
    ``on_error="null"`` or ``"log"`` it is omitted and listed by ``df.errors()``; with ``should_continue_on_error`` it
    is kept without ``postprocess``, with its error in ``__inference_error__``.
    """

    batch_size: int | None = None
    concurrency: int | tuple[int, int] | None = None
    should_continue_on_error: bool = False
    on_error: str = "raise"
    max_errors: MaxErrors = "auto"
    max_retries: int | None = None
    timeout: float | None = None
    max_concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.batch_size is not None:
            check_whole(name, "batch_size", self.batch_size, 1)
        worker_range(name, self.concurrency)
        if self.should_continue_on_error and self.on_error != "raise":
            raise InvalidArgumentError(
                f"{name}: a failed row is either kept (should_continue_on_error=True) or omitted "
                f"(on_error={self.on_error!r})."
            )
        self.call_options()

    @property
    def num_workers(self) -> int | None:
        """The maximum of ``concurrency``."""
        return worker_range(type(self).__name__, self.concurrency)[1]

    def call_options(self, **changes: Any) -> AiOptions:
        """Return the options of the requests, with some values replaced."""
        options = {name: getattr(self, name) for name in _CALL_FIELDS} | changes
        return AiOptions.of(type(self).__name__, options)


_CALL_FIELDS = (
    *("on_error", "max_errors", "max_retries", "timeout"),
    *("max_concurrency", "requests_per_minute", "tokens_per_minute"),
)


@dataclass(frozen=True, kw_only=True)
class GenerationConfig(ProcessorConfig):
    """Processors that generate text. ``sampling_params`` apply to all rows; the parameters of a row override them."""

    sampling_params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_mapping(type(self).__name__, "sampling_params", self.sampling_params)
        check_whole(type(self).__name__, "sampling_params: n", self.sampling_params.get("n", 1), 1)
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class OpenAIProcessorConfig(GenerationConfig):
    """OpenAI, or a server with its API at ``base_url``. Without ``api_key``, the key comes from the environment.

    >>> OpenAIProcessorConfig(model="gpt-5-mini", sampling_params={"max_tokens": 200}).model
    'gpt-5-mini'
    """

    model: str
    base_url: str | None = None
    api_key: str | Secret | None = field(default=None, repr=False)
    headers: Mapping[str, Any] = field(default_factory=dict, repr=False)
    use_chat_completions: bool = False

    def __post_init__(self) -> None:
        check_text(type(self).__name__, "model", self.model)
        check_mapping(type(self).__name__, "headers", self.headers)
        object.__setattr__(self, "headers", dict(checked_headers(self.headers)))
        object.__setattr__(self, "api_key", checked_key(self.api_key, "OPENAI_API_KEY"))
        if self.base_url is not None:
            object.__setattr__(self, "base_url", checked_address(self.base_url))
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class TransformersProcessorConfig(GenerationConfig):
    """A model that transformers runs in the workers: a folder or a name of the hub. ``options`` are for loading it."""

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_text(type(self).__name__, "model", self.model)
        check_mapping(type(self).__name__, "options", self.options)
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class HttpRequestProcessorConfig(ProcessorConfig):
    """A server that accepts JSON by POST: ``preprocess`` returns ``payload``, ``postprocess`` gets ``http_response``.

    ``qps`` limits the requests per second. ``concurrency`` times ``batch_size``, if given, limits the concurrent
    requests; otherwise the limiter adapts to the server.

    >>> HttpRequestProcessorConfig(url="http://localhost:8000/predict", qps=10).url
    'http://localhost:8000/predict'
    """

    url: str
    headers: Mapping[str, Any] | None = field(default=None, repr=False)
    qps: float | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_text(name, "url", self.url)
        object.__setattr__(self, "url", checked_address(self.url, f"{name}: url"))
        check_mapping(name, "headers", self.headers or {})
        object.__setattr__(self, "headers", dict(checked_headers(self.headers or {})))
        if self.qps is not None and self.requests_per_minute is not None:
            raise InvalidArgumentError(f"{name}: qps and requests_per_minute mean the same; give one of them.")
        check_positive(name, "qps", self.qps)
        super().__post_init__()

    def call_options(self, **changes: Any) -> AiOptions:
        if self.qps is not None:
            changes["requests_per_minute"] = self.qps * 60
        if self.max_concurrency is None and (self.concurrency is not None or self.batch_size is not None):
            changes["max_concurrency"] = (self.num_workers or 1) * (self.batch_size or CALLS_PER_WORKER)
        return super().call_options(**changes)


@dataclass(frozen=True, kw_only=True)
class vLLMEngineProcessorConfig(GenerationConfig):  # noqa: N801 - Ray Data's name
    """A model that vLLM runs, in this process or in a server at ``base_url`` or PENSTOCK_VLLM_BASE_URL.

    ``model`` and ``model_source`` are the same. In this process the engine takes ``engine_kwargs`` and ``concurrency``
    replicas; a server has its own settings. ``max_pending_requests`` limits the concurrent requests. With
    ``chat_template_stage=False`` the model continues the ``prompt`` of a row as it is.

    >>> vLLMEngineProcessorConfig(model="Qwen/Qwen3-8B", engine_kwargs={"max_model_len": 16384}).model_source
    'Qwen/Qwen3-8B'
    """

    model: str = ""
    model_source: str = ""
    base_url: str | None = None
    api_key: str | Secret | None = field(default=None, repr=False)
    engine_kwargs: Mapping[str, Any] = field(default_factory=dict)
    task_type: str = "generate"
    max_pending_requests: int | None = None
    chat_template_stage: Any = True
    apply_chat_template: bool = True
    chat_template: str | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.model and self.model_source and self.model != self.model_source:
            raise InvalidArgumentError(
                f"{name}: model={self.model!r} and model_source={self.model_source!r} mean the same thing; give one."
            )
        chosen = self.model or self.model_source
        check_text(name, "model", chosen)
        object.__setattr__(self, "api_key", checked_key(self.api_key))
        if self.base_url is not None:
            object.__setattr__(self, "base_url", checked_address(self.base_url))
        for option in ("model", "model_source"):
            object.__setattr__(self, option, chosen)
        check_mapping(name, "engine_kwargs", self.engine_kwargs)
        if self.max_pending_requests is not None:
            check_whole(name, "max_pending_requests", self.max_pending_requests, 1)
        if self.task_type != "generate":
            raise InvalidArgumentError(
                f"{name}: a processor generates; for task_type={self.task_type!r} use embed_text or classify_text."
            )
        super().__post_init__()

    @property
    def has_chat_template(self) -> bool:
        """True if rows are conversations; otherwise the model continues their texts."""
        stage = self.chat_template_stage
        is_on = stage.get("enabled", True) if isinstance(stage, Mapping) else bool(stage)
        return is_on and self.apply_chat_template

    def call_options(self, **changes: Any) -> AiOptions:
        if self.max_concurrency is None:
            changes["max_concurrency"] = self.max_pending_requests
        return super().call_options(**changes)


IGNORED = frozenset(
    {
        *("accelerator_type", "runtime_env", "placement_group_config", "log_engine_metrics", "max_concurrent_batches"),
        *("max_tasks_in_flight_per_actor", "tokenize_stage", "detokenize_stage", "prepare_multimodal_stage"),
        *("tokenize", "detokenize", "has_image"),
    }
)
"""Options of Ray Data that say where and how work runs; they change no result here."""


def _checked(init: Callable[..., None]) -> Callable[..., None]:
    """Return the constructor of a config that ignores Ray's options of placement and refuses unknown ones."""
    known = refusing_unknown(init.__qualname__.partition(".")[0])(init)

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **options: Any) -> None:
        known(self, *args, **{name: value for name, value in options.items() if name not in IGNORED})

    return checked


for _config in (
    OpenAIProcessorConfig,
    TransformersProcessorConfig,
    HttpRequestProcessorConfig,
    vLLMEngineProcessorConfig,
):
    _config.__init__ = _checked(_config.__init__)  # type: ignore[method-assign]


def check_text(name: str, option: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"{name}: {option} is a text; got {value!r}.")


def check_mapping(name: str, option: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"{name}: {option} is a dict; got {type(value).__name__}.")
