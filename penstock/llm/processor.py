"""Build processors, functions from DataFrame to DataFrame, from their configs."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.ai.client.api_call import Endpoint
from penstock.ai.dialogue import PromptSettings
from penstock.ai.local.serving.provider import ServedProvider, VllmProvider
from penstock.ai.model_columns import placed
from penstock.ai.options import AiOptions
from penstock.ai.provider import Model, Prompter, Prompting, Provider
from penstock.ai.provider_registry import find_provider, make_provider
from penstock.ai.providers import chat_completions as chat_wire
from penstock.ai.providers.openai import OpenAIProvider
from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, col
from penstock.expr.nodes import UdfCall
from penstock.expr.udf import Builtin, Target, UdfSpec
from penstock.frame.dataframe import DataFrame
from penstock.llm.configs import (
    GenerationConfig,
    HttpRequestProcessorConfig,
    OpenAIProcessorConfig,
    ProcessorConfig,
    TransformersProcessorConfig,
    vLLMEngineProcessorConfig,
)
from penstock.llm.row_processing import (
    ANSWER,
    ROW,
    AsyncRows,
    BatchRows,
    HttpRows,
    HttpService,
    JsonClient,
    Postprocess,
    Preprocess,
    RowFunction,
    Translate,
)
from penstock.types import DataType
from penstock.udf.options import error_policy

log = logging.getLogger("penstock.llm")

NOT_SERVED = ("logprobs", "prompt_logprobs")
"""Sampling parameters of vLLM whose results a processor does not return."""
ENGINE_OPTIONS = (*chat_wire.ROW_OPTIONS, "n", "lora")
"""Sampling parameters that are options of a request."""


class Processor:
    """A function from DataFrame to DataFrame, made by ``build_processor``. Calling it runs nothing yet."""

    def __init__(
        self,
        config: ProcessorConfig,
        ask: UdfSpec,
        prepare: Preprocess,
        finish: Postprocess,
        map_options: Mapping[str, Any],
    ) -> None:
        self.config = config
        self._ask, self._preprocess, self._postprocess = ask, prepare, finish
        self._map_options = map_options

    def __call__(self, df: DataFrame) -> DataFrame:
        if not isinstance(df, DataFrame):
            raise InvalidArgumentError(f"A processor takes a penstock DataFrame; got {type(df).__name__}.")
        answers = Expression(UdfCall(self._ask, (col(ROW)._node,), ()))
        asked = df.map(self._preprocess, **self._map_options).with_column(ANSWER, answers)
        return asked.flat_map(self._postprocess, **self._map_options)

    def __repr__(self) -> str:
        return f"Processor({self.config!r})"


def build_processor(
    config: ProcessorConfig,
    preprocess: RowFunction | None = None,
    postprocess: RowFunction | None = None,
) -> Processor:
    """Return a function from DataFrame to DataFrame that sends each row to a model or a server.

    ``preprocess`` gets a row as a dict and returns ``messages`` (a conversation) or ``prompt`` (a text), and optionally
    ``sampling_params`` of the row; for an HTTP server it returns ``payload``. ``postprocess`` gets the row with these
    fields and the answer: ``generated_text``, ``finish_reason``, ``num_input_tokens`` and ``num_generated_tokens``, or
    ``http_response``. It returns the row of the result. With ``n`` in the sampling parameters the first two are lists.
    See ``docs/guides/processors.md``.

    >>> config = OpenAIProcessorConfig(model="gpt-5-mini")
    >>> processor = build_processor(
    ...     config,
    ...     preprocess=lambda row: {"messages": [{"role": "user", "content": f"{row['id']} ** 3 = ?"}]},
    ...     postprocess=lambda row: {"id": row["id"], "answer": row["generated_text"]},
    ... )
    >>> processor(ps.range(2)).to_pydict()
    {'id': [0, 1], 'answer': ['0 ** 3 = ?', '1 ** 3 = ?']}
    """
    functions: tuple[tuple[str, Any], ...] = (("preprocess", preprocess), ("postprocess", postprocess))
    for name, function in functions:
        if function is not None and (not callable(function) or inspect.iscoroutinefunction(function)):
            raise InvalidArgumentError(f"build_processor: {name} is a function from dict to dict; got {function!r}.")
    needed: tuple[str, ...] = ("messages", "prompt")
    match config:
        case HttpRequestProcessorConfig():
            spec, needed = _http(config), ("payload",)
        case vLLMEngineProcessorConfig():
            provider = _vllm(config)
            placing = {} if provider.has_server else _replicas(config)
            spec = _generating(config, provider, engine_options, placing)
            needed = needed if config.has_chat_template else ("prompt",)
        case OpenAIProcessorConfig():
            spec = _generating(config, _openai(config), _unchanged, {})
        case TransformersProcessorConfig():
            spec = _generating(config, find_provider("transformers", "prompt"), _unchanged, _placing(config))
        case _:
            raise InvalidArgumentError(
                f"build_processor takes a config of penstock.llm; got {type(config).__name__}. Available: "
                "OpenAIProcessorConfig, vLLMEngineProcessorConfig, "
                "TransformersProcessorConfig and HttpRequestProcessorConfig."
            )
    options = {"on_error": error_policy(type(config).__name__, config.on_error), "max_errors": config.max_errors}
    if config.on_error != "raise":
        log.warning(
            "%s: with on_error=%r the result lacks the rows that fail; df.errors() lists them. To keep them with their "
            "errors, set should_continue_on_error=True instead.", type(config).__name__, config.on_error,
        )  # fmt: skip
    return Processor(
        config,
        spec,
        Preprocess(preprocess, needed),
        Postprocess(postprocess, config.should_continue_on_error),
        options,
    )


# --- models that answer prompts ---------------------------------------------------------------------------------------


def _generating(config: Any, provider: Provider, translate: Translate, options: Mapping[str, Any]) -> UdfSpec:
    """Return the call that sends rows to a model of a provider."""
    shared: GenerationConfig = config
    given = shared.call_options()
    params = dict(shared.sampling_params)
    num_answers = params.pop("n", 1)
    model = provider.model(Prompting(config.model, {**options, **translate(params, {})}, given.settings))
    if not isinstance(model, Prompter):
        raise InvalidArgumentError(f"Provider {provider.name!r} has no model for prompts.")
    settings = PromptSettings(provider.name, num_answers=num_answers, has_usage=True, price=given.settings.price)
    is_async = inspect.iscoroutinefunction(model.generate)
    init = (model, settings, translate, shared.should_continue_on_error)
    return _spec(AsyncRows if is_async else BatchRows, init, model, given, is_async)


def _spec(target: type, init: tuple[Any, ...], model: Model, options: AiOptions, is_async: bool) -> UdfSpec:
    spec = UdfSpec(
        name="ask",
        target=Target(target, "ask", init, is_batch=not is_async, is_async=is_async),
        return_dtype=DataType.python(),
        policy=options.policy,
        builtin=Builtin(model=model.model_name),
    )
    return placed(spec, model, options)


def _unchanged(params: Mapping[str, Any], fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return params


def _openai(config: OpenAIProcessorConfig) -> Provider:
    """Return the provider of a config, by default the one of ``set_provider``."""
    given: dict[str, Any] = {"base_url": config.base_url, "api_key": config.api_key, "headers": dict(config.headers)}
    options = {name: value for name, value in given.items() if value}
    provider = make_provider("openai", options) if options else find_provider("openai", "prompt")
    if config.use_chat_completions and isinstance(provider, OpenAIProvider):
        return replace(provider, use_chat_completions=True)
    return provider


def _vllm(config: vLLMEngineProcessorConfig) -> ServedProvider:
    """Return the provider of a config."""
    return VllmProvider(
        base_url=config.base_url,
        api_key=config.api_key,
        use_completions=not config.has_chat_template,
        engine_kwargs=dict(config.engine_kwargs),
        chat_template=config.chat_template,
    )


def engine_options(params: Mapping[str, Any], fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return vLLM's sampling parameters as options of a request. What only vLLM understands goes to ``extra_body``.

    >>> engine_options({"temperature": 0.3, "top_k": 5, "detokenize": False}, {})
    {'temperature': 0.3, 'extra_body': {'top_k': 5}}
    """
    for name in NOT_SERVED:
        if params.get(name):
            raise InvalidArgumentError(f"sampling_params: {name} is not supported, since processors do not return it.")
    known = {name: value for name, value in params.items() if name in ENGINE_OPTIONS}
    own = {
        name: value for name, value in params.items() if name not in known and name not in ("detokenize", *NOT_SERVED)
    }
    return {**known, "extra_body": {**known.get("extra_body", {}), **own}} if own else known


def _replicas(config: vLLMEngineProcessorConfig) -> dict[str, Any]:
    return {} if config.num_workers is None else {"concurrency": config.num_workers}


def _placing(config: TransformersProcessorConfig) -> dict[str, Any]:
    """Return the options of workers and batches, and the options for loading the model."""
    given = {"batch_size": config.batch_size, "concurrency": config.num_workers}
    return {**{name: value for name, value in given.items() if value is not None}, **config.options}


# --- any server -------------------------------------------------------------------------------------------------------


def _http(config: HttpRequestProcessorConfig) -> UdfSpec:
    options = config.call_options()
    service = HttpService(JsonClient(_endpoint(config), config.url, options.settings))
    return _spec(HttpRows, (service, config.should_continue_on_error), service, options, is_async=True)


def _endpoint(config: HttpRequestProcessorConfig) -> Endpoint:
    headers = tuple((config.headers or {}).items())
    return Endpoint("http", config.url, headers=headers, if_unreachable="Check url=, and the network.")
