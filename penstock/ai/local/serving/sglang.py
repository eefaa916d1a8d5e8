"""SGLang's engine: it runs in a process of its own; this process tokenizes and reads the answers."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.ai.conversation import Generation, Request
from penstock.ai.local import chat
from penstock.ai.local.serving.prompt_text import prompt_text, token_ids
from penstock.ai.local.serving.sampling import EngineSampling
from penstock.ai.local.serving.sglang_process import SglangProcess
from penstock.ai.local.serving.spec import LocalEngineSpec
from penstock.errors import ProviderUnusableError, RequestRefusedError

NAMES = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "seed": "sampling_seed"}
"""Sampling parameters that SGLang calls by other names."""
CONSTRAINTS = {"json": "json_schema", "regex": "regex", "grammar": "ebnf", "structural_tag": "structural_tag"}


@dataclass(frozen=True)
class SglangSpec(LocalEngineSpec):
    """An engine of SGLang. ``arguments`` are those of ``sglang.Engine``.

    >>> SglangSpec.num_devices({"tp_size": 4, "dp_size": 2})
    8
    >>> SglangSpec.num_devices({"tp_size": 4, "dp_size": 2, "enable_dp_attention": True})  # shares the 4
    4
    """

    engine: ClassVar[str] = "sglang"
    sizes: ClassVar[tuple[str, ...]] = ("tp_size", "pp_size")

    @classmethod
    def num_devices(cls, arguments: Mapping[str, Any]) -> int:
        if arguments.get("device") == "cpu":
            return 0
        num_copies = 1 if arguments.get("enable_dp_attention") else int(arguments.get("dp_size", 1))
        return num_copies * super().num_devices(arguments)

    def make(self, replica: int) -> SglangEngine:
        return SglangEngine(self, replica)


class SglangEngine:
    """Implements ``InferenceEngine`` by ``sglang.Engine``."""

    def __init__(self, spec: SglangSpec, replica: int) -> None:
        self._spec, self._replica, self._arguments = spec, replica, json.loads(spec.arguments)
        self._process: SglangProcess | None = None
        self._tokenizer: Any = None
        self._defaults: Mapping[str, Any] = {}
        self._keys = (f"penstock-{number}" for number in itertools.count())
        self._preparing = ThreadPoolExecutor(1, "penstock-sglang-prompts")  # tokenizers are not safe for many threads

    async def start(self) -> None:
        devices = self._spec.devices(self._replica)
        self._process = SglangProcess({} if devices is None else {"CUDA_VISIBLE_DEVICES": devices})
        starting = self._process.start({"model_path": self._spec.name, **self._arguments})
        try:
            self._defaults, self._tokenizer = await asyncio.gather(starting, asyncio.to_thread(self._load_tokenizer))
        except Exception as exc:
            raise ProviderUnusableError(f"SGLang cannot start model {self._spec.name!r}: {exc}") from exc
        finally:
            if self._tokenizer is None:  # it failed, or was cancelled
                await self.close()

    async def generate(self, request: Request, options: Mapping[str, Any]) -> list[Generation]:
        assert self._process is not None
        loop = asyncio.get_running_loop()
        arguments = await loop.run_in_executor(self._preparing, self._prepared, request, options)
        calls = [self._process.call(next(self._keys), arguments) for _ in range(request.num_answers)]
        return [self._generation(answer, options) for answer in await asyncio.gather(*calls)]

    async def close(self) -> None:
        process, self._process = self._process, None
        self._preparing.shutdown(wait=False)
        if process is not None:
            await process.close()

    def _load_tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        shared = {name: self._arguments[name] for name in ("revision", "trust_remote_code") if name in self._arguments}
        return AutoTokenizer.from_pretrained(self._arguments.get("tokenizer_path") or self._spec.name, **shared)

    def _prepared(self, request: Request, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of ``async_generate``."""
        sampling = EngineSampling.of(options, request)
        fields = {**self._defaults, **sglang_fields(sampling)}
        if "sampling_seed" in fields and not self._arguments.get("enable_deterministic_inference"):
            raise RequestRefusedError("seed: SGLang needs engine_kwargs={'enable_deterministic_inference': True}.")
        text, is_chat = prompt_text(self._tokenizer, request, options, sampling.template)
        arguments: dict[str, Any] = {"sampling_params": fields}
        if images := chat.encoded_images(request):
            arguments |= {"prompt": text, "image_data": images}
        else:
            arguments["input_ids"] = token_ids(self._tokenizer, text, is_chat)
        if options.get("logprobs"):
            arguments |= {"return_logprob": True, "top_logprobs_num": options.get("top_logprobs", 0)}
        return arguments

    def _generation(self, answer: Mapping[str, Any], options: Mapping[str, Any]) -> Generation:
        meta = answer["meta_info"]
        if (given := answer.get("text")) is None:  # with skip_tokenizer_init
            given = self._tokenizer.decode(answer["output_ids"], skip_special_tokens=True)
        text, reasoning = chat.split_reasoning(given)
        logprobs = logprobs_of(meta, self._tokenizer) if options.get("logprobs") else None
        usage = meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]
        reason = meta["finish_reason"]["type"]
        return Generation(text, self._spec.name, *usage, reason, reasoning=reasoning, logprobs=logprobs)


def sglang_fields(sampling: EngineSampling) -> dict[str, Any]:
    """Return the sampling parameters by the names of SGLang.

    >>> sglang_fields(EngineSampling({"max_tokens": 9, "n": 2}, {"choice": ["yes", "no."]}))
    {'max_new_tokens': 9, 'regex': '(yes|no\\\\.)'}
    """
    fields = {NAMES.get(name, name): value for name, value in sampling.fields.items() if name not in ("n", "logprobs")}
    constraint = dict(sampling.constraint or {})
    if "choice" in constraint:
        constraint["regex"] = f"({'|'.join(map(re.escape, constraint.pop('choice')))})"
    for kind, value in constraint.items():
        if kind not in CONSTRAINTS:
            raise RequestRefusedError(f"SGLang has no constraint {kind!r}; it has: choice, {', '.join(CONSTRAINTS)}.")
        fields[CONSTRAINTS[kind]] = value if isinstance(value, str) else json.dumps(value)
    return fields


def logprobs_of(meta: Mapping[str, Any], tokenizer: Any) -> list[dict[str, Any]]:
    """Return the log-probabilities of the tokens of an answer, without its end token."""
    num_tokens = len(meta["output_token_logprobs"]) - isinstance(meta["finish_reason"].get("matched"), int)
    tops = meta.get("output_top_logprobs") or [()] * num_tokens

    def plain(found: Any) -> dict[str, Any]:
        return {"token": tokenizer.decode([found[1]]), "logprob": float(found[0])}

    return [
        {**plain(token), "top_logprobs": list(map(plain, top))}
        for token, top in zip(meta["output_token_logprobs"][:num_tokens], tops[:num_tokens], strict=True)
    ]
