"""The xxHashes of numbers of 64 bits, all rows at once; the package ``xxhash`` hashes one value at a time."""

from __future__ import annotations

import numpy as np

from penstock.expr.arrays import Numbers, empty_numbers
from penstock.expr.word_bits import fold, rotate, shifted

_U64, _U32 = np.uint64, np.uint32
_A, _B, _C, _D, _E = (
    _U64(prime)
    for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
_P, _Q, _R, _S, _T = (_U32(prime) for prime in (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1))


def xxh64(words: Numbers, seeds: Numbers) -> Numbers:
    """Return the XXH64 of the eight bytes of each word."""
    state = np.multiply(words, _B, out=empty_numbers(len(words), _U64))
    rotate(state, 31)
    state *= _A
    state ^= seeds + _E + _U64(8)
    rotate(state, 27)
    state *= _A
    state += _D
    for num_bits, factor in ((33, _B), (29, _C)):
        fold(state, num_bits)
        state *= factor
    return fold(state, 32)


def xxh3_64(words: Numbers, seeds: Numbers) -> Numbers:
    """Return the XXH3 of 64 bits of the eight bytes of each word."""
    low = seeds.astype(_U32).byteswap().astype(_U64)
    secret = _U64(0xC73AB174C5ECD5A2) - (seeds ^ (low << _U64(32)))
    keyed = shifted(words, 32)
    state = np.left_shift(words, 32, out=empty_numbers(len(words), _U64))
    keyed |= state
    keyed ^= secret
    state[:] = keyed
    for num_bits in (49, 39):  # by 49 and by 24
        rotate(keyed, num_bits)
        state ^= keyed
    state *= _U64(0x9FB21C651E98DF25)
    high = shifted(state, 35)
    high += _U64(8)
    state ^= high
    state *= _U64(0x9FB21C651E98DF25)
    return fold(state, 28)


def xxh32(words: Numbers, seeds: Numbers) -> Numbers:
    """Return the XXH32 of the eight bytes of each word."""
    state = np.add(seeds.astype(_U32), _T + _U32(8), out=empty_numbers(len(words), _U32))
    for half in np.ascontiguousarray(words).view("<u4").reshape(-1, 2).T:
        state += np.multiply(half, _R, out=empty_numbers(len(words), _U32))
        rotate(state, 17)
        state *= _S
    for num_bits, factor in ((15, _Q), (13, _R)):
        fold(state, num_bits)
        state *= factor
    return fold(state, 16)
