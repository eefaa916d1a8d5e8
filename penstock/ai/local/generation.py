"""Answers to prompts by local language models, many at a time.

A batch is padded on the left and runs until its last answer is done, so prompts of like length go together, and a batch
is as large as the memory for what the model keeps of its tokens allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.ai.conversation import Generation, Request
from penstock.ai.local import chat
from penstock.ai.local.checkpoint import OPTIONS, Checkpoint, batch_size_of, resources_of
from penstock.ai.local.length_batches import batches_by_length, padded
from penstock.ai.provider import Prompter, Prompting
from penstock.ai.remote.wires.bodies import check_row_options
from penstock.errors import InvalidArgumentError, PenstockError, RequestRefusedError

PROMPT_OPTIONS = (
    *(*OPTIONS, "temperature", "top_p", "top_k", "max_output_tokens", "max_tokens", "stop", "seed"),
    *("repetition_penalty", "max_length"),
)
ROW_OPTIONS = tuple(name for name in PROMPT_OPTIONS if name not in (*OPTIONS, "max_length"))
MAX_OUTPUT_TOKENS = 512
LIMITS = ("max_output_tokens", "max_tokens")
ROWS_AT_ONCE = {"cpu": 32, "cuda": 256}
CPU_CACHE_BYTES = 2 << 30
"""What the tokens of a batch may take beside the weights."""
GPU_CACHE_SHARE = 0.6  # of the memory that is free once the weights are loaded


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn, for all rows or for one of them. Rows that agree on it are answered together."""

    max_new: int
    stop: tuple[str, ...]
    options: tuple[tuple[str, Any], ...]

    @staticmethod
    def of(options: Mapping[str, Any]) -> Sampling:
        given = {name: value for name, value in options.items() if name in ROW_OPTIONS and value is not None}
        rest = tuple(
            sorted((name, _checked_number(name, given[name])) for name in given if name not in (*LIMITS, "stop"))
        )
        return Sampling(_checked_limit(given), _checked_stop(given), rest)

    def changed(self, options: Mapping[str, Any] | None) -> Sampling:
        """Return it with what one request says otherwise."""
        if not options:
            return self
        check_row_options(options, ROW_OPTIONS)
        own = Sampling.of(options)
        return Sampling(
            own.max_new if any(options.get(name) is not None for name in LIMITS) else self.max_new,
            own.stop or self.stop,
            tuple(sorted({**dict(self.options), **dict(own.options)}.items())),
        )


class TransformersPrompter(Prompter):
    """Continues conversations with a causal language model, or one that sees images too."""

    takes_options = True
    takes_tools = False

    def __init__(self, checkpoint: Checkpoint, task: Prompting) -> None:
        checkpoint.config()  # so that a name that means nothing is an error now
        self._checkpoint = checkpoint
        self._max_length = _checked_number("max_length", task.options.get("max_length"))
        self._sampling = Sampling.of(task.options)
        self.resources = resources_of(task)
        self.batch_size = batch_size_of(task)
        self._model: Any = None
        self._draws: bool | None = None  # whether answers are drawn by chance where nobody says so

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_model": None, "_tokenizer": None, "_processor": None}

    def load(self) -> None:
        takes_images = _takes_images(self._checkpoint)
        self._processor: Any = self._checkpoint.load_beside("AutoProcessor") if takes_images else None
        beside = self._processor.tokenizer if self._processor is not None else None
        self._tokenizer: Any = beside or self._checkpoint.load_beside("AutoTokenizer")
        self._model = self._checkpoint.load("AutoModelForImageTextToText" if takes_images else "AutoModelForCausalLM")
        self._device = self._checkpoint.torch_device()
        self._tokenizer.padding_side = "left"
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        self._cache_tokens = _cache_tokens(self._model, self._device)

    def close(self) -> None:
        self._model = None

    def identity(self) -> dict[str, Any]:
        own = self._sampling
        options = {"max_length": self._max_length, "sampling": [own.max_new, own.stop, own.options]}
        return {"function": "prompt", **self._checkpoint.identity(), **options}

    def is_certain(self, request: Request) -> bool:
        try:
            given = dict(self._sampling.changed(request.options).options)
        except PenstockError:  # which generate says of that request
            return False
        if (temperature := given.get("temperature")) is not None:
            return bool(temperature == 0)
        if given.get("top_p") is not None or given.get("top_k") is not None:
            return False
        if self._draws is None:
            self._draws = bool((self._checkpoint.read_json("generation_config.json") or {}).get("do_sample", False))
        return not self._draws

    def generate(self, request: Sequence[Request]) -> list[list[Generation] | Exception]:
        """Return for each request its answers, or why there are none."""
        if self._model is None:
            self.load()
        answers: dict[int, list[Generation] | Exception] = {}
        prompts: dict[int, list[int]] = {}
        samplings: dict[int, Sampling] = {}
        for number, one in enumerate(request):
            try:
                samplings[number] = self._sampling.changed(one.options)
                prompts[number] = self._tokens(one, samplings[number].max_new)
            except PenstockError as exc:
                answers[number] = exc
        for batch in self._batches(request, prompts, samplings):
            with_images = len(batch) == 1 and self._processor is not None and chat.images_of(request[batch[0]])
            inputs = self._seen(request[batch[0]]) if with_images else self._padded([prompts[i] for i in batch])
            answers |= zip(batch, self._run(inputs, [request[i] for i in batch], samplings[batch[0]]), strict=True)
        return [answers[number] for number in range(len(request))]

    def _tokens(self, request: Request, max_new: int) -> list[int]:
        messages = chat.messages_of(request, takes_images=self._processor is not None)
        text = chat.rendered(self._processor or self._tokenizer, messages)
        has_template = bool(getattr(self._processor or self._tokenizer, "chat_template", None))  # it writes them itself
        ids: list[int] = self._tokenizer(text, add_special_tokens=not has_template)["input_ids"]
        limit = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        room = min(self._max_length or len(ids), (limit or len(ids) + max_new) - max_new)
        if len(ids) > room:
            raise RequestRefusedError(
                f"The prompt has {len(ids):,} tokens; with max_output_tokens={max_new} there is room for "
                f"{max(0, room):,} in model {self._checkpoint.name!r}. Cut the text, or ask for fewer tokens."
            )
        return ids or [self._tokenizer.bos_token_id or self._tokenizer.eos_token_id or 0]

    def _batches(
        self, requests: Sequence[Request], prompts: dict[int, list[int]], samplings: dict[int, Sampling]
    ) -> Iterator[list[int]]:
        """Yield requests to be answered together: of like length, drawn alike. Those with images go alone."""
        groups: dict[tuple[int, Sampling], list[int]] = {}
        for number in prompts:
            if self._processor is not None and chat.images_of(requests[number]):
                yield [number]
            else:
                groups.setdefault((requests[number].num_answers, samplings[number]), []).append(number)
        for (num_answers, sampling), numbers in groups.items():
            lengths = np.array([len(prompts[number]) + sampling.max_new for number in numbers]) * num_answers
            max_rows = max(1, ROWS_AT_ONCE["cpu" if self._device.type == "cpu" else "cuda"] // num_answers)
            for rows in batches_by_length(lengths, self._cache_tokens, max_rows):
                yield [numbers[row] for row in rows]

    def _padded(self, prompts: list[list[int]]) -> dict[str, Any]:
        import torch

        mask = padded([[1] * len(ids) for ids in prompts], 0, is_left=True)
        ids = padded(prompts, self._tokenizer.pad_token_id or 0, is_left=True)
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}

    def _seen(self, request: Request) -> dict[str, Any]:
        """Return the inputs of a request with images."""
        messages = chat.messages_of(request, takes_images=True)
        text = chat.rendered(self._processor, messages)
        images = chat.images_of(request)
        return dict(self._processor(text=[text], images=[images], return_tensors="pt", add_special_tokens=False))

    def _run(self, inputs: dict[str, Any], requests: list[Request], sampling: Sampling) -> list[list[Generation]]:
        import torch

        num_answers = requests[0].num_answers
        options = self._generation_options(num_answers, sampling)
        seed = dict(sampling.options).get("seed")
        moved = {
            key: value.to(self._device, self._model.dtype) if value.is_floating_point() else value.to(self._device)
            for key, value in inputs.items()
        }
        devices = [self._device] if self._device.type == "cuda" else []
        with torch.inference_mode(), torch.random.fork_rng(devices=devices, enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            out = self._model.generate(**moved, **options)[:, inputs["input_ids"].shape[1] :].cpu().tolist()
        num_inputs = inputs["attention_mask"].sum(1).tolist()
        per_request = len(out) // len(requests)
        return [
            [
                self._generation(
                    out[number * per_request + i % per_request], num_inputs[number], request, sampling.stop
                )
                for i in range(num_answers)
            ]
            for number, request in enumerate(requests)
        ]

    def _generation_options(self, num_answers: int, sampling: Sampling) -> dict[str, Any]:
        """Return what ``generate`` is told; what the user leaves open is the model's own choice."""
        given = dict(sampling.options)
        options: dict[str, Any] = {"max_new_tokens": sampling.max_new, "pad_token_id": self._tokenizer.pad_token_id}
        own = self._model.generation_config
        temperature = given.get("temperature")
        is_sampled = bool(own.do_sample) if temperature is None else temperature > 0
        if temperature is None and (given.get("top_p") is not None or given.get("top_k") is not None):
            is_sampled = True
        options["do_sample"] = is_sampled
        if is_sampled:
            drawn = {name: given[name] for name in ("temperature", "top_p", "top_k") if given.get(name) is not None}
            options |= drawn | {"num_return_sequences": num_answers}
        else:  # else transformers warns of what the model's files say for sampling
            options |= {"temperature": None, "top_p": None, "top_k": None}
        if (penalty := given.get("repetition_penalty")) is not None:
            options["repetition_penalty"] = penalty
        if sampling.stop:
            options |= {"stop_strings": list(sampling.stop), "tokenizer": self._tokenizer}
        return options

    def _generation(
        self, tokens: list[int], num_inputs: int, request: Request, stop_texts: tuple[str, ...]
    ) -> Generation:
        ends = self._model.generation_config.eos_token_id
        ends = {ends} if isinstance(ends, int) else set(ends or ())
        length = next((i for i, token in enumerate(tokens) if token in ends), None)
        is_done = length is not None
        # After a stop text there is only padding, which need not be the end of a text.
        num_output = (length + 1) if length is not None else len(tokens)
        text = self._tokenizer.decode(tokens[:length] if is_done else tokens, skip_special_tokens=True)
        if stops := [at for stop in stop_texts if (at := text.find(stop)) >= 0]:
            text, is_done = text[: min(stops)], True
            padding = self._tokenizer.pad_token_id
            while num_output > 1 and tokens[num_output - 1] == padding and padding not in ends:
                num_output -= 1
        text, reasoning = chat.split_reasoning(text)
        return Generation(
            chat.without_fence(text) if request.output is not None else text,
            model=self._checkpoint.name,
            input_tokens=num_inputs,
            output_tokens=num_output,
            finish_reason="stop" if is_done else "length",
            reasoning=reasoning,
        )


def _checked_limit(options: Mapping[str, Any]) -> int:
    given = [options[name] for name in LIMITS if options.get(name) is not None]
    limit = given[0] if given else MAX_OUTPUT_TOKENS
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidArgumentError(f"prompt: max_output_tokens is a number of tokens; got {limit!r}")
    return limit


NUMBERS: dict[str, tuple[type, Callable[[Any], bool], str]] = {
    "temperature": (float, lambda value: 0 <= value < math.inf, "a number of 0 or more"),
    "top_p": (float, lambda value: 0 < value <= 1, "a number above 0 and up to 1"),
    "top_k": (int, lambda value: value >= 0, "a whole number of 0 or more"),
    "seed": (int, lambda value: 0 <= value < 2**63, "a whole number of 0 or more"),
    "repetition_penalty": (float, lambda value: 0 < value < math.inf, "a number above 0"),
    "max_length": (int, lambda value: value >= 1, "a number of tokens, 1 or more"),
}


def _checked_number(name: str, value: Any) -> Any:
    if value is None:
        return None
    kind, is_fitting, words = NUMBERS[name]
    kinds = int | np.integer if kind is int else int | float | np.integer | np.floating
    if isinstance(value, bool) or not isinstance(value, kinds) or not is_fitting(value):
        raise InvalidArgumentError(f"prompt: {name} is {words}; got {value!r}")
    return kind(value)


def _checked_stop(options: Mapping[str, Any]) -> tuple[str, ...]:
    stop = options.get("stop") or ()
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(isinstance(text, str) and text for text in stops):
        raise InvalidArgumentError(f"prompt: stop is a text or a list of texts; got {stop!r}")
    return stops


def _takes_images(checkpoint: Checkpoint) -> bool:
    """Return whether a model is one of those that see images and write text."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as SEEING

    config = checkpoint.config()
    architectures = config.get("architectures") or []
    is_text_only = any(name.endswith("ForCausalLM") for name in architectures)
    return config.get("model_type") in SEEING and not is_text_only


def _cache_tokens(model: Any, device: Any) -> int:
    """Return for how many tokens there is memory, from what the model keeps of each: keys and values, in all layers."""
    import torch

    config = model.config.get_text_config()
    num_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    nbytes = 2 * config.num_hidden_layers * num_heads * head * model.dtype.itemsize
    free = CPU_CACHE_BYTES if device.type != "cuda" else int(torch.cuda.mem_get_info(device)[0] * GPU_CACHE_SHARE)
    return max(1, int(free // nbytes))
