"""The xxHashes of numbers of 64 bits, all rows at once; the package ``xxhash`` hashes one value at a time."""

from __future__ import annotations

import numpy as np

from penstock.expr.arrays import Numbers

_U64, _U32 = np.uint64, np.uint32
_A, _B, _C, _D, _E = (
    _U64(prime)
    for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
_P, _Q, _R, _S, _T = (_U32(prime) for prime in (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1))


def xxh64(words: Numbers, seeds: Numbers) -> Numbers:
    """Return the XXH64 of the eight bytes of each word."""
    state = (seeds + _E + _U64(8)) ^ (_rotated(words * _B, 31) * _A)
    state = _rotated(state, 27) * _A + _D
    state = (state ^ (state >> _U64(33))) * _B
    state = (state ^ (state >> _U64(29))) * _C
    return np.asarray(state ^ (state >> _U64(32)))


def xxh3_64(words: Numbers, seeds: Numbers) -> Numbers:
    """Return the XXH3 of 64 bits of the eight bytes of each word."""
    low = seeds.astype(_U32).byteswap().astype(_U64)
    keyed = _rotated(words, 32) ^ (_U64(0xC73AB174C5ECD5A2) - (seeds ^ (low << _U64(32))))
    state = keyed ^ _rotated(keyed, 49) ^ _rotated(keyed, 24)
    state *= _U64(0x9FB21C651E98DF25)
    state ^= (state >> _U64(35)) + _U64(8)
    state *= _U64(0x9FB21C651E98DF25)
    return np.asarray(state ^ (state >> _U64(28)))


def xxh32(words: Numbers, seeds: Numbers) -> Numbers:
    """Return the XXH32 of the eight bytes of each word, as 64 bits."""
    state = seeds.astype(_U32) + _T + _U32(8)
    for half in (words.astype(_U32), (words >> _U64(32)).astype(_U32)):
        state += half * _R
        state = ((state << _U32(17)) | (state >> _U32(15))) * _S
    state = (state ^ (state >> _U32(15))) * _Q
    state = (state ^ (state >> _U32(13))) * _R
    return (state ^ (state >> _U32(16))).astype(_U64)


def _rotated(words: Numbers, num_bits: int) -> Numbers:
    return np.asarray((words << _U64(num_bits)) | (words >> _U64(64 - num_bits)))
