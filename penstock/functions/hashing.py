"""Hashes that are the same in every process, on every machine, in every version and for every batch size.

Text and bytes are hashed by XXH3, numbers by the finalizer of SplitMix64 on all rows at once. The hashes serve
bucketing, sampling and deduplication, not cryptography.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidArgumentError, check_choice
from penstock.expr.arrays import Numbers, elements_of, on_arrays, storage_of, validity
from penstock.expr.casting import cast
from penstock.expr.column import Expression, call
from penstock.expr.kinds import ANY, STRING, TEXT, UINT32, UINT64
from penstock.expr.public_functions import method
from penstock.expr.registry import kernel
from penstock.expr.signatures import strict, takes
from penstock.types import DataType
from penstock.types.plain import arrow_array, numpy_values

__all__ = ["hash", "minhash"]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
NULL_HASH = np.uint64(0xD6E8FEB86659FD93)

HASH_FUNCTIONS = ("xxhash", "xxhash32", "xxhash64", "xxhash3_64", "murmurhash3", "sha1")


def mix(bits: Numbers) -> Numbers:
    """Mix 64 bits so that every bit depends on every bit of the input."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Numbers = bits ^ (bits >> np.uint64(31))
    return mixed


# --- hash -------------------------------------------------------------------------------------------------------------


@method
def hash(*exprs: Expression, seed: int | None = None) -> Expression:
    """Return a uint64 hash of one or several values; null has a hash too. Equal integers of different types hash alike.

    >>> df = ps.from_pydict({"a": [1, 1, 2]}).select(hash(ps.col("a")))
    >>> first, same, other = df.to_pydict()["a"]
    >>> first == same, first == other
    (True, False)
    """
    if not exprs:
        raise InvalidArgumentError("hash takes one or more expressions")
    return call("hash", *exprs, seed=int(seed or 0))


@kernel("hash", takes(rest=ANY, returns=UINT64))
@on_arrays
def _hash(*arrays: pa.Array, seed: int) -> pa.Array:
    start = np.uint64(seed * int(GOLDEN) & 0xFFFFFFFFFFFFFFFF)
    return arrow_array(_chain([hash_array(array) for array in arrays], len(arrays[0]), start))


def _chain(parts: list[Numbers], num_rows: int, start: np.uint64) -> Numbers:
    result = np.full(num_rows, start, np.uint64)
    for part in parts:
        result = mix((result + GOLDEN) ^ part)
    return result


def hash_array(array: pa.Array) -> Numbers:
    """Return a 64-bit hash of every value of an array; all nulls have the same."""
    hashes = _hash_valid(array)
    return np.where(validity(array), hashes, NULL_HASH) if array.null_count else hashes


def _hash_valid(array: pa.Array) -> Numbers:
    dtype = DataType(array.type)
    array = storage_of(array)
    plain = DataType(array.type) if not dtype.is_python() else DataType.binary()
    if plain.is_null():
        return np.full(len(array), NULL_HASH)
    if plain.is_float():
        numbers = array.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 becomes 0.0
        return mix(np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64))
    if plain.is_boolean() or plain.is_integer() or plain.is_temporal():
        return mix(_as_bits(array, plain) + GOLDEN)
    if plain.is_struct():
        return _chain([hash_array(child) for child in array.flatten()], len(array), np.uint64(1))
    if plain.is_list() or plain.is_map():
        return _hash_lists(array)
    if plain.is_string() or plain.is_binary():
        return hash_bytes(array.cast(pa.binary()))
    return hash_bytes(cast(array, dtype=STRING, is_strict=True))


def _as_bits(array: pa.Array, dtype: DataType) -> Numbers:
    if dtype.is_temporal() and dtype.arrow.bit_width == 32:
        array = array.cast(pa.int32())
    if dtype == UINT64:
        bits: Numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
        return bits
    return array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)  # type: ignore[no-any-return]


def _hash_lists(lists: pa.Array) -> Numbers:
    """Hash the hashes of the elements."""
    elements, lengths = elements_of(lists)
    offsets = pa.py_buffer(8 * np.append(0, np.cumsum(lengths)))
    hashes = pa.py_buffer(hash_array(elements).astype("<u8"))
    return hash_bytes(pa.Array.from_buffers(pa.large_binary(), len(lists), [None, offsets, hashes]))


def hash_bytes(array: pa.Array) -> Numbers:
    """Return the XXH3 of every binary; a null has the hash of zero bytes."""
    from xxhash import xxh3_64_intdigest

    return np.fromiter(map(xxh3_64_intdigest, array.fill_null(b"").to_pylist()), np.uint64, len(array))


# --- minhash ----------------------------------------------------------------------------------------------------------


@method
def minhash(
    text: Expression, *, num_hashes: int, ngram_size: int, seed: int = 1, hash_function: str = "xxhash"
) -> Expression:
    """Return ``num_hashes`` numbers that two texts share in proportion to the word n-grams they share.

    Blanks separate words; a text with fewer than ``ngram_size`` words is one n-gram. Use ``normalize`` first.
    Words are hashed by XXH3; any other ``hash_function`` of Daft gives the same numbers.

    >>> df = ps.from_pydict({"t": ["a b c d", "a b c e"]}).select(minhash(ps.col("t"), num_hashes=64, ngram_size=2))
    >>> one, two = df.to_pydict()["t"]
    >>> 0 < sum(x == y for x, y in zip(one, two)) < 64
    True
    """
    check_choice("minhash: hash_function", hash_function, HASH_FUNCTIONS)
    for name, number in (("num_hashes", num_hashes), ("ngram_size", ngram_size)):
        if number < 1:
            raise InvalidArgumentError(f"minhash: {name} must be at least 1, got {number!r}")
    return call("minhash", text, num_hashes=num_hashes, ngram_size=ngram_size, seed=seed)


def _minhash_type(dtype: DataType, *, num_hashes: int, **_: Any) -> DataType:
    return DataType.fixed_size_list(UINT32, num_hashes)


@strict("minhash", takes(TEXT, returns=_minhash_type))
@on_arrays
def _minhash(texts: pa.Array, *, num_hashes: int, ngram_size: int, seed: int) -> pa.Array:
    words, lengths = elements_of(pc.split_pattern(texts.fill_null(""), pattern=" "))
    encoded = words.dictionary_encode()
    hashes = hash_bytes(encoded.dictionary.cast(pa.binary()))[numpy_values(encoded.indices)]
    ngrams, num_ngrams = _ngrams(hashes, lengths, ngram_size)
    starts = np.cumsum(num_ngrams) - num_ngrams
    # Multiply-shift hashing: the high 32 bits of an odd multiple plus an offset.
    stream = mix(np.arange(1, 2 * num_hashes + 1, dtype=np.uint64) * GOLDEN + np.uint64(seed & 0xFFFFFFFFFFFFFFFF))
    signatures = np.empty((len(texts), num_hashes), np.uint32)
    for position in range(num_hashes if len(texts) else 0):
        multiplier, offset = stream[2 * position] | np.uint64(1), stream[2 * position + 1]
        permuted = ((ngrams * multiplier + offset) >> np.uint64(32)).astype(np.uint32)
        signatures[:, position] = np.minimum.reduceat(permuted, starts)
    mask = texts.is_null() if texts.null_count else None
    return pa.FixedSizeListArray.from_arrays(pa.array(signatures.reshape(-1)), num_hashes, mask=mask)


def _ngrams(words: Numbers, lengths: Numbers, size: int) -> tuple[Numbers, Numbers]:
    """Return the hash of every n-gram, and for each row the number of its n-grams, at least one."""
    num_ngrams = np.maximum(lengths - size + 1, 1)
    firsts = np.repeat(np.cumsum(lengths) - lengths, num_ngrams)
    firsts = firsts + np.arange(len(firsts)) - np.repeat(np.cumsum(num_ngrams) - num_ngrams, num_ngrams)
    ends = np.repeat(np.cumsum(lengths), num_ngrams)
    result = np.zeros(len(firsts), np.uint64)
    for step in range(min(size, int(lengths.max(initial=0)))):
        is_within = firsts + step < ends
        word = words[np.where(is_within, firsts + step, 0)]
        result = np.where(is_within, mix((result + GOLDEN) ^ word), result)
    return result, num_ngrams
