"""Answer prompts with local language models, a batch at a time, by ``generate`` of transformers.

A batch runs until its longest answer is complete.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.ai.conversation import Generation, Request
from penstock.ai.local import chat
from penstock.ai.local.checkpoint import Checkpoint, quiet
from penstock.ai.local.constraint import Constraints, Guide
from penstock.ai.local.local_model import OPTIONS, LocalModel
from penstock.ai.local.sampling import (
    MAX_OUTPUT_TOKENS,
    ROW_OPTIONS,
    Sampling,
    checked_number,
    checked_sampling,
    is_random,
)
from penstock.ai.local.weights import has_gpu
from penstock.ai.provider import Prompter, Prompting
from penstock.ai.providers.wire import check_row_options
from penstock.errors import InvalidArgumentError, PenstockError, QueryCancelledError, RequestRefusedError
from penstock.udf.retry import check_call_not_cancelled

PROMPT_OPTIONS = (*OPTIONS, *ROW_OPTIONS, "max_length", "logprobs", "top_logprobs")
ROWS_AT_ONCE = {"cpu": 32, "cuda": 256}
BATCH_ROWS = {kind: 8 * rows for kind, rows in ROWS_AT_ONCE.items()}
"""Rows of a call. Of these, rows with similar limits and lengths run together."""
CPU_CACHE_BYTES = 2 << 30
"""Memory for the keys and values of a batch on a CPU."""
GPU_CACHE_SHARE = 0.6  # of the memory that the weights leave free


@dataclass(eq=False)
class Continuation:
    """A prompt and the answer to it. With images, ``inputs`` are what the model takes for it."""

    prompt: list[int]
    sampling: Sampling
    matcher: Any = None  # of the return format
    inputs: Mapping[str, Any] | None = None
    answer: Generation | None = None

    @property
    def max_new(self) -> int:
        limit: int = self.sampling["max_new_tokens"]
        return limit

    @property
    def group(self) -> str:
        """Rows of a group may run together: all their options but the limit are equal."""
        own = "" if self.inputs is None else str(id(self))
        return own + repr(sorted((name, value) for name, value in self.sampling.items() if name != "max_new_tokens"))


class GenerationRuntime:
    """A model with its tokenizer and, if it takes images, its processor. ``model`` is given if it is loaded already."""

    def __init__(self, checkpoint: Checkpoint, model: Any = None) -> None:
        self._name, takes_images = checkpoint.name, _takes_images(checkpoint)
        loaded: Any = checkpoint.from_pretrained("AutoProcessor") if takes_images else checkpoint.tokenizer()
        self.processor: Any = loaded if takes_images else None
        self.tokenizer: Any = loaded.tokenizer if takes_images else loaded
        if model is None:
            model = checkpoint.load("AutoModelForImageTextToText" if takes_images else "AutoModelForCausalLM")
        self.model: Any = model
        self.device = checkpoint.torch_device()
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        settings = self.model.config.get_text_config().to_dict()
        self.max_positions: int | None = settings.get("max_position_embeddings") or settings.get("n_positions")
        ends = self.model.generation_config.eos_token_id
        self.ends = sorted({ends} if isinstance(ends, int) else ends or ())
        self._constraints: Constraints | None = None
        self.max_rows = ROWS_AT_ONCE["cpu" if self.device.type == "cpu" else "cuda"]
        self.max_cached_tokens = _max_cached_tokens(self.model, self.device)
        kinds = settings.get("layer_types") or ()
        is_stateless = {*kinds} <= {"full_attention", "sliding_attention"}
        self.takes_padding = is_stateless and not getattr(self.model, "_is_stateful", False)

    @property
    def template(self) -> Any:
        """The processor or tokenizer that holds the chat template."""
        return self.processor or self.tokenizer

    def text(self, request: Request) -> str:
        """Return the text that the model continues."""
        return chat.rendered(self.template, chat.messages_of(request, takes_images=self.processor is not None))

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of texts that `text` returned."""
        if not texts:
            return []
        has_template = bool(self.template.chat_template)  # it writes the special tokens itself
        found = self.tokenizer(list(texts), add_special_tokens=not has_template, return_attention_mask=False)
        nothing = [self.tokenizer.bos_token_id or self.tokenizer.eos_token_id or 0]
        return [ids or nothing for ids in found["input_ids"]]

    def batches(self, rows: Sequence[Continuation]) -> Iterator[list[Continuation]]:
        """Yield groups of rows that run together: rows with similar limits and lengths, the longest first."""
        ordered = sorted(rows, key=lambda row: (row.group, row.max_new, len(row.prompt)))
        for _, group in itertools.groupby(ordered, key=lambda row: row.group):
            waiting = list(group)
            while waiting:
                longest = waiting[-1].max_new + max(len(row.prompt) for row in waiting[-self.max_rows :])
                num_rows = max(1, min(self.max_rows, self.max_cached_tokens // longest)) if self.takes_padding else 1
                yield waiting[-num_rows:]
                del waiting[-num_rows:]

    def inputs(self, rows: Sequence[Continuation]) -> dict[str, Any]:
        """Return the prompts of rows as the model takes them, padded on the left.

        A row is padded with its own first token, so that a penalty for repeated tokens is unchanged.
        """
        import torch

        if rows[0].inputs is not None:
            return dict(rows[0].inputs)
        width = max(len(row.prompt) for row in rows)
        pads = [width - len(row.prompt) for row in rows]
        padded = [row.prompt[:1] * pad + row.prompt for pad, row in zip(pads, rows, strict=True)]
        ids = torch.tensor(padded, device=self.device)
        mask = torch.arange(width, device=self.device) >= torch.tensor(pads, device=self.device)[:, None]
        return {"input_ids": ids, "attention_mask": mask.long()}

    def has_images(self, request: Request) -> bool:
        return self.processor is not None and bool(chat.encoded_images(request))

    def with_images(self, request: Request, sampling: Sampling) -> Continuation:
        """Return the continuation of a request with images, whose prompt has tokens for the images too."""
        found = self.processor(
            text=[self.text(request)], images=[chat.images_of(request)], return_tensors="pt", add_special_tokens=False
        )
        dtype = self.model.dtype
        inputs = {
            key: value.to(self.device, dtype if value.is_floating_point() else None) for key, value in found.items()
        }
        return Continuation(found["input_ids"][0].tolist(), sampling, inputs=inputs)

    def matcher(self, schema: Mapping[str, Any]) -> Any:
        """Return the constraint of one answer to a JSON schema."""
        if self._constraints is None:
            num_tokens = self.model.config.get_text_config().vocab_size
            self._constraints = Constraints(self.tokenizer, num_tokens, self.ends)
        return self._constraints.matcher(schema)

    def is_random(self, sampling: Sampling) -> bool:
        return is_random(sampling, bool(self.model.generation_config.do_sample))

    def answer(self, rows: Sequence[Continuation], num_logprobs: int | None) -> None:
        """Continue the rows of a batch to their ends, and set their answers."""
        import torch

        inputs, options = self.inputs(rows), dict(rows[0].sampling)
        options["max_new_tokens"] = max(row.max_new for row in rows)
        seed, stop, draws = options.pop("seed", None), options.pop("stop", ()), self.is_random(options)
        if not draws:
            options.pop("temperature", None)
        processors: list[Any] = [_check_not_cancelled]
        noted = None if num_logprobs is None else NotedLogprobs(num_logprobs)
        if noted is not None:
            processors.append(noted)
        if any(row.matcher is not None for row in rows):
            assert self._constraints is not None
            processors.append(Guide(self._constraints, [row.matcher for row in rows]))
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.inference_mode(), torch.random.fork_rng(devices, enabled=seed is not None), quiet():
            if seed is not None:
                torch.manual_seed(seed)
            found = self.model.generate(
                **inputs,
                **options,
                do_sample=draws,
                pad_token_id=self.tokenizer.pad_token_id,
                logits_processor=processors,
                stop_strings=list(stop) or None,
                tokenizer=self.tokenizer,
            )
        if noted is not None:
            noted.note_chosen(found)
        width, last = inputs["input_ids"].shape[1], {*self.ends, self.tokenizer.pad_token_id}
        for number, (row, tokens) in enumerate(zip(rows, found[:, width:].tolist(), strict=True)):
            own = list(itertools.takewhile(lambda token: token not in last, tokens[: row.max_new]))
            row.answer = self._generation(row, own, is_ended=len(own) < len(tokens[: row.max_new]))
            if noted is not None:
                row.answer.logprobs = noted.of_row(number, own, self.tokenizer.decode)

    def _generation(self, row: Continuation, tokens: list[int], *, is_ended: bool) -> Generation:
        """Return the answer of some tokens; ``is_ended`` means that an end or padding came after them."""
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        cuts = [at for stop in row.sampling.get("stop", ()) if (at := text.find(stop)) >= 0]
        is_complete = is_ended or bool(cuts) or (row.matcher is not None and row.matcher.is_stopped())
        answer, reasoning = chat.split_reasoning(text[: min(cuts)] if cuts else text)
        return Generation(
            answer,
            model=self._name,
            input_tokens=len(row.prompt),
            output_tokens=len(tokens) + (is_ended and not cuts),
            finish_reason="stop" if is_complete else "length",
            reasoning=reasoning,
        )


class NotedLogprobs:
    """A logits processor that notes the log-probabilities of the chosen tokens, and of the most likely ones."""

    def __init__(self, num_top: int) -> None:
        self._num_top = num_top
        self._last: Any = None  # of all tokens at the last place
        self._chosen: list[list[float]] = []
        self._top: list[Any] = []

    def __call__(self, ids: Any, logits: Any) -> Any:
        if self._last is not None:
            self.note_chosen(ids)
        self._last = logits.float().log_softmax(-1)
        self._top.append(self._last.topk(self._num_top))
        return logits

    def note_chosen(self, ids: Any) -> None:
        self._chosen.append(self._last.gather(1, ids[:, -1:])[:, 0].tolist())

    def of_row(self, row: int, tokens: Sequence[int], decode: Callable[[list[int]], str]) -> list[dict[str, Any]]:
        found = []
        for token, chosen, top in zip(tokens, self._chosen, self._top, strict=False):
            pairs = zip(top.indices[row].tolist(), top.values[row].tolist(), strict=True)
            listed = [{"token": decode([each]), "logprob": logprob} for each, logprob in pairs]
            found.append({"token": decode([token]), "logprob": chosen[row], "top_logprobs": listed})
        return found


def _check_not_cancelled(ids: Any, logits: Any) -> Any:
    """Raise QueryCancelledError if the query was stopped. It takes the place of a logits processor."""
    check_call_not_cancelled()
    return logits


class TransformersPrompter(LocalModel[GenerationRuntime], Prompter):
    """Answer requests with a causal language model, or one that takes images too."""

    takes_options = True
    takes_tools = False

    def __init__(self, checkpoint: Checkpoint, task: Prompting) -> None:
        check_writes_text(checkpoint, task.function)
        self._max_length = checked_number("max_length", task.options.get("max_length"))
        self._num_logprobs: int | None = None
        if task.options.get("logprobs"):
            self._num_logprobs = checked_number("top_logprobs", task.options.get("top_logprobs")) or 0
        self._sampling = {"max_new_tokens": MAX_OUTPUT_TOKENS, **checked_sampling(task.options)}
        self._samples_by_default: bool | None = None
        facts: dict[str, Any] = {"max_length": self._max_length, "sampling": self._sampling}
        if self._num_logprobs is not None:
            facts["logprobs"] = self._num_logprobs
        super().__init__(checkpoint, task, **facts)
        if self.batch_size == "auto":  # a search would begin with few rows, and a batch takes too long to try several
            is_gpu = has_gpu() if checkpoint.device is None else not checkpoint.device.startswith("cpu")
            self.batch_size = BATCH_ROWS["cuda" if is_gpu else "cpu"]

    def _build(self) -> GenerationRuntime:
        return GenerationRuntime(self._checkpoint)

    def is_certain(self, request: Request) -> bool:
        if self._samples_by_default is None:
            config = self._checkpoint.read_json("generation_config.json") or {}
            self._samples_by_default = bool(config.get("do_sample", False))
        try:
            return not is_random(self._sampling_of(request), self._samples_by_default)
        except PenstockError:  # generate reports it
            return False

    def generate(self, request: Sequence[Request]) -> list[list[Generation] | Exception]:
        """Return the answers to each request, or its error."""
        found: list[list[Continuation] | PenstockError] = []
        for one in request:
            try:
                found.append(self._continuations(one))
            except QueryCancelledError:
                raise
            except PenstockError as exc:
                found.append(exc)
        waiting = [row for rows in found if isinstance(rows, list) for row in rows]
        for batch in self.runtime.batches(waiting):
            self.runtime.answer(batch, self._num_logprobs)
        return [
            self._generations(one, rows) if isinstance(rows, list) else rows
            for one, rows in zip(request, found, strict=True)
        ]

    def _sampling_of(self, request: Request) -> Sampling:
        check_row_options(request.options or {}, ROW_OPTIONS)
        return {**self._sampling, **checked_sampling(request.options or {})}

    def _continuations(self, request: Request) -> list[Continuation]:
        """Return a continuation for each answer that the request asks for. Without randomness one serves all."""
        runtime, sampling = self.runtime, self._sampling_of(request)
        if runtime.has_images(request):
            first = runtime.with_images(request, sampling)
        else:
            first = Continuation(runtime.tokens([runtime.text(request)])[0], sampling)
            self._check_length(len(first.prompt), first.max_new)
        schema = None if request.output is None else request.output.schema
        return [
            replace(first, matcher=None if schema is None else runtime.matcher(schema))
            for _ in range(request.num_answers if runtime.is_random(sampling) else 1)
        ]

    def _check_length(self, num_tokens: int, max_new: int) -> None:
        positions = self.runtime.max_positions or num_tokens + max_new
        room = min(self._max_length or num_tokens, positions - max_new)
        if num_tokens > room:
            raise RequestRefusedError(
                f"The prompt has {num_tokens:,} tokens; with max_output_tokens={max_new} there is room for "
                f"{max(0, room):,} in model {self._checkpoint.name!r}. Cut the text, or ask for fewer tokens."
            )

    def _generations(self, request: Request, rows: list[Continuation]) -> list[Generation]:
        answers = [row.answer for row in rows if row.answer is not None]
        return answers if len(answers) == request.num_answers else answers * request.num_answers


def check_writes_text(checkpoint: Checkpoint, function: str) -> None:
    """Raise an error if a model was saved without a head that writes text; transformers would make a random one."""
    kinds = checkpoint.config().get("architectures") or []
    writes = any(name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")) for name in kinds)
    if kinds and not writes and not checkpoint.trust_remote_code:
        raise InvalidArgumentError(
            f"{function}: model {checkpoint.name!r} is a {', '.join(kinds)}, which writes no text. "
            "Use a causal language model."
        )


def _takes_images(checkpoint: Checkpoint) -> bool:
    """Return whether a model takes images and writes text."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    config = checkpoint.config()
    is_text_only = any(name.endswith("ForCausalLM") for name in config.get("architectures") or [])
    return config.get("model_type") in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES and not is_text_only


def _max_cached_tokens(model: Any, device: Any) -> int:
    """Return how many tokens' keys and values fit in memory."""
    import torch

    config = model.config.get_text_config()
    settings = config.to_dict()
    if not settings.get("num_attention_heads"):  # no cache that grows
        return 1
    num_heads = settings.get("num_key_value_heads") or config.num_attention_heads
    head_width = settings.get("head_dim") or config.hidden_size // config.num_attention_heads
    nbytes = 2 * config.num_hidden_layers * num_heads * head_width * model.dtype.itemsize
    free = CPU_CACHE_BYTES if device.type != "cuda" else int(torch.cuda.mem_get_info(device)[0] * GPU_CACHE_SHARE)
    return max(1, int(free // nbytes))
