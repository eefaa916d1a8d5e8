"""Encode texts with local models: batches of similar lengths, bounded by tokens, without waiting for the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from penstock.ai.local.batch_runner import BatchRunner
from penstock.ai.local.bert import BertEncoder, load_bert
from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.int8 import Int8Encoder
from penstock.ai.local.packed import load_packed
from penstock.ai.local.sentence_modules import DenseLayer, SentenceModules
from penstock.ai.local.tokens import BatchTokenizer, DeviceTokens, Tokens, max_input_tokens, takes_plain_mask
from penstock.errors import RequestRefusedError

NDArray = np.ndarray[Any, Any]
LongInput = Literal["truncate", "average"]

CPU_TOKENS, INT8_CPU_TOKENS, GPU_TOKENS = 1_024, 512, 131_072
"""Tokens of a batch. On a CPU the activations of larger batches no longer fit its cache."""

NARROW, NARROW_GPU_TOKENS = 1_024, 262_144
"""Tokens of a batch for a class of transformers whose hidden states are narrower than ``NARROW``. It takes about a
thousand calls of Python for a batch, and they take twice as long while another thread compiles the model: with smaller
batches a fast GPU waits for them."""

_ENCODER_DECODERS = ("t5", "mt5", "umt5")  # AutoModel would require input for the decoder


class TransformersEncoder:
    """An encoder and its tokenizer as transformers loads them."""

    def __init__(self, checkpoint: Checkpoint, subfolder: str) -> None:
        is_encoder_decoder = checkpoint.config(subfolder).get("model_type") in _ENCODER_DECODERS
        auto_class = "AutoModelForTextEncoding" if is_encoder_decoder else "AutoModel"
        self._packed = load_packed(checkpoint, auto_class, subfolder)
        self._model: Any = self._packed or checkpoint.load(auto_class, subfolder)
        self.config: dict[str, Any] = self._model.config.to_dict()
        self.tokenizer = checkpoint.tokenizer(subfolder)
        self.takes_plain_mask = takes_plain_mask(self._model.config)

    def hidden(self, tokens: DeviceTokens, rows: NDArray) -> tuple[Any, Any]:
        """Return a vector for each token of some rows, in padded batches, and the mask: True for tokens."""
        if self._packed is not None:
            batch = tokens.packed(rows)
            return self._packed.hidden(batch), batch.mask
        inputs, mask = tokens.batch(rows)
        return self._model(**inputs).last_hidden_state, mask


def load_network(checkpoint: Checkpoint, subfolder: str) -> BertEncoder | Int8Encoder | TransformersEncoder:
    bert = load_bert(checkpoint, subfolder)
    if checkpoint.precision is None:
        return bert or TransformersEncoder(checkpoint, subfolder)
    if bert is None:
        raise RequestRefusedError(
            f"Model {checkpoint.name!r} cannot run with precision='int8', which is for MiniLM, BGE, E5, GTE and "
            "XLM-RoBERTa with fast tokenizers. Leave precision out."
        )
    return Int8Encoder(bert)


class TextEncoder:
    """A model in memory. ``width`` truncates the vectors; ``is_normalized`` scales the result to unit length."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        modules: SentenceModules,
        *,
        width: int,
        is_normalized: bool,
        max_length: int | None = None,
        long_input: LongInput = "truncate",
        prompt: str = "",
    ) -> None:
        self._modules = modules
        self._width = width
        self._is_normalized = is_normalized
        self._long_input = long_input
        self._prompt = prompt
        self._network = load_network(checkpoint, modules.path)
        self._device = checkpoint.torch_device()
        is_narrow = getattr(self._network.config, "hidden_size", NARROW) < NARROW
        gpu_tokens = NARROW_GPU_TOKENS if is_narrow and isinstance(self._network, TransformersEncoder) else GPU_TOKENS
        cpu_tokens = INT8_CPU_TOKENS if isinstance(self._network, Int8Encoder) else CPU_TOKENS
        self._runner = BatchRunner(self._device, cpu_tokens=cpu_tokens, gpu_tokens=gpu_tokens)
        tokenizer = self._network.tokenizer
        self._padding = tokenizer.pad_token_id or 0
        self._max_length = max_input_tokens(self._network.config, tokenizer, max_length or modules.max_length)
        self._tokenizer = BatchTokenizer(tokenizer, self._max_length)
        has_unpooled = not modules.pools_prompt and prompt
        self._num_prompt_tokens = int(self._tokenizer.tokens([prompt]).lengths[0]) - 1 if has_unpooled else 0
        self._layers = [_load_dense(checkpoint, layer, self._device) for layer in modules.layers]

    def encode(self, texts: Sequence[str]) -> NDArray:
        """Return a float32 array of shape ``(len(texts), width)``. Several threads may call it at the same time."""
        if not len(texts):
            return np.empty((0, self._width), np.float32)
        tokens = self._tokens(texts)
        takes_plain_mask = self._network.takes_plain_mask
        on_device = tokens.on(self._device, self._padding, self._max_length, takes_plain_mask=takes_plain_mask)

        def forward(rows: NDArray) -> Any:
            hidden, mask = self._network.hidden(on_device, rows)
            vectors = self._pooled(hidden.float(), mask)
            return vectors if len(tokens.owners) else self._finished(vectors)

        vectors = self._runner.run(tokens.lengths, forward)
        return self._averaged(vectors, tokens, len(texts)) if len(tokens.owners) else vectors

    def _averaged(self, vectors: NDArray, tokens: Tokens, num_texts: int) -> NDArray:
        """Return the mean of the pieces of each text, weighted by their tokens."""
        import torch

        total, weights = np.zeros((num_texts, vectors.shape[1]), np.float32), np.zeros((num_texts, 1), np.float32)
        np.add.at(total, tokens.owners, vectors * tokens.lengths[:, None].astype(np.float32))
        np.add.at(weights, tokens.owners, tokens.lengths[:, None])
        return self._finished(torch.from_numpy(total / weights)).numpy()  # type: ignore[no-any-return]

    def _finished(self, vectors: Any) -> Any:
        """Return vectors of the wanted width, of unit length if that is wanted."""
        from torch.nn.functional import normalize

        vectors = vectors[:, : self._width]
        return normalize(vectors, dim=1) if self._is_normalized else vectors.contiguous()

    def _tokens(self, texts: Sequence[str]) -> Tokens:
        texts = [self._prompt + text for text in texts] if self._prompt else texts
        texts = [text.lower() for text in texts] if self._modules.is_lowercase else texts
        return self._tokenizer.tokens(texts) if self._long_input == "truncate" else self._tokenizer.pieces(texts)

    def _pooled(self, hidden: Any, mask: Any) -> Any:
        """Return one vector per piece from the hidden states of its tokens."""
        import torch

        if self._num_prompt_tokens:
            mask = mask.clone()
            mask[:, : self._num_prompt_tokens] = False
        vectors = torch.cat([pooled(mode, hidden, mask) for mode in self._modules.pooling], dim=1)
        for layer in self._layers:
            vectors = layer(vectors)
        return vectors


def pooled(mode: str, hidden: Any, mask: Any) -> Any:
    """Pool the vectors of tokens; ``mask`` is True for tokens and False for padding."""
    import torch

    match mode:
        case "mean" | "mean_sqrt_len_tokens":
            counts = mask.sum(1, keepdim=True).clamp(min=1).float()
            total = torch.bmm(mask.unsqueeze(1).float(), hidden).squeeze(1)
            return total / (counts if mode == "mean" else counts.sqrt())
        case "cls":
            return hidden[torch.arange(len(hidden), device=hidden.device), mask.int().argmax(1)]
        case "lasttoken":
            last = mask.shape[1] - 1 - mask.flip(1).int().argmax(1)
            return hidden[torch.arange(len(hidden), device=hidden.device), last]
        case "max":
            return hidden.masked_fill(~mask.unsqueeze(2), float("-inf")).amax(1)
        case "weightedmean":
            weights = mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)
            total = torch.bmm(weights.unsqueeze(1).float(), hidden).squeeze(1)
            return total / weights.sum(1, keepdim=True).clamp(min=1)
        case _:
            raise RequestRefusedError(f"Pooling mode {mode!r} is not supported.")


def _load_dense(checkpoint: Checkpoint, layer: DenseLayer, device: Any) -> Any:
    import torch

    folder = checkpoint.folder() / layer.path
    if (folder / "model.safetensors").is_file():
        from safetensors.torch import load_file

        weights = load_file(folder / "model.safetensors")
    else:
        weights = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    activation = getattr(torch.nn, layer.activation, None)
    if activation is None or set(weights) - {"linear.weight", "linear.bias"}:
        raise RequestRefusedError(
            f"Model {checkpoint.name!r} has a dense layer in {layer.path!r} that embed_text does not support: "
            f"activation {layer.activation!r}, weights {', '.join(weights)}."
        )
    matrix = weights["linear.weight"]
    linear = torch.nn.Linear(matrix.shape[1], matrix.shape[0], bias="linear.bias" in weights)
    linear.load_state_dict({name.removeprefix("linear."): weight.float() for name, weight in weights.items()})
    return torch.nn.Sequential(linear, activation()).to(device).eval()
