"""The providers ``vllm``, ``vllm-prefix-caching`` and ``sglang``: a server, or vLLM's engine on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.ai.decisions.composed_decider import ComposedDecider
from penstock.ai.decisions.labels import judge_prompt
from penstock.ai.local.serving.prompter import EnginePrompter
from penstock.ai.local.serving.sampling import ROW_OPTIONS
from penstock.ai.local.serving.vllm import VllmSpec
from penstock.ai.provider import (
    Deciding,
    ImageClassification,
    Model,
    ModelTask,
    Prompter,
    Prompting,
    TextClassification,
    check_options,
)
from penstock.ai.providers.chat_completions import CompletionsWire
from penstock.ai.providers.openai import OwnServerProvider
from penstock.ai.providers.remote_prompter import ApiPrompter
from penstock.ai.providers.wire import LOGPROBS
from penstock.errors import InvalidArgumentError, require_extra
from penstock.udf.options import check_whole

ENGINE_OPTIONS = ("concurrency", "engine_kwargs")


@dataclass(frozen=True)
class ServedProvider(OwnServerProvider):
    """A server at ``base_url`` or the address in ``url_variable``.

    With ``use_completions`` the model continues the prompt without its chat template.
    """

    use_completions: bool = False
    default_models: ClassVar[Mapping[str, str]] = {}
    url_variable: ClassVar[str]
    serve: ClassVar[str]  # the command that starts a server
    row_options: ClassVar[tuple[str, ...]] = ROW_OPTIONS

    @property
    def has_server(self) -> bool:
        return bool(self.base_url or os.environ.get(self.url_variable))

    @property
    def has_workers(self) -> bool:
        return not self.has_server

    def model(self, task: ModelTask) -> Model:
        return super().model(task) if self.has_server else self.local_model(task)

    def local_model(self, task: ModelTask) -> Model:
        """Return a model on this machine."""
        raise InvalidArgumentError(
            f"{task.function} with provider {self.name!r} needs a server: run `{self.serve}` and give its "
            f"address by base_url= or {self.url_variable}, or use provider='transformers'."
        )

    def _prompter(self, task: ModelTask) -> ApiPrompter:
        if not self.use_completions:
            return super()._prompter(task)
        name = self.model_name(task)
        wire = CompletionsWire.of(task, self.name, name)
        return ApiPrompter(self.endpoint(), wire, name, task.settings)


@dataclass(frozen=True)
class VllmProvider(ServedProvider):
    """A vLLM server, or vLLM's engine in this process.

    ``engine_kwargs`` are arguments of that engine. A call may add its own.
    """

    name: str = "vllm"
    engine_kwargs: Any = None
    chat_template: str | None = None
    groups_prefixes: ClassVar[bool] = False
    url_variable: ClassVar[str] = "PENSTOCK_VLLM_BASE_URL"
    serve: ClassVar[str] = "vllm serve MODEL"
    if_unreachable: ClassVar[str] = f"Start it with `{serve}`, or give base_url=."

    def local_model(self, task: ModelTask) -> Model:
        if isinstance(task, Deciding):
            judge = self.local_model(judge_prompt(task, "max_tokens"))
            assert isinstance(judge, Prompter)
            return ComposedDecider.by_labels(judge, task.questions)
        if not isinstance(task, Prompting | TextClassification | ImageClassification):
            return super().local_model(task)
        logprobs = LOGPROBS if isinstance(task, Prompting) else ()
        check_options(task, self.name, (*ENGINE_OPTIONS, *self.row_options, *logprobs), self.row_options)
        arguments = task.options.get("engine_kwargs", {})
        if not isinstance(arguments, Mapping):
            raise InvalidArgumentError(f"{task.function}: engine_kwargs is a dict; got {type(arguments).__name__}.")
        arguments = {**(self.engine_kwargs or {}), **arguments}
        if "lora" in (*task.options, *task.row_options):
            arguments.setdefault("enable_lora", True)
        num_replicas = task.options.get("concurrency", 1)
        check_whole(task.function, "concurrency", num_replicas, 1)
        spec = VllmSpec.of(self.model_name(task), arguments, num_replicas)
        require_extra("vllm", "vllm", f"{task.function} with provider {self.name!r} and no server at base_url=")
        own = {"use_completions": self.use_completions or None, "chat_template": self.chat_template}
        options = {**task.options, **own}
        return EnginePrompter(
            spec,
            task,
            {name: value for name, value in options.items() if value is not None and name not in ENGINE_OPTIONS},
            groups_prefixes=self.groups_prefixes,
            gpus=num_replicas * VllmSpec.num_devices(arguments),
        )


@dataclass(frozen=True)
class PrefixCachingProvider(VllmProvider):
    """vLLM that gets prompts with equal beginnings one after another, so that it computes each beginning once.

    A server gets them as they come.
    """

    name: str = "vllm-prefix-caching"
    groups_prefixes: ClassVar[bool] = True


@dataclass(frozen=True)
class SglangProvider(ServedProvider):
    """An SGLang server."""

    name: str = "sglang"
    url_variable: ClassVar[str] = "PENSTOCK_SGLANG_BASE_URL"
    serve: ClassVar[str] = "sglang serve --model-path MODEL"
    if_unreachable: ClassVar[str] = f"Start it with `{serve}`, or give base_url=."
    row_options: ClassVar[tuple[str, ...]] = tuple(name for name in ROW_OPTIONS if name != "lora")
