"""Rows of several prompts that begin with the same tokens, which a packed model computes once.

The first text of a row is its first prompt. The others are what is left of the other prompts; their tokens attend to
the beginning of the first text too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.ai.local.tokens import DeviceTokens, PackedTokens, SharedKeys, Tokens, flat, to_device

NDArray = np.ndarray[Any, Any]


class SharedPrompts:
    """Rows with the same number of prompts. ``shared`` is the number of tokens that the prompts of each row share."""

    def __init__(self, rows: Sequence[Sequence[Sequence[int]]], shared: Sequence[int]) -> None:
        self._tokens = Tokens(*flat([text for row in rows for text in row]))
        self._sizes = self._tokens.lengths.reshape(len(rows), -1)
        self._shared = np.asarray(shared, np.int64)

    @property
    def lengths(self) -> NDArray:
        """The tokens that the model computes for each row."""
        return np.asarray(self._sizes.sum(1))

    def on(self, device: Any) -> DevicePrompts:
        texts = self._tokens.on(device, 0, 0, takes_plain_mask=False)
        is_first = np.arange(self._sizes.shape[1]) == 0
        return DevicePrompts(texts, self._sizes, np.where(is_first, 0, self._shared[:, None]), device)


class DevicePrompts:
    """Prompts on a device, and the batches of them. ``before`` has the tokens that each text lacks of its prompt."""

    def __init__(self, texts: DeviceTokens, sizes: NDArray, before: NDArray, device: Any) -> None:
        self._texts, self._sizes, self._before, self._device = texts, sizes, before, device

    def packed(self, rows: NDArray) -> PackedTokens:
        """Return the texts of some rows: the first text of each row, then the second text of each row, and so on."""
        import torch

        num_texts = self._sizes.shape[1]
        batch = self._texts.packed((rows * num_texts + np.arange(num_texts)[:, None]).ravel())
        if not self._before[rows].any():
            return batch
        sizes, before = (part[rows].T.ravel() for part in (self._sizes, self._before))
        missing, starts = to_device(before, self._device), batch.stops[:-1]
        key_sizes = batch.stops.diff() + missing
        num_keys, num_tokens = int((sizes + before).sum()), int(sizes.sum())
        key_stops = torch.nn.functional.pad(key_sizes.cumsum(0), (1, 0))
        text = torch.repeat_interleave(key_sizes, output_size=num_keys)
        offset = torch.arange(num_keys, device=self._device) - key_stops[text]
        is_shared = offset < missing[text]
        places = torch.where(is_shared, starts[text % len(rows)] + offset, starts[text] + offset - missing[text])
        of_token = torch.repeat_interleave(batch.stops.diff(), output_size=num_tokens)
        return replace(
            batch,
            positions=batch.positions + missing[of_token],
            keys=SharedKeys(places, key_stops.int(), int((sizes + before).max())),
        )
