"""Answer prompts with local language models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.ai.conversation import Generation, Request
from penstock.ai.local import chat
from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.constraint import Constraints
from penstock.ai.local.decoding import Continuation, Decoder
from penstock.ai.local.local_model import OPTIONS, LocalModel
from penstock.ai.local.sampling import ROW_OPTIONS, Sampling, checked_number
from penstock.ai.local.weights import has_gpu
from penstock.ai.provider import Prompter, Prompting
from penstock.errors import InvalidArgumentError, PenstockError, QueryCancelledError, RequestRefusedError

PROMPT_OPTIONS = (*OPTIONS, *ROW_OPTIONS, "max_length", "logprobs", "top_logprobs")
ROWS_AT_ONCE = {"cpu": 32, "cuda": 256}
BATCH_ROWS = {kind: 8 * rows for kind, rows in ROWS_AT_ONCE.items()}
"""Rows of a call. Of these, rows with similar limits and lengths run together."""
CPU_CACHE_BYTES = 2 << 30
"""Memory for the keys and values of a batch on a CPU."""
GPU_CACHE_SHARE = 0.6  # of the memory that the weights leave free


class GenerationRuntime:
    """A model with its tokenizer and, if it takes images, its processor. ``model`` is given if it is loaded already."""

    def __init__(self, checkpoint: Checkpoint, model: Any = None) -> None:
        import transformers

        takes_images = _takes_images(checkpoint)
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
        defaults = self.model.generation_config
        self.decoder = Decoder(self.model, self.tokenizer, defaults)
        self.max_rows = ROWS_AT_ONCE["cpu" if self.device.type == "cpu" else "cuda"]
        self.max_cached_tokens = _max_cached_tokens(self.model, self.device)
        # The decoder applies the defaults of the model's files, so ``generate`` must not.
        ends = sorted(self.decoder.end_tokens) or None
        self.model.generation_config = transformers.GenerationConfig(
            do_sample=False, eos_token_id=ends, pad_token_id=self.tokenizer.pad_token_id
        )
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
        """Yield groups of rows that run together: rows with equal limits and similar lengths, the longest first."""
        waiting = sorted(rows, key=lambda row: (row.sampling.max_new, len(row.prompt)))
        while waiting:
            longest = waiting[-1].sampling.max_new + max(len(row.prompt) for row in waiting[-self.max_rows :])
            num_rows = max(1, min(self.max_rows, self.max_cached_tokens // longest)) if self.takes_padding else 1
            yield waiting[-num_rows:]
            del waiting[-num_rows:]

    def inputs(self, rows: Sequence[Continuation]) -> dict[str, Any]:
        """Return the prompts of rows as the model takes them, padded on the left."""
        import torch

        width = max(len(row.prompt) for row in rows)
        pads = [width - len(row.prompt) for row in rows]
        ids = torch.tensor([[0] * pad + row.prompt for pad, row in zip(pads, rows, strict=True)], device=self.device)
        mask = torch.arange(width, device=self.device) >= torch.tensor(pads, device=self.device)[:, None]
        return {"input_ids": ids, "attention_mask": mask.long()}

    def has_images(self, request: Request) -> bool:
        return self.processor is not None and bool(chat.encoded_images(request))

    def inputs_with_images(self, request: Request, row: Continuation) -> dict[str, Any]:
        """Return a request as the model takes it; set the prompt of its row, which has tokens for the images too."""
        found = self.processor(
            text=[self.text(request)], images=[chat.images_of(request)], return_tensors="pt", add_special_tokens=False
        )
        row.prompt = found["input_ids"][0].tolist()
        dtype = self.model.dtype
        return {
            key: value.to(self.device, dtype if value.is_floating_point() else None) for key, value in found.items()
        }

    def matcher(self, schema: Mapping[str, Any]) -> Any:
        """Return the constraint of one answer to a JSON schema."""
        if self.decoder.constraints is None:
            num_tokens = self.model.config.get_text_config().vocab_size
            self.decoder.constraints = Constraints(self.tokenizer, num_tokens, sorted(self.decoder.end_tokens))
        return self.decoder.constraints.matcher(schema)


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
        self._sampling = own = Sampling.of(task.options)
        self._samples_by_default: bool | None = None
        facts: dict[str, Any] = {"max_length": self._max_length, "sampling": [own.max_new, own.stop, own.options]}
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
            return not self._sampling.changed(request.options).is_random(self._samples_by_default)
        except PenstockError:  # generate reports it
            return False

    def generate(self, request: Sequence[Request]) -> list[list[Generation] | Exception]:
        """Return the answers to each request, or its error."""
        runtime = self.runtime
        found: list[list[Continuation] | Exception] = []
        together: list[Continuation] = []
        for one in request:
            try:
                rows = self._continuations(one)
                found.append(rows)
                if runtime.has_images(one):
                    for row in rows:
                        runtime.decoder.run([row], runtime.inputs_with_images(one, row))
                else:
                    together += rows
            except QueryCancelledError:
                raise
            except PenstockError as exc:
                found.append(exc)
        for rows in runtime.batches(together):
            runtime.decoder.run(rows, runtime.inputs(rows))
        return [
            rows if isinstance(rows, Exception) else self._generations(one, rows)
            for one, rows in zip(request, found, strict=True)
        ]

    def _continuations(self, request: Request) -> list[Continuation]:
        """Return a continuation for each answer that the request asks for. Without randomness one serves all."""
        import torch

        runtime, sampling = self.runtime, self._sampling.changed(request.options)
        [prompt] = runtime.tokens([runtime.text(request)])
        self._check_length(len(prompt), sampling.max_new)
        is_random, seed = runtime.decoder.chooser.is_random(sampling), dict(sampling.options).get("seed")
        rows = []
        for number in range(request.num_answers if is_random else 1):
            generator = None
            if is_random and seed is not None:
                generator = torch.Generator(runtime.device).manual_seed((seed + number) % 2**63)
            matcher = runtime.matcher(request.output.schema) if request.output is not None else None
            rows.append(Continuation(prompt, sampling, matcher, generator, self._num_logprobs))
        return rows

    def _check_length(self, num_tokens: int, max_new: int) -> None:
        positions = self.runtime.max_positions or num_tokens + max_new
        room = min(self._max_length or num_tokens, positions - max_new)
        if num_tokens > room:
            raise RequestRefusedError(
                f"The prompt has {num_tokens:,} tokens; with max_output_tokens={max_new} there is room for "
                f"{max(0, room):,} in model {self._checkpoint.name!r}. Cut the text, or ask for fewer tokens."
            )

    def _generations(self, request: Request, rows: list[Continuation]) -> list[Generation]:
        answers = [self._generation(row) for row in rows]
        return answers if len(answers) == request.num_answers else answers * request.num_answers

    def _generation(self, row: Continuation) -> Generation:
        decoder, tokens = self.runtime.decoder, row.tokens
        if tokens[-1] in decoder.end_tokens:
            tokens = tokens[:-1]
        text = decoder.tokenizer.decode(tokens, skip_special_tokens=True)
        if stops := [at for stop in row.sampling.stop if (at := text.find(stop)) >= 0]:
            text = text[: min(stops)]
        answer, reasoning = chat.split_reasoning(text)
        return Generation(
            answer,
            model=self._checkpoint.name,
            input_tokens=len(row.prompt),
            output_tokens=len(row.tokens),
            finish_reason=row.finish_reason,
            reasoning=reasoning,
            logprobs=None if row.num_logprobs is None else self._logprobs(tokens, row),
        )

    def _logprobs(self, tokens: list[int], row: Continuation) -> list[dict[str, Any]]:
        decode = self.runtime.tokenizer.decode
        return [
            {
                "token": decode([token]),
                "logprob": logprob,
                "top_logprobs": [{"token": decode([each]), "logprob": other} for each, other in top],
            }
            for token, (logprob, top) in zip(tokens, row.logprobs, strict=False)
        ]


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
