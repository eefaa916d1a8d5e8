"""Answer prompts in batches with local language models.

A batch is padded on the left and runs until its last answer is complete, so prompts of similar length share a batch.
The memory for the keys and values of its tokens limits its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.ai.conversation import Generation, Request
from penstock.ai.local import chat
from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.length_batches import batches_by_length
from penstock.ai.local.local_model import OPTIONS, LocalModel
from penstock.ai.provider import Prompter, Prompting
from penstock.ai.remote.wires.wire import check_row_options
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
"""Memory for the keys and values of a batch on a CPU."""
GPU_CACHE_SHARE = 0.6  # of the memory that the weights leave free


@dataclass(frozen=True)
class Sampling:
    """Sampling options of all rows or of one. Rows with equal options share a batch."""

    max_new: int
    stop: tuple[str, ...]
    options: tuple[tuple[str, Any], ...]

    @staticmethod
    def of(options: Mapping[str, Any]) -> Sampling:
        given = {name: value for name, value in options.items() if name in ROW_OPTIONS and value is not None}
        rest = tuple(
            sorted((name, _checked_number(name, given[name])) for name in given if name not in (*LIMITS, "stop"))
        )
        limits = [_checked_number(name, given[name]) for name in LIMITS if name in given]
        return Sampling(limits[0] if limits else MAX_OUTPUT_TOKENS, _checked_stop(given), rest)

    def changed(self, options: Mapping[str, Any] | None) -> Sampling:
        """Return these options with those of one request in their place."""
        if not options:
            return self
        check_row_options(options, ROW_OPTIONS)
        own = Sampling.of(options)
        return Sampling(
            own.max_new if any(options.get(name) is not None for name in LIMITS) else self.max_new,
            own.stop or self.stop,
            tuple(sorted({**dict(self.options), **dict(own.options)}.items())),
        )


class GenerationRuntime:
    """A model with its tokenizer and, if it takes images, its processor."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        takes_images = _takes_images(checkpoint)
        loaded: Any = checkpoint.from_pretrained("AutoProcessor" if takes_images else "AutoTokenizer")
        self.processor: Any = loaded if takes_images else None
        self.tokenizer: Any = loaded.tokenizer if takes_images else loaded
        self.model: Any = checkpoint.load("AutoModelForImageTextToText" if takes_images else "AutoModelForCausalLM")
        self.device = checkpoint.torch_device()
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        settings = self.model.config.get_text_config().to_dict()
        self.max_positions: int | None = settings.get("max_position_embeddings") or settings.get("n_positions")
        self.max_cached_tokens = _max_cached_tokens(self.model, self.device)

    @property
    def template(self) -> Any:
        """The processor or tokenizer that holds the chat template."""
        return self.processor or self.tokenizer


class TransformersPrompter(LocalModel[GenerationRuntime], Prompter):
    """Answer requests with a causal language model, or one that takes images too."""

    takes_options = True
    takes_tools = False

    def __init__(self, checkpoint: Checkpoint, task: Prompting) -> None:
        checkpoint.config()  # raises now if the model does not exist
        self._max_length = _checked_number("max_length", task.options.get("max_length"))
        self._sampling = own = Sampling.of(task.options)
        self._samples_by_default: bool | None = None
        super().__init__(checkpoint, task, max_length=self._max_length, sampling=[own.max_new, own.stop, own.options])

    def _build(self) -> GenerationRuntime:
        return GenerationRuntime(self._checkpoint)

    def is_certain(self, request: Request) -> bool:
        try:
            given = dict(self._sampling.changed(request.options).options)
        except PenstockError:  # generate reports it
            return False
        if (temperature := given.get("temperature")) is not None:
            return bool(temperature == 0)
        if given.get("top_p") is not None or given.get("top_k") is not None:
            return False
        if self._samples_by_default is None:
            config = self._checkpoint.read_json("generation_config.json") or {}
            self._samples_by_default = bool(config.get("do_sample", False))
        return not self._samples_by_default

    def generate(self, request: Sequence[Request]) -> list[list[Generation] | Exception]:
        """Return the answers to each request, or its error."""
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
            first = request[batch[0]]
            if self._has_images(first):
                inputs = self._image_inputs(first)
            else:
                tokens = {"input_ids": [prompts[number] for number in batch]}
                inputs = dict(self.runtime.tokenizer.pad(tokens, padding_side="left", return_tensors="pt"))
            answers |= zip(batch, self._run(inputs, [request[i] for i in batch], samplings[batch[0]]), strict=True)
        return [answers[number] for number in range(len(request))]

    def _tokens(self, request: Request, max_new: int) -> list[int]:
        runtime = self.runtime
        messages = chat.messages_of(request, takes_images=runtime.processor is not None)
        text = chat.rendered(runtime.template, messages)
        has_template = bool(runtime.template.chat_template)  # it writes the special tokens itself
        ids: list[int] = runtime.tokenizer(text, add_special_tokens=not has_template)["input_ids"]
        room = min(self._max_length or len(ids), (runtime.max_positions or len(ids) + max_new) - max_new)
        if len(ids) > room:
            raise RequestRefusedError(
                f"The prompt has {len(ids):,} tokens; with max_output_tokens={max_new} there is room for "
                f"{max(0, room):,} in model {self._checkpoint.name!r}. Cut the text, or ask for fewer tokens."
            )
        return ids or [runtime.tokenizer.bos_token_id or runtime.tokenizer.eos_token_id or 0]

    def _has_images(self, request: Request) -> bool:
        return self.runtime.processor is not None and bool(chat.images_of(request))

    def _batches(
        self, requests: Sequence[Request], prompts: dict[int, list[int]], samplings: dict[int, Sampling]
    ) -> Iterator[list[int]]:
        """Yield requests of similar length with equal sampling options. A request with images is a batch of its own."""
        groups: dict[tuple[int, Sampling], list[int]] = {}
        for number in prompts:
            if self._has_images(requests[number]):
                yield [number]
            else:
                groups.setdefault((requests[number].num_answers, samplings[number]), []).append(number)
        for (num_answers, sampling), numbers in groups.items():
            lengths = np.array([len(prompts[number]) + sampling.max_new for number in numbers]) * num_answers
            max_rows = max(1, ROWS_AT_ONCE["cpu" if self.runtime.device.type == "cpu" else "cuda"] // num_answers)
            for rows in batches_by_length(lengths, self.runtime.max_cached_tokens, max_rows):
                yield [numbers[row] for row in rows]

    def _image_inputs(self, request: Request) -> dict[str, Any]:
        processor, images = self.runtime.processor, chat.images_of(request)
        text = chat.rendered(processor, chat.messages_of(request, takes_images=True))
        return dict(processor(text=[text], images=[images], return_tensors="pt", add_special_tokens=False))

    def _run(self, inputs: dict[str, Any], requests: list[Request], sampling: Sampling) -> list[list[Generation]]:
        import torch

        model, device = self.runtime.model, self.runtime.device
        num_answers = requests[0].num_answers
        options = self._generation_options(num_answers, sampling)
        seed = dict(sampling.options).get("seed")
        moved = {
            key: value.to(device, model.dtype if value.is_floating_point() else None) for key, value in inputs.items()
        }
        devices = [device] if device.type == "cuda" else []
        with torch.inference_mode(), torch.random.fork_rng(devices=devices, enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            out = model.generate(**moved, **options)[:, inputs["input_ids"].shape[1] :].cpu().tolist()
        num_inputs = inputs["attention_mask"].sum(1).tolist()
        per_request = len(out) // len(requests)
        answers = []
        for number, request in enumerate(requests):
            own = out[number * per_request : (number + 1) * per_request]
            found = [self._generation(tokens, num_inputs[number], request, sampling.stop) for tokens in own]
            answers.append(found if len(found) == num_answers else found * num_answers)
        return answers

    def _generation_options(self, num_answers: int, sampling: Sampling) -> dict[str, Any]:
        """Return the arguments of ``generate``; options that the user omits are the model's own."""
        tokenizer = self.runtime.tokenizer
        given = dict(sampling.options)
        options: dict[str, Any] = {"max_new_tokens": sampling.max_new, "pad_token_id": tokenizer.pad_token_id}
        drawn = {name: given[name] for name in ("temperature", "top_p", "top_k") if given.get(name) is not None}
        if "temperature" in drawn:
            is_sampled = drawn["temperature"] > 0
        else:
            is_sampled = bool(drawn) or bool(self.runtime.model.generation_config.do_sample)
        options["do_sample"] = is_sampled
        if is_sampled:
            options |= drawn | {"num_return_sequences": num_answers}
        else:  # transformers warns if the sampling options of the model's files stay set
            options |= {"temperature": None, "top_p": None, "top_k": None}
        if (penalty := given.get("repetition_penalty")) is not None:
            options["repetition_penalty"] = penalty
        if sampling.stop:
            options |= {"stop_strings": list(sampling.stop), "tokenizer": tokenizer}
        return options

    def _generation(
        self, tokens: list[int], num_inputs: int, request: Request, stop_texts: tuple[str, ...]
    ) -> Generation:
        tokenizer = self.runtime.tokenizer
        ends = self.runtime.model.generation_config.eos_token_id
        ends = {ends} if isinstance(ends, int) else set(ends or ())
        length = next((i for i, token in enumerate(tokens) if token in ends), None)
        is_done = length is not None
        # Padding follows a stop text, and may differ from the end-of-text token.
        num_output = (length + 1) if length is not None else len(tokens)
        text = tokenizer.decode(tokens[:length] if is_done else tokens, skip_special_tokens=True)
        if stops := [at for stop in stop_texts if (at := text.find(stop)) >= 0]:
            text, is_done = text[: min(stops)], True
            padding = tokenizer.pad_token_id
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


NUMBERS: dict[str, tuple[type, Callable[[Any], bool], str]] = {
    "temperature": (float, lambda value: 0 <= value < math.inf, "a number of 0 or more"),
    "top_p": (float, lambda value: 0 < value <= 1, "a number above 0 and up to 1"),
    "top_k": (int, lambda value: value >= 0, "a whole number of 0 or more"),
    "seed": (int, lambda value: 0 <= value < 2**63, "a whole number of 0 or more"),
    "repetition_penalty": (float, lambda value: 0 < value < math.inf, "a number above 0"),
    **dict.fromkeys((*LIMITS, "max_length"), (int, lambda value: value >= 1, "a number of tokens, 1 or more")),
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
    """Return whether a model takes images and writes text."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    config = checkpoint.config()
    is_text_only = any(name.endswith("ForCausalLM") for name in config.get("architectures") or [])
    return config.get("model_type") in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES and not is_text_only


def _max_cached_tokens(model: Any, device: Any) -> int:
    """Return the number of tokens whose keys and values fit in memory."""
    import torch

    config = model.config.get_text_config()
    settings = config.to_dict()
    num_heads = settings.get("num_key_value_heads") or config.num_attention_heads
    head_width = settings.get("head_dim") or config.hidden_size // config.num_attention_heads
    nbytes = 2 * config.num_hidden_layers * num_heads * head_width * model.dtype.itemsize
    free = CPU_CACHE_BYTES if device.type != "cuda" else int(torch.cuda.mem_get_info(device)[0] * GPU_CACHE_SHARE)
    return max(1, int(free // nbytes))
