"""Encode texts with local models: batches of similar lengths, bounded by tokens, without waiting for the device.

The token ids of some thousand texts are one flat tensor on the device. Batches are gathered from it there, and the
vectors of all batches are copied back at once. Meanwhile a thread tokenizes the next texts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.length_batches import batches_by_length
from penstock.ai.local.sentence_modules import DenseLayer, SentenceModules
from penstock.errors import RequestRefusedError

NDArray = np.ndarray[Any, Any]
LongInput = Literal["truncate", "average"]

CPU_TOKENS, GPU_TOKENS = 1_024, 131_072
"""Tokens of a batch. On a CPU the activations of larger batches no longer fit its cache."""
TEXTS_AT_ONCE = 8_192
"""Texts that are tokenized before the first of them is encoded."""

NO_LIMIT = 1_000_000
_ENCODER_DECODERS = ("t5", "mt5", "umt5")  # AutoModel would require input for the decoder


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The ids of all pieces in one array; ``owners`` has the text of each piece if texts were split."""

    flat: NDArray
    lengths: NDArray
    owners: list[int]
    num_texts: int


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
        is_encoder_decoder = checkpoint.config(modules.path).get("model_type") in _ENCODER_DECODERS
        auto_class = "AutoModelForTextEncoding" if is_encoder_decoder else "AutoModel"
        self._model = checkpoint.load(auto_class, modules.path)
        self._device = checkpoint.torch_device()
        self._max_tokens = CPU_TOKENS if self._device.type == "cpu" else GPU_TOKENS
        self._tokenizer = checkpoint.from_pretrained("AutoTokenizer", modules.path)
        self._max_length = max_input_tokens(self._model.config, self._tokenizer, max_length or modules.max_length)
        self._backend = self._tokenizer.backend_tokenizer if self._tokenizer.is_fast else None
        if self._backend is not None:
            self._backend.no_padding()
            self._backend.enable_truncation(self._max_length)
        self._num_prompt_tokens = 0 if modules.pools_prompt or not prompt else len(self._ids([prompt])[0]) - 1
        self._layers = [_load_dense(checkpoint, layer, self._device) for layer in modules.layers]

    def encode(self, texts: Sequence[str]) -> NDArray:
        """Return a float32 array of shape ``(len(texts), width)``."""
        import torch

        windows = [texts[start : start + TEXTS_AT_ONCE] for start in range(0, len(texts), TEXTS_AT_ONCE)]
        parts = []
        with torch.inference_mode(), ThreadPoolExecutor(1) as ahead:
            for tokens in _one_ahead(ahead, self._tokens, windows):
                parts.append(self._vectors(tokens))
            if not parts:
                return np.empty((0, self._width), np.float32)
            return torch.cat(parts).cpu().numpy() if len(parts) > 1 else parts[0].cpu().numpy()  # type: ignore[no-any-return]

    def _tokens(self, texts: Sequence[str]) -> _Tokens:
        pieces, owners = self._pieces(texts)
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        flat = np.fromiter(itertools.chain.from_iterable(pieces), np.int64, int(lengths.sum()))
        return _Tokens(flat, lengths, owners, len(texts))

    def _vectors(self, tokens: _Tokens) -> Any:
        import torch

        vectors = self._run(tokens.flat, tokens.lengths)
        if len(tokens.lengths) > tokens.num_texts:
            vectors = _averaged(vectors, tokens.owners, tokens.lengths, tokens.num_texts)
        vectors = vectors[:, : self._width]
        return torch.nn.functional.normalize(vectors, dim=1) if self._is_normalized else vectors

    def _pieces(self, texts: Sequence[str]) -> tuple[list[list[int]], list[int]]:
        """Return the token ids of pieces and, if long texts are split, the text of each piece."""
        texts = [self._prompt + text for text in texts] if self._prompt else list(texts)
        texts = [text.lower() for text in texts] if self._modules.is_lowercase else texts
        if self._long_input == "truncate":
            return self._ids(texts), []
        if self._backend is None:
            raise RequestRefusedError("long_input='average' needs a fast tokenizer, which this model does not have.")
        pieces, owners = [], []
        for row, encoding in enumerate(self._backend.encode_batch_fast(texts)):
            for piece in (encoding, *encoding.overflowing):
                pieces.append(piece.ids)
                owners.append(row)
        return pieces, owners

    def _ids(self, texts: list[str]) -> list[list[int]]:
        if self._backend is not None:
            return [encoding.ids for encoding in self._backend.encode_batch_fast(texts)]
        ids: list[list[int]] = self._tokenizer(texts, truncation=True, max_length=self._max_length)["input_ids"]
        return ids

    def _run(self, flat: NDArray, lengths: NDArray) -> Any:
        """Return the vectors of all pieces; ``flat`` holds their ids."""
        import torch

        ids = self._to_device(flat)
        starts = self._to_device(np.cumsum(lengths) - lengths)
        sizes = self._to_device(lengths)
        out = torch.empty((len(lengths), self._modules.width), dtype=torch.float32, device=self._device)
        padding = self._tokenizer.pad_token_id or 0
        for rows in batches_by_length(lengths, self._max_tokens):
            longest, shortest = int(lengths[rows[0]]), int(lengths[rows[-1]])
            where = self._to_device(rows)
            positions = torch.arange(max(1, longest), device=self._device)
            mask = positions < sizes[where].unsqueeze(1)
            batch = ids[(starts[where].unsqueeze(1) + positions).clamp_(max=max(0, len(flat) - 1))]
            if shortest < longest:
                batch = batch.masked_fill(~mask, padding)
            # Attention is faster without a mask, and a batch without padding needs none.
            hidden = self._model(input_ids=batch, attention_mask=mask.long() if shortest < longest else None)
            out[where] = self._pooled(hidden.last_hidden_state.float(), mask)
        return out

    def _to_device(self, values: NDArray) -> Any:
        import torch

        tensor = torch.from_numpy(values)
        if self._device.type != "cuda":
            return tensor.to(self._device)
        return tensor.pin_memory().to(self._device, non_blocking=True)

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


def _one_ahead(
    pool: ThreadPoolExecutor, prepare: Callable[[Sequence[str]], _Tokens], windows: Sequence[Sequence[str]]
) -> Iterator[_Tokens]:
    """Yield the tokens of each window, and prepare the next window on a thread in the meantime."""
    if len(windows) < 2:
        yield from map(prepare, windows)
        return
    following = pool.submit(prepare, windows[0])
    for window in windows[1:]:
        prepared = following.result()
        following = pool.submit(prepare, window)
        yield prepared
    yield following.result()


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


def _averaged(vectors: Any, owners: list[int], lengths: NDArray, num_texts: int) -> Any:
    """Return the mean of the pieces of each text, weighted by their tokens."""
    import torch

    rows = torch.tensor(owners, device=vectors.device)
    weights = torch.from_numpy(lengths).to(vectors.device, torch.float32).unsqueeze(1)
    total = torch.zeros((num_texts, vectors.shape[1]), device=vectors.device).index_add_(0, rows, vectors * weights)
    return total / torch.zeros((num_texts, 1), device=vectors.device).index_add_(0, rows, weights)


def max_input_tokens(config: Any, tokenizer: Any, wanted: int | None) -> int:
    """Return the smaller of the wanted length (by default the tokenizer's) and the positions of the model."""
    settings = config.to_dict()
    positions = settings.get("max_position_embeddings")
    if positions and settings.get("model_type") in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        positions -= config.pad_token_id + 1  # their positions start after that of the padding
    return int(min(wanted or tokenizer.model_max_length, positions or NO_LIMIT, NO_LIMIT))


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
