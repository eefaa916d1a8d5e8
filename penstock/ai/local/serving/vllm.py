"""vLLM's async engine: its core runs in a process of its own, this process tokenizes and reads the answers."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import json
import math
import multiprocessing.spawn
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from penstock.ai.conversation import Generation, Request
from penstock.ai.local import chat
from penstock.ai.local.serving.prompt_text import prompt_text, token_ids
from penstock.ai.local.serving.sampling import EngineSampling
from penstock.ai.local.weights import fingerprint
from penstock.errors import InvalidArgumentError, ProviderUnusableError, RequestRefusedError, WorkerDiedError

_start_lock = threading.Lock()  # the devices and the start method of a replica are set for the whole process


@dataclass(frozen=True)
class VllmSpec:
    """An engine of vLLM with the weights of a model. ``arguments`` are arguments of ``AsyncEngineArgs`` as JSON, so
    that specs can be compared.
    """

    name: str
    arguments: str = "{}"
    num_replicas: int = 1

    @classmethod
    def of(cls, model: str, arguments: Mapping[str, Any], num_replicas: int) -> VllmSpec:
        try:
            return cls(model, json.dumps(arguments, sort_keys=True), num_replicas)
        except TypeError as exc:
            raise InvalidArgumentError(f"engine_kwargs takes plain values, such as numbers and texts: {exc}.") from exc

    def alone(self) -> VllmSpec:
        return replace(self, num_replicas=1)

    def identity(self) -> dict[str, Any]:
        arguments = json.loads(self.arguments)
        weights = fingerprint(self.name, arguments.get("revision"))
        return {"engine": "vllm", "weights": weights, "arguments": arguments}

    @staticmethod
    def num_devices(arguments: Mapping[str, Any]) -> int:
        """Return the number of GPUs of one engine.

        >>> VllmSpec.num_devices({"tensor_parallel_size": 2})
        2
        """
        return math.prod(int(arguments.get(name, 1)) for name in ("tensor_parallel_size", "pipeline_parallel_size"))

    def devices(self, replica: int) -> str | None:
        """Return the devices of a replica as in CUDA_VISIBLE_DEVICES, None if it may use all."""
        if self.num_replicas == 1:
            return None
        given = os.environ.get("CUDA_VISIBLE_DEVICES")
        width = self.num_devices(json.loads(self.arguments))
        visible = given.split(",") if given else list(map(str, range(width * self.num_replicas)))
        return ",".join(visible[replica * width : (replica + 1) * width])

    def make(self, replica: int) -> VllmEngine:
        return VllmEngine(self, replica)


class VllmEngine:
    """Implements ``InferenceEngine`` by ``AsyncLLM``."""

    def __init__(self, spec: VllmSpec, replica: int) -> None:
        self._spec, self._replica = spec, replica
        self._llm: Any = None
        self._tokenizer: Any = None
        self._defaults: Mapping[str, Any] = {}
        self._numbers = itertools.count()
        self._loras: dict[str, int] = {}
        self._preparing = ThreadPoolExecutor(1, "penstock-vllm-prompts")  # tokenizers are not safe for many threads

    async def start(self) -> None:
        try:
            self._llm = await asyncio.to_thread(self._open)
            found = self._llm.get_tokenizer()
            self._tokenizer = await found if inspect.isawaitable(found) else found
        except Exception as exc:
            await self.close()
            raise ProviderUnusableError(
                f"vLLM cannot start model {self._spec.name!r}: {type(exc).__name__}: {exc}. Its log above says more."
            ) from exc
        self._defaults = self._llm.model_config.get_diff_sampling_param()

    async def generate(self, request: Request, options: Mapping[str, Any]) -> list[Generation]:
        prepare = asyncio.get_running_loop().run_in_executor(self._preparing, self._prepared, request, options)
        prompt, params, lora = await prepare
        number, last = next(self._numbers), None
        try:
            async for output in self._llm.generate(prompt, params, f"penstock-{number}", lora_request=lora):
                last = output
        except Exception as exc:
            if self._llm.errored:
                raise WorkerDiedError(f"vLLM's engine died: {exc}") from exc
            raise RequestRefusedError(f"vLLM refuses the request: {exc.__cause__ or exc}") from exc
        assert last is not None
        num_top = options.get("top_logprobs", 0)
        return [self._generation(last, output, num_top) for output in last.outputs]

    async def close(self) -> None:
        llm, self._llm = self._llm, None
        self._preparing.shutdown(wait=False)
        if llm is not None:
            if llm.output_handler is not None:  # it would log the end of the engine as an error
                llm.output_handler.cancel()
            await asyncio.to_thread(llm.shutdown)

    def _open(self) -> Any:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        with _start_lock, _without_main_module(), _environment(self._spec.devices(self._replica)):
            return AsyncLLM.from_engine_args(AsyncEngineArgs(model=self._spec.name, **json.loads(self._spec.arguments)))

    def _prepared(self, request: Request, options: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """Return the prompt, the sampling parameters and the LoRA adapter of a request."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        sampling = EngineSampling.of(options, request)
        fields = {**self._defaults, **{name: value for name, value in sampling.fields.items() if value is not None}}
        fields.setdefault("max_tokens", None)
        try:
            if sampling.constraint is not None:
                fields["structured_outputs"] = StructuredOutputsParams(**sampling.constraint)
            params = SamplingParams(**fields, output_kind=RequestOutputKind.FINAL_ONLY)
        except (TypeError, ValueError) as exc:
            raise RequestRefusedError(f"vLLM refuses the options of the request: {exc}") from exc
        lora = None
        if sampling.lora is not None:
            number = self._loras.setdefault(sampling.lora, len(self._loras) + 1)
            lora = LoRARequest(sampling.lora, number, sampling.lora)
        return self._prompt(request, options, sampling), params, lora

    def _prompt(self, request: Request, options: Mapping[str, Any], sampling: EngineSampling) -> dict[str, Any]:
        text, is_chat = prompt_text(self._tokenizer, request, options, sampling.template)
        if images := chat.images_of(request):
            return {"prompt": text, "multi_modal_data": {"image": images}}
        return {"prompt_token_ids": token_ids(self._tokenizer, text, is_chat)}

    def _generation(self, output: Any, answer: Any, num_top: int) -> Generation:
        text, reasoning = chat.split_reasoning(answer.text)
        return Generation(
            text,
            model=self._spec.name,
            input_tokens=len(output.prompt_token_ids),
            output_tokens=len(answer.token_ids),
            cached_tokens=output.num_cached_tokens or 0,
            finish_reason=answer.finish_reason,
            reasoning=reasoning,
            logprobs=logprobs_of(answer, num_top),
        )


def logprobs_of(answer: Any, num_top: int) -> list[dict[str, Any]] | None:
    """Return the log-probabilities of the tokens of an answer, without its end token; None if it has none."""
    if answer.logprobs is None:
        return None
    is_ended = answer.finish_reason == "stop" and answer.stop_reason is None
    places = list(zip(answer.token_ids, answer.logprobs, strict=True))
    return [
        {**_plain(place[token]), "top_logprobs": [_plain(each) for each in _ranked(place)[:num_top]]}
        for token, place in (places[:-1] if is_ended else places)
    ]


def _ranked(place: Mapping[int, Any]) -> list[Any]:
    return sorted(place.values(), key=lambda each: each.rank or 0)


def _plain(found: Any) -> dict[str, Any]:
    return {"token": found.decoded_token or "", "logprob": float(found.logprob)}


@contextlib.contextmanager
def _environment(devices: str | None) -> Iterator[None]:
    """Set the devices and the start method of the processes that vLLM starts meanwhile.

    A process with threads must not fork, as this one would.
    """
    values = {"VLLM_WORKER_MULTIPROC_METHOD": os.environ.get("VLLM_WORKER_MULTIPROC_METHOD", "spawn")}
    if devices is not None:
        values["CUDA_VISIBLE_DEVICES"] = devices
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _without_main_module() -> Iterator[None]:
    """Keep spawned processes from running the user's script again, which may lack a main guard."""
    original, thread = multiprocessing.spawn.get_preparation_data, threading.get_ident()

    def prepared(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        if threading.get_ident() == thread:
            for field in ("init_main_from_name", "init_main_from_path"):
                data.pop(field, None)
        return data

    multiprocessing.spawn.get_preparation_data = prepared
    try:
        yield
    finally:
        multiprocessing.spawn.get_preparation_data = original
