"""The keys and values of sequences in slots. Imports torch and transformers, so it is imported when a model runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

MIN_ROOM = 64  # columns that a cache grows by at least


class SlotLayer(DynamicLayer):  # type: ignore[misc]
    """One layer. Its tensors have room for more columns, so a step copies nothing."""

    def __init__(self, sample: Any) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = sample.keys.dtype, sample.keys.device, True
        self.buffers = tuple(
            each.new_empty((0, each.shape[1], 0, each.shape[3])) for each in (sample.keys, sample.values)
        )
        self.first = self.end = 0

    def move(self, kept: Sequence[int], num_slots: int, end: int, capacity: int) -> None:
        """Move the columns in use of the kept slots to larger tensors, where they end at column ``end``."""
        moved = []
        for buffer in self.buffers:
            larger = buffer.new_zeros((num_slots, buffer.shape[1], capacity, buffer.shape[3]))
            larger[: len(kept), :, end - (self.end - self.first) : end] = buffer[kept, :, self.first : self.end]
            moved.append(larger)
        self.buffers = tuple(moved)

    def show(self, first: int, end: int) -> None:
        """Set the columns that the model sees."""
        self.first, self.end = first, end
        self.keys, self.values = (buffer[:, :, first:end] for buffer in self.buffers)

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, self.end : self.end + 1] = states
        self.show(self.first, self.end + 1)
        return self.keys, self.values


class SlotCache:
    """The caches of a number of slots. Some may be free.

    All slots write into the same column. ``starts`` has the first column of each sequence, None for a free slot.
    """

    def __init__(self) -> None:
        self.cache = DynamicCache()
        self.starts: list[int | None] = []
        self._capacity = self._end = 0

    @property
    def _first(self) -> int:
        return min((start for start in self.starts if start is not None), default=self._end)

    def add(self, lengths: Sequence[int], computed: Any) -> list[int]:
        """Add sequences whose keys and values are computed, padded on the left. Return their slots."""
        if not self._layers:
            self.cache.layers = [SlotLayer(layer) for layer in computed.layers]
        width = computed.layers[0].keys.shape[-2]
        num_missing = max(0, len(lengths) - self.starts.count(None))
        if num_missing or width > self._end:
            self._move(range(len(self.starts)), len(self.starts) + num_missing, width)
        slots = [slot for slot, start in enumerate(self.starts) if start is None][: len(lengths)]
        for mine, layer in zip(self._layers, computed.layers, strict=True):
            for buffer, states in zip(mine.buffers, (layer.keys, layer.values), strict=True):
                buffer[slots, :, self._end - width : self._end] = states
        for slot, length in zip(slots, lengths, strict=True):
            self.starts[slot] = self._end - length
        return slots

    def keep(self, slots: Sequence[int]) -> None:
        """Drop all slots but these, which are then the first ones."""
        self._move(slots, len(slots), 0)

    def begin_step(self) -> tuple[torch.Tensor, int]:
        """Prepare for one more column. Return the first column of each slot, and the number of columns it makes."""
        if self._end == self._capacity:
            self._move(range(len(self.starts)), len(self.starts), 0)
        first, end = self._first, self._end
        for layer in self._layers:
            layer.show(first, end)
        self._end += 1
        device = self._layers[0].buffers[0].device
        return torch.tensor([(end if s is None else s) - first for s in self.starts], device=device), end - first + 1

    @property
    def _layers(self) -> list[Any]:
        layers: list[Any] = self.cache.layers
        return layers

    def _move(self, kept: Sequence[int], num_slots: int, width: int) -> None:
        """Move slots to tensors with room for more columns; at least ``width`` columns lie before the next one."""
        first, kept = self._first, list(kept)
        end = max(self._end - first, width)
        shift, self._capacity = end - self._end, end + max(MIN_ROOM, end // 4)
        for layer in self._layers:
            layer.first, layer.end = first, self._end
            layer.move(kept, num_slots, end, self._capacity)
        starts = [self.starts[slot] for slot in kept]
        self.starts = [None if s is None else s + shift for s in starts] + [None] * (num_slots - len(kept))
        self._end = end
