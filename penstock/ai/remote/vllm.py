"""vLLM: a server of it, wherever that runs. The engine inside this process is not there yet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.ai.provider import Model, ModelTask
from penstock.ai.remote.openai import OpenAIProvider
from penstock.ai.remote.prompter import ApiPrompter
from penstock.ai.remote.wires.completions import CompletionsWire
from penstock.errors import InvalidArgumentError

VARIABLE = "PENSTOCK_VLLM_BASE_URL"
SERVED = f"serve the model (`vllm serve MODEL`) and give its address by base_url= or {VARIABLE}"


@dataclass(frozen=True)
class VllmProvider(OpenAIProvider):
    """A vLLM server at ``base_url``, or where PENSTOCK_VLLM_BASE_URL says.

    With ``use_completions`` a prompt is a text that the model continues, without its chat template.
    """

    use_chat_completions: bool = True
    use_completions: bool = False
    name: str = "vllm"
    key_variables: ClassVar[tuple[str, ...]] = ()
    if_unreachable: ClassVar[str] = "Start it with `vllm serve MODEL`, or give base_url=."
    default_models: ClassVar[Mapping[str, str]] = {}
    has_batch_api: ClassVar[bool] = False

    def model(self, task: ModelTask) -> Model:
        if not self._base_url():
            raise self._no_engine(task)
        return super().model(task)

    def _prompter(self, task: ModelTask) -> ApiPrompter:
        if not self.use_completions:
            return super()._prompter(task)
        name = self.model_name(task)
        wire = CompletionsWire.of(task, self.name, name, task.options)
        return ApiPrompter(self.endpoint(), wire, name, task.settings)

    def _base_url(self) -> str:
        return self.base_url or os.environ.get(VARIABLE) or ""

    def _no_engine(self, task: ModelTask) -> Exception:
        feature = f"{task.function} with provider {self.name!r}"
        return InvalidArgumentError(f"{feature} cannot run the engine in this process yet; {SERVED}.")


@dataclass(frozen=True)
class PrefixCachingProvider(VllmProvider):
    """The same by the name that Daft has for it: vLLM caches prefixes by itself."""

    name: str = "vllm-prefix-caching"
