"""Texts as token ids in one flat array, from which batches are gathered on the device: padded, or packed end to end.

The Rust tokenizer works on all cores without the GIL. Python touches each text once, to take its ids.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from penstock.ai.local.word_tokens import WordTokenizer, splits_at_spaces
from penstock.errors import RequestRefusedError

NDArray = np.ndarray[Any, Any]
Truncation = Literal["longest_first", "only_first"]
NO_LIMIT = 1_000_000
GPU_MULTIPLE = 8
"""The padded length on a GPU is a multiple of this, as its matrix units and attention kernels prefer."""

_PLAIN_MASK_TYPES = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The ids of all pieces of text. If texts were split, ``owners`` says which text each piece belongs to; otherwise
    it is empty.
    """

    ids: NDArray
    lengths: NDArray
    types: NDArray | None = None  # the segment of each token, for models that tell the texts of a pair apart
    owners: Sequence[int] = ()

    def on(self, device: Any, padding: int, max_length: int, *, takes_plain_mask: bool) -> DeviceTokens:
        """Copy the tokens to a device. A plain mask has four dimensions, as attention takes it."""
        return DeviceTokens(self, device, padding, max_length, takes_plain_mask)


class DeviceTokens:
    """Tokens on a device, and the batches of them."""

    def __init__(self, tokens: Tokens, device: Any, padding: int, max_length: int, takes_plain_mask: bool) -> None:
        self._device = device
        self._takes_plain_mask = takes_plain_mask
        self._padding = padding
        self._max_length = max_length
        self._lengths = tokens.lengths
        self._ids = to_device(tokens.ids, device)
        self._types = None if tokens.types is None else to_device(tokens.types, device)
        self._starts = to_device(np.cumsum(tokens.lengths) - tokens.lengths, device)
        self._sizes = to_device(tokens.lengths, device)

    def packed(self, rows: NDArray) -> PackedTokens:
        import torch

        lengths = self._lengths[rows]
        longest, total = int(lengths.max()), int(lengths.sum())
        where = to_device(rows, self._device)
        sizes = self._sizes[where]
        stops = sizes.cumsum(0)
        starts = stops - sizes
        line = torch.repeat_interleave(sizes, output_size=total)
        positions = torch.arange(total, device=self._device) - starts[line]
        steps = torch.arange(longest, device=self._device)
        sources = self._starts[where][line] + positions
        return PackedTokens(
            self._ids[sources].long(),
            None if self._types is None else self._types[sources].long(),
            positions,
            torch.nn.functional.pad(stops, (1, 0)).int(),
            longest,
            (starts[:, None] + steps).clamp_(max=total - 1),
            steps < sizes[:, None],
        )

    def batch(self, rows: NDArray) -> tuple[dict[str, Any], Any]:
        """Return the arguments of a model for some rows, and the mask: True for tokens, False for padding.

        A batch without padding has no ``attention_mask``, since attention is faster without one.
        """
        import torch

        lengths = self._lengths[rows]
        longest, shortest = max(1, int(lengths.max())), int(lengths.min())
        if self._device.type == "cuda" and shortest < longest:
            longest = max(longest, min(-(-longest // GPU_MULTIPLE) * GPU_MULTIPLE, self._max_length))
        where = to_device(rows, self._device)
        positions = torch.arange(longest, device=self._device)
        mask = positions < self._sizes[where].unsqueeze(1)
        places = (self._starts[where].unsqueeze(1) + positions).clamp_(max=max(0, len(self._ids) - 1))
        inputs = {"input_ids": self._ids[places].long()}
        if self._types is not None:
            inputs["token_type_ids"] = self._types[places].long()
        if shortest < longest:
            inputs["input_ids"].masked_fill_(~mask, self._padding)
            if self._types is not None:
                inputs["token_type_ids"].masked_fill_(~mask, 0)
            inputs["attention_mask"] = mask[:, None, None, :] if self._takes_plain_mask else mask.long()
        return inputs, mask


@dataclass(frozen=True, slots=True)
class PackedTokens:
    """A batch of texts end to end, as tensors on the device.

    ``stops`` has 0 and the end of each text. ``places`` finds the tokens of a padded batch, where ``mask`` is True.
    ``types`` has the segment of each token, for models that tell the texts of a pair apart.
    """

    ids: Any
    types: Any | None
    positions: Any
    stops: Any
    longest: int
    places: Any
    mask: Any
    keys: SharedKeys | None = None


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """The tokens that each text of a batch attends to, if some texts continue the beginning of another one. ``places``
    are their positions in the row of tokens, one text after another; ``stops`` and ``longest`` are as in
    `PackedTokens`.
    """

    places: Any
    stops: Any
    longest: int


class BatchTokenizer:
    """The tokenizer of a model, for texts or pairs of texts. ``truncation`` tells which text of a pair is cut."""

    def __init__(
        self, tokenizer: Any, max_length: int, *, has_pairs: bool = False, truncation: Truncation = "longest_first"
    ) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._has_types = has_pairs and "token_type_ids" in tokenizer.model_input_names
        self._truncation = truncation
        self._backend = tokenizer.backend_tokenizer if tokenizer.is_fast else None
        if self._backend is not None:
            self._backend.no_padding()
            self._backend.enable_truncation(max_length, strategy=self._truncation)
        self._words: WordTokenizer | None = None
        if self._backend is not None and not has_pairs and splits_at_spaces(tokenizer):
            self._words = WordTokenizer(self._backend, max_length)

    def tokens(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> Tokens:
        """Return the tokens of texts or of text pairs, truncated to the model's length."""
        if self._backend is None:
            return self._slow_tokens(texts)
        if self._words is not None:
            return Tokens(*self._words.tokens(cast(Sequence[str], texts)))
        encodings = self._backend.encode_batch_fast(list(texts))
        types = flat([each.type_ids for each in encodings])[0] if self._has_types else None
        return Tokens(*flat([each.ids for each in encodings]), types)

    def pieces(self, texts: Sequence[str]) -> Tokens:
        """Return the tokens of all pieces of texts, each as long as the model takes."""
        if self._backend is None:
            raise RequestRefusedError("long_input='average' needs a fast tokenizer, which this model does not have.")
        ids: list[list[int]] = []
        owners: list[int] = []
        for row, encoding in enumerate(self._backend.encode_batch_fast(list(texts))):
            found = [piece.ids for piece in (encoding, *encoding.overflowing)]
            ids += found
            owners += [row] * len(found)
        return Tokens(*flat(ids), owners=owners)

    def _slow_tokens(self, texts: Sequence[Any]) -> Tokens:
        columns = zip(*texts, strict=True) if self._has_types else (texts,)
        found = self._tokenizer(
            *map(list, columns), truncation=self._truncation, max_length=self._max_length, return_attention_mask=False
        )
        types = flat(found["token_type_ids"])[0] if self._has_types and "token_type_ids" in found else None
        return Tokens(*flat(found["input_ids"]), types)


def takes_plain_mask(config: Any) -> bool:
    """Return whether a model passes a mask with four dimensions to its attention unchanged.

    To make such a mask from one with two dimensions, transformers reads its content, and so waits for the device.
    """
    return config.model_type in _PLAIN_MASK_TYPES and config._attn_implementation == "sdpa"


def flat(lists: Sequence[Sequence[int]]) -> tuple[NDArray, NDArray]:
    """Return the numbers of lists in one array, and the lengths of the lists.

    >>> flat([[7, 8], [9]])
    (array([7, 8, 9], dtype=int32), array([2, 1]))
    """
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    return np.fromiter(itertools.chain.from_iterable(lists), np.int32, int(lengths.sum())), lengths


def to_device(values: NDArray, device: Any) -> Any:
    """Copy an array to a device; to a GPU from pinned memory, without waiting."""
    import torch

    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def max_input_tokens(config: Mapping[str, Any], tokenizer: Any, wanted: int | None) -> int:
    """Return the smaller of the wanted length (by default the tokenizer's) and the positions of the model."""
    positions = config.get("max_position_embeddings")
    positions = positions - first_position(config) if positions else NO_LIMIT
    return int(min(wanted or tokenizer.model_max_length, positions, NO_LIMIT))


def first_position(config: Mapping[str, Any]) -> int:
    """Return the position of a text's first token. In the RoBERTa family, positions start after the position of
    padding.
    """
    is_roberta = config.get("model_type") in ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet")
    return int(config["pad_token_id"]) + 1 if is_roberta else 0
