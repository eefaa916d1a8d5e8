"""The 32-bit Murmur3 hash of all rows at once, some thousand at a time: they fit the cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.expr.arrays import Numbers, empty_numbers
from penstock.expr.word_bits import fold, rotate

_BLOCK = 16_384  # rows


def murmur3_numbers(values: Numbers, seeds: Numbers) -> Numbers:
    """Return the hashes of the bytes of numbers, whose size is a multiple of 32 bits."""
    width = values.dtype.itemsize
    words = np.ascontiguousarray(values).view("<u4").reshape(len(values), width // 4)
    state, key = (empty_numbers(len(values), np.uint32) for _ in range(2))
    state[:] = seeds
    for column in words.T:
        key[:] = column
        _absorb(state, key)
        _spread(state)
    return _finished(state, np.uint32(width))


def murmur3_bytes(flat: Numbers, starts: Numbers, lengths: Numbers, seeds: Numbers) -> Numbers:
    """Return the hashes of ranges of bytes, a word of each row at a time."""

    def block(rows: slice) -> Numbers:
        first, last = starts[rows], starts[rows] + lengths[rows]
        padded = np.concatenate([flat[first[0] : last[-1]], np.zeros(4, np.uint8)])
        # The word that starts at each byte.
        words = np.ascontiguousarray(np.ndarray(len(padded) - 3, "<u4", padded, strides=(1,)))
        order = np.argsort(-lengths[rows])  # the longest rows first, so that those with bytes left come first
        places, sizes, state = (first - first[0])[order], lengths[rows][order], seeds[rows][order]
        for start in range(0, int(sizes[0]), 4):
            num_left, num_whole = np.searchsorted(-sizes, [-start, -start - 3])
            key = words.take(places[:num_left] + start)
            num_bits = 8 * (sizes[num_whole:num_left] - start).astype(np.uint32)
            key[num_whole:] &= (np.uint32(1) << num_bits) - np.uint32(1)
            _absorb(state[:num_left], key)
            _spread(state[:num_whole])
        hashes = np.empty_like(state)
        hashes[order] = _finished(state, sizes.astype(np.uint32))
        return hashes

    return _by_blocks(len(starts), block)


def _by_blocks(num_rows: int, block: Callable[[slice], Numbers]) -> Numbers:
    blocks = (slice(row, row + _BLOCK) for row in range(0, num_rows, _BLOCK))
    return np.concatenate([np.zeros(0, np.uint32), *map(block, blocks)])


def _absorb(state: Numbers, key: Numbers) -> None:
    """Mix a word of each row into its state, in place."""
    key *= np.uint32(0xCC9E2D51)
    rotate(key, 15)
    key *= np.uint32(0x1B873593)
    state ^= key


def _spread(state: Numbers) -> None:
    """Complete a whole word, in place."""
    rotate(state, 13)
    state *= np.uint32(5)
    state += np.uint32(0xE6546B64)


def _finished(state: Numbers, lengths: Numbers | np.uint32) -> Numbers:
    state ^= lengths
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        fold(state, shift)
        state *= np.uint32(factor)
    return fold(state, 16)
