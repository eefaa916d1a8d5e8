"""The part of SGLang's API that Penstock calls, where SGLang is not installed. The answer to a prompt is the prompt.

A prompt with ``DIE`` kills the process, one with ``WAIT`` is answered when it is aborted, and the answer to one with
``SHOW`` is its sampling parameters as JSON. With a JSON schema the answer is the last paragraph of the prompt.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from tokenizers import Tokenizer

END = 256  # of the models in tests.ai.local_models
ARGUMENTS = {"model_path", "dtype", "tp_size", "skip_tokenizer_init", "enable_deterministic_inference"}


class Engine:
    def __init__(self, **arguments: Any) -> None:
        if unknown := set(arguments) - ARGUMENTS:
            raise TypeError(f"Unexpected keyword argument {unknown.pop()!r}")
        self._has_text = not arguments.get("skip_tokenizer_init")
        self._tokenizer = Tokenizer.from_file(f"{arguments['model_path']}/tokenizer.json")
        self._aborts: dict[str, asyncio.Event] = {}
        config = SimpleNamespace(get_default_sampling_params=lambda: {"top_p": 0.5})
        self.tokenizer_manager = SimpleNamespace(model_config=config, abort_request=self._abort)

    async def async_generate(
        self,
        *,
        rid: str,
        input_ids: list[int],
        sampling_params: Mapping[str, Any],
        return_logprob: bool = False,
        top_logprobs_num: int = 0,
    ) -> dict[str, Any]:
        text = self._tokenizer.decode(input_ids)
        if "DIE" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        if "WAIT" in text:
            os.write(1, b"waiting\n")
            self._aborts[rid] = asyncio.Event()
            await self._aborts[rid].wait()
        if sampling_params.get("temperature", 0) < 0:
            raise ValueError("temperature must be a non-negative finite number")
        if "SHOW" in text:
            text = json.dumps(sampling_params)
        if "json_schema" in sampling_params:
            text = text.rpartition("\n\n")[2]
        ids = [*self._tokenizer.encode(text).ids, END]
        meta: dict[str, Any] = {
            "prompt_tokens": len(input_ids),
            "completion_tokens": len(ids),
            "cached_tokens": 0,
            "finish_reason": {"type": "stop", "matched": ids[-1]},
        }
        if return_logprob:
            meta["output_token_logprobs"] = [(-0.5, each, None) for each in ids]
            if top_logprobs_num:
                meta["output_top_logprobs"] = [[(-0.5, each, None)] * top_logprobs_num for each in ids]
        return {"output_ids": ids, "meta_info": meta, **({"text": text} if self._has_text else {})}

    def shutdown(self) -> None:
        """SGLang ends its own processes here; this has none."""

    def _abort(self, rid: str) -> None:
        if rid in self._aborts:
            self._aborts.pop(rid).set()
