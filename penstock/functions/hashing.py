"""Hashes that are the same in every process, on every machine and for every batch size.

NumPy hashes all rows at once to 64 bits with the finalizer of SplitMix64, and text in words of eight bytes. The hashes
serve bucketing, sampling and deduplication, not cryptography.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidArgumentError, load_extra
from penstock.expr import xxhash_numbers
from penstock.expr.arrays import Numbers, elements_of, filled, on_arrays, storage_of, text_bytes, validity
from penstock.expr.casting import cast
from penstock.expr.column import Expression, call
from penstock.expr.kinds import ANY, STRING, TEXT, UINT32, UINT64, Kind
from penstock.expr.murmur3 import murmur3_bytes, murmur3_numbers
from penstock.expr.public import method
from penstock.expr.registry import kernel
from penstock.expr.signatures import strict, takes
from penstock.relational.scalar import evaluate
from penstock.types import DataType
from penstock.types.plain import arrow_array

__all__ = ["hash", "minhash"]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
NULL_HASH = np.uint64(0xD6E8FEB86659FD93)

Digest = Callable[[bytes, int], int]

_XXHASH = {"xxhash": "xxh3_64", "xxhash3_64": "xxh3_64", "xxhash64": "xxh64", "xxhash32": "xxh32"}
MURMUR = "murmurhash3"
HASH_FUNCTIONS = (*_XXHASH, MURMUR, "sha1")
_HASHED = Kind(
    "a number, boolean, date, time, string or binary",
    lambda d: d.is_integer() or d.is_float() or d.is_boolean() or d.is_temporal() or d.is_string() or d.is_binary(),
)


def mix(bits: Numbers) -> Numbers:
    """Mix 64 bits so that every bit depends on every bit of the input."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Numbers = bits ^ (bits >> np.uint64(31))
    return mixed


# --- hash -------------------------------------------------------------------------------------------------------------


@method
def hash(*exprs: Expression, seed: int | None = None, hash_function: str | None = None) -> Expression:
    """Return a uint64 hash of one or several values; null has a hash too. Equal integers of different types hash alike.

    ``hash_function`` gives the values of Daft instead, more slowly: ``xxhash``, ``xxhash32``, ``xxhash64``,
    ``xxhash3_64``, ``murmurhash3`` or ``sha1``.

    >>> df = ps.from_pydict({"a": [1, 1, 2]}).select(hash(ps.col("a")))
    >>> first, same, other = df.to_pydict()["a"]
    >>> first == same, first == other
    (True, False)
    """
    if not exprs:
        raise InvalidArgumentError("hash takes one or more expressions")
    if hash_function is None:
        return call("hash", *exprs, seed=int(seed or 0))
    if hash_function not in HASH_FUNCTIONS:
        raise InvalidArgumentError(
            f"hash_function={hash_function!r} is not known; use one of {', '.join(HASH_FUNCTIONS)}."
        )
    if hash_function in _XXHASH:
        _digest_of(hash_function)  # an error on the line of the user
    return call("named_hash", *exprs, name=hash_function, seed=seed)


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
    elements, lengths = elements_of(lists)
    ends = np.cumsum(lengths)
    positions = np.arange(len(elements)) - np.repeat(ends - lengths, lengths)
    # A sum can be computed for all rows at once; the position is mixed in because order matters.
    terms = mix(hash_array(elements) + (positions.astype(np.uint64) + np.uint64(1)) * GOLDEN)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    return mix(sums[ends] - sums[ends - lengths] + lengths.astype(np.uint64) * GOLDEN)


def hash_bytes(array: pa.Array) -> Numbers:
    """Return a 64-bit hash of every string or binary, eight bytes of all rows at a time."""
    flat, starts, ends = text_bytes(array)
    lengths = ends - starts
    result = lengths.astype(np.uint64) * GOLDEN
    if not len(array) or not int(lengths.max()):
        return mix(result)
    padded = np.concatenate([flat, np.zeros(8, np.uint8)])
    words = np.ndarray(len(flat) + 1, "<u8", padded, strides=(1,))  # the eight bytes that start at every position
    # After sorting by length, the rows with a k-th word of eight bytes come first.
    order = np.argsort(-lengths, kind="stable")
    starts, lengths, bits = starts[order], lengths[order], result[order]
    num_words = lengths // 8
    num_active = len(array) - np.searchsorted(num_words[::-1], np.arange(int(num_words[0])), side="right")
    for k, active in enumerate(num_active):
        _absorb(bits[:active], words[starts[:active] + 8 * k])
    spare = (8 - lengths % 8).astype(np.uint64) * np.uint64(8)
    tail = words[starts + 8 * num_words]
    _absorb(bits, np.where(lengths % 8 == 0, np.uint64(0), (tail << spare % np.uint64(64)) >> spare % np.uint64(64)))
    result[order] = bits
    return mix(result)


def _absorb(bits: Numbers, words: Numbers) -> None:
    """Mix one word into each row, in place; cheaper than ``mix``, which follows at the end."""
    bits ^= words
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(29)


# --- hashes by name, with the values that Daft returns ----------------------------------------------------------------


def _digest_of(name: str) -> Digest:
    """Return the function from bytes and a seed to a number; a missing package is an error."""
    library = load_extra("xxhash", "hashes", f"hash_function={name!r}")
    digest: Digest = getattr(library, f"{_XXHASH[name]}_intdigest")
    return digest


@kernel("named_hash", takes(rest=_HASHED, returns=UINT64))
@on_arrays
def _named_hash(*arrays: pa.Array, name: str, seed: int | None) -> pa.Array:
    """Hash the columns of a row one after the other; the hash of one is the seed of the next."""
    hashes: Any = np.broadcast_to(np.uint64(seed or 0), len(arrays[0]))
    compute: Callable[..., Numbers] = _sha1
    if name == MURMUR:
        compute, hashes = _murmur3, np.broadcast_to(np.uint32(42 if seed is None else seed), len(arrays[0]))
    elif name in _XXHASH:
        compute = partial(_xxhash, name)
    elif seed is None:
        hashes = None
    for array in arrays:
        hashes = compute(array, hashes)
    return arrow_array(hashes).cast(pa.uint64())


def _xxhash(name: str, array: pa.Array, seeds: Numbers) -> Numbers:
    """Return the hash of each row; a null is no bytes, and other nulls than those of text ignore the seed."""
    digest = _digest_of(name)
    if not _is_bytes(array) and array.type.bit_width == 64:
        words = filled(array.view(pa.int64())).view(np.uint64)
        seeds = seeds if any(seeds.strides) else seeds[:1]  # one for all rows
        hashes = getattr(xxhash_numbers, _XXHASH[name])(words, seeds)
    else:
        contents = _contents(array).fill_null(b"").to_pylist()
        has_one_seed = len(seeds) and not any(seeds.strides)
        each_seed = itertools.repeat(int(seeds[0])) if has_one_seed else seeds.tolist()
        hashes = np.fromiter(map(digest, contents, each_seed), np.uint64, len(contents))
    if not _is_bytes(array) and array.null_count:
        hashes = np.where(validity(array), hashes, hashes.dtype.type(digest(b"", 0)))
    return np.asarray(hashes)


def _sha1(array: pa.Array, seeds: Numbers | None) -> Numbers:
    """Return the first bytes of the hash of the seed and the row."""
    contents = _contents(array).fill_null(b"")
    if seeds is not None:
        contents = pc.binary_join_element_wise(_contents(arrow_array(seeds)), contents, b"")
    digests = evaluate("hash", "sha1(a)", [contents])
    digits = text_bytes(digests)[0][: 40 * len(array)].reshape(-1, 40)[:, :16]
    return np.frombuffer(bytes.fromhex(digits.tobytes().decode()), "<u8", len(array))


def _murmur3(array: pa.Array, seeds: Numbers) -> Numbers:
    if not _is_bytes(array) and not array.null_count and array.type.bit_width in (32, 64):
        return murmur3_numbers(filled(array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())), seeds)
    flat, starts, ends = text_bytes(_contents(array))
    return murmur3_bytes(flat, starts, ends - starts, seeds)


def _is_bytes(array: pa.Array) -> bool:
    dtype = DataType(array.type)
    return dtype.is_string() or dtype.is_binary()


def _contents(array: pa.Array) -> pa.Array:
    """Return the bytes of each value; those of a boolean are its digit."""
    if pa.types.is_boolean(array.type):
        array = pc.if_else(array, b"1", b"0")
    elif not _is_bytes(array):
        array = array.view(pa.binary(array.type.bit_width // 8))
    return array.cast(pa.binary())


# --- minhash ----------------------------------------------------------------------------------------------------------


@method
def minhash(
    text: Expression, *, num_hashes: int, ngram_size: int, seed: int = 1, hash_function: str | None = None
) -> Expression:
    """Return ``num_hashes`` numbers that two texts share in proportion to the word n-grams they share.

    Blanks separate words; a text with fewer than ``ngram_size`` words is one n-gram. Use ``normalize`` first.
    ``hash_function`` may name one of ``hash``, but changes nothing.

    >>> df = ps.from_pydict({"t": ["a b c d", "a b c e"]}).select(minhash(ps.col("t"), num_hashes=64, ngram_size=2))
    >>> one, two = df.to_pydict()["t"]
    >>> 0 < sum(x == y for x, y in zip(one, two)) < 64
    True
    """
    if hash_function not in (None, *HASH_FUNCTIONS):
        raise InvalidArgumentError(f"hash_function={hash_function!r} is not one of {', '.join(HASH_FUNCTIONS)}")
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
    ngrams, num_ngrams = _ngrams(hash_bytes(words), lengths, ngram_size)
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
    """Return the hash of every n-gram of a row, and the number of n-grams of each row, which is at least one."""
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
