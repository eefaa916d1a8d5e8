"""Bits of all words of an array at once, in place, for hashes. Memory for a shifted copy is used again."""

from __future__ import annotations

import numpy as np

from penstock.expr.arrays import Numbers, empty_numbers


def rotate(words: Numbers, num_bits: int) -> None:
    """Rotate each word to the left."""
    low = shifted(words, 8 * words.itemsize - num_bits)
    words <<= num_bits
    words |= low


def fold(words: Numbers, num_bits: int) -> Numbers:
    """Mix the high bits of each word into its low ones; return the words."""
    words ^= shifted(words, num_bits)
    return words


def shifted(words: Numbers, num_bits: int) -> Numbers:
    """Return a copy of the words, shifted to the right."""
    return np.right_shift(words, num_bits, out=empty_numbers(len(words), words.dtype))
