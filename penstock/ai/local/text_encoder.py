"""Texts to vectors, as fast as the machine allows: sorted by length, batches cut by tokens, nothing waited for.

The token ids of some thousand texts lie in one flat tensor on the device. A batch is gathered from it there, and its
vectors are put into the result there, which is fetched as a whole. Meanwhile a thread tokenises the next thousands.
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
from penstock.ai.local.sentence_modules import Dense, SentenceModules
from penstock.errors import RequestRefusedError

NDArray = np.ndarray[Any, Any]
LongInput = Literal["truncate", "average"]

CPU_TOKENS, GPU_TOKENS = 1_024, 131_072
"""Tokens of a batch. More than that makes a CPU slower, as what passes between layers leaves its cache."""
TEXTS_AT_ONCE = 8_192
"""Texts that are tokenised before the first of them is computed."""

NO_LIMIT = 1_000_000
_ENCODERS_OF_PAIRS = ("t5", "mt5", "umt5")  # AutoModel would want texts for their decoder


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The ids of some texts, one piece after the other; ``owners`` has the text of each piece if one has several."""

    flat: NDArray
    lengths: NDArray
    owners: list[int]
    num_texts: int


class TextEncoder:
    """A model in memory. ``width`` cuts the vectors; ``is_normalized`` gives them length one at the end."""

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
        is_half = checkpoint.config(modules.path).get("model_type") in _ENCODERS_OF_PAIRS
        self._model = checkpoint.load("AutoModelForTextEncoding" if is_half else "AutoModel", modules.path)
        self._device = checkpoint.torch_device()
        self._max_tokens = CPU_TOKENS if self._device.type == "cpu" else GPU_TOKENS
        self._tokenizer = checkpoint.load_beside("AutoTokenizer", modules.path)
        self._max_length = longest_input(self._model.config, self._tokenizer, max_length or modules.max_length)
        self._backend = self._tokenizer.backend_tokenizer if self._tokenizer.is_fast else None
        if self._backend is not None:
            self._backend.no_padding()
            self._backend.enable_truncation(self._max_length)
        self._num_prompt_tokens = 0 if modules.pools_prompt or not prompt else len(self._ids([prompt])[0]) - 1
        self._steps = [_load_dense(checkpoint, step, self._device) for step in modules.steps if isinstance(step, Dense)]

    def encode(self, texts: Sequence[str]) -> NDArray:
        """Return an array of shape ``(len(texts), width)`` of float32."""
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
        """Return token ids, and of which text they are: a text that is too long is cut, or gives several pieces."""
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
        """Return the vectors of pieces whose ids lie one after the other in ``flat``."""
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
            # Where nothing is padded, the model is spared the mask; attention without one is faster.
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
        """Return a vector for each row of the hidden states of its tokens."""
        import torch

        if self._num_prompt_tokens:
            mask = mask.clone()
            mask[:, : self._num_prompt_tokens] = False
        vectors = torch.cat([pooled(mode, hidden, mask) for mode in self._modules.pooling], dim=1)
        dense = iter(self._steps)
        for step in self._modules.steps:
            if isinstance(step, Dense):
                vectors = next(dense)(vectors)
            elif step is not self._modules.steps[-1]:  # the last normalisation comes after the cut
                vectors = torch.nn.functional.normalize(vectors, dim=1)
        return vectors


def _one_ahead(
    pool: ThreadPoolExecutor, prepare: Callable[[Sequence[str]], _Tokens], windows: Sequence[Sequence[str]]
) -> Iterator[_Tokens]:
    """Yield what is prepared of each window, preparing the next one on a thread in the meantime."""
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
    """Return one vector for each text of its tokens' vectors; ``mask`` is True where there is a token."""
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
            raise RequestRefusedError(f"Pooling {mode!r} is not known.")


def _averaged(vectors: Any, owners: list[int], lengths: NDArray, num_texts: int) -> Any:
    """Return for each text the mean of its pieces' vectors, each counted by its tokens."""
    import torch

    rows = torch.tensor(owners, device=vectors.device)
    weights = torch.from_numpy(lengths).to(vectors.device, torch.float32).unsqueeze(1)
    total = torch.zeros((num_texts, vectors.shape[1]), device=vectors.device).index_add_(0, rows, vectors * weights)
    return total / torch.zeros((num_texts, 1), device=vectors.device).index_add_(0, rows, weights)


def longest_input(config: Any, tokenizer: Any, wanted: int | None) -> int:
    """Return how many tokens a text may have: what is wanted, else the tokenizer's limit, as far as positions go."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions and getattr(config, "model_type", "") in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        positions -= config.pad_token_id + 1  # their positions begin after the padding's
    return int(min(wanted or tokenizer.model_max_length, positions or NO_LIMIT, NO_LIMIT))


def _load_dense(checkpoint: Checkpoint, spec: Dense, device: Any) -> Any:
    import torch

    folder = checkpoint.folder() / spec.path
    if (folder / "model.safetensors").is_file():
        from safetensors.torch import load_file

        weights = load_file(folder / "model.safetensors")
    else:
        weights = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    activation = getattr(torch.nn, spec.activation, None)
    if not (isinstance(activation, type) and issubclass(activation, torch.nn.Module)):
        raise RequestRefusedError(
            f"Model {checkpoint.name!r} has the activation {spec.activation!r}, unknown to torch.nn."
        )
    weights = {name: weight.float().to(device) for name, weight in weights.items()}
    activate = activation()

    def dense(vectors: Any) -> Any:
        out = activate(torch.nn.functional.linear(vectors, weights["linear.weight"], weights.get("linear.bias")))
        if not spec.is_residual:
            return out
        residual = weights.get("residual.weight")
        return out + (vectors if residual is None else torch.nn.functional.linear(vectors, residual))

    return dense
