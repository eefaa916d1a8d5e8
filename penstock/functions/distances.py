"""Differences between texts, by characters, and between fingerprints, by bits."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidArgumentError
from penstock.expr.arrays import Numbers, filled, masked, ranges, text_bytes, validity
from penstock.expr.kinds import FLOAT64, INT64, INTEGER, STRING, TEXT, UINT32, UINT64
from penstock.functions.hashing import GOLDEN, mix
from penstock.functions.table import FunctionTable
from penstock.relational.scalar import evaluate
from penstock.types.plain import arrow_array, arrow_scalar

_table = FunctionTable(__name__)
_define = _table.kernel
_ALIKE = "case when a = b then 1 else {}(a, b) end"  # two empty texts too
_PAIR = {"left": TEXT, "right": TEXT}


def _characters(texts: pa.Array) -> tuple[Numbers, Numbers, Numbers]:
    """Return all characters as codes, and where the characters of each row start and how many they are."""
    flat, starts, ends = text_bytes(texts.cast(pa.string()))
    if not len(flat) or int(flat.max()) < 128:
        return flat.astype(np.uint32), starts, ends - starts
    codes = np.frombuffer(flat.tobytes().decode().encode("utf-32-le"), np.uint32)
    num_before = np.concatenate([[0], np.cumsum((flat & 0xC0) != 0x80)])
    begins = num_before[starts]
    return codes, begins, num_before[ends] - begins


def _is_ascii(texts: pa.Array) -> bool:
    return int(text_bytes(texts)[0].max(initial=0)) < 128


def _pairwise(measure: str, dtype: pa.DataType, sql: str = "") -> Callable[[pa.Array, pa.Array], pa.Array]:
    """Return a kernel of pairs of texts by rapidfuzz; ``measure`` names a function of its module ``distance``.

    ``sql`` computes the same faster, but from bytes, so it serves texts in ASCII.
    """

    def kernel(left: pa.Array, right: pa.Array) -> pa.Array:
        if sql and _is_ascii(left) and _is_ascii(right):
            return evaluate("similarity", sql, [left, right])
        from rapidfuzz import distance, process

        texts = [side.cast(pa.string()).fill_null("").to_pylist() for side in (left, right)]
        scorer = operator.attrgetter(measure)(distance)
        found = process.cpdist(*texts, scorer=scorer, dtype=dtype.to_pandas_dtype())
        return masked(found, validity(left, right), dtype)

    return kernel


_HAMMING = "case when a = b then 0 when strlen(a) = strlen(b) then hamming(a, b) end"


def _hamming(left: pa.Array, right: pa.Array) -> pa.Array:
    found = _pairwise("Hamming.distance", pa.int64(), _HAMMING)(left, right)
    if _is_ascii(left) and _is_ascii(right):
        return found
    has_one_length = pc.equal(pc.utf8_length(left), pc.utf8_length(right))
    return pc.if_else(has_one_length, found, arrow_scalar(None, pa.int64()))


levenshtein_distance = _define(
    "levenshtein_distance", _PAIR, INT64, _pairwise("Levenshtein.distance", pa.int64(), "levenshtein(a, b)"),
    "Count the characters to insert, delete or replace to turn one text into the other.", ("kitten", "sitting"), 3,
)  # fmt: skip
damerau_levenshtein_distance = _define(
    "damerau_levenshtein_distance", _PAIR, INT64, _pairwise("OSA.distance", pa.int64()),
    "Count edits like ``levenshtein_distance``, with a swap of neighbours as one edit; no part is edited twice.",
    ("martha", "marhta"), 1,
)  # fmt: skip
hamming_distance_str = _define(
    "hamming_distance_str", _PAIR, INT64, _hamming,
    "Count the places at which the characters differ; null for texts of different lengths.", ("ronald", "renuld"), 2,
)  # fmt: skip
jaro_similarity = _define(
    "jaro_similarity", _PAIR, FLOAT64, _pairwise("Jaro.similarity", pa.float64(), _ALIKE.format("jaro_similarity")),
    "Return the Jaro similarity of two texts, from 0 to 1.", ("abcd", "abdc"), 0.9166666666666666,
)  # fmt: skip
jaro_winkler_similarity = _define(
    "jaro_winkler_similarity", _PAIR, FLOAT64,
    _pairwise("JaroWinkler.similarity", pa.float64(), _ALIKE.format("jaro_winkler_similarity")),
    "Return the Jaro similarity with a bonus for a common prefix of up to four characters.", ("abc", "abc"), 1.0,
)  # fmt: skip


_START, _ZERO = 9, ord("0")
_DIGITS = np.zeros(256, np.uint8)  # of each letter; 7 for H and W, which do not separate equal digits
for _digit, _group in enumerate(("BFPV", "CGJKQSXZ", "DT", "L", "MN", "R", "HW"), start=1):
    _DIGITS[[ord(letter) for letter in _group + _group.lower()]] = _digit


def _soundex(texts: pa.Array) -> pa.Array:
    """Find the characters with a new digit in all texts at once, then take the first three after each start."""
    texts = texts.cast(pa.string())
    flat, starts, ends = text_bytes(texts.fill_null("") if texts.null_count else texts)
    rows = np.flatnonzero(ends > starts)
    if not len(rows):
        return texts
    heads, flat = starts[rows] - starts[0], flat[starts[0] : ends[-1]]
    digits = np.frombuffer(bytearray(flat.tobytes().translate(_DIGITS.tobytes())), np.uint8)
    digits[heads[digits[heads] == 7]] = 8  # at the start of a text they do
    previous = np.concatenate([digits[:1], digits[:-1]])
    places, distance = np.flatnonzero(previous == 7), 2
    while len(places):
        previous[places] = digits[places - distance]
        places, distance = places[previous[places] == 7], distance + 1
    is_found = (digits != previous) & (digits - np.uint8(1) < 6)
    is_found[heads] = True
    digits[heads] = _START
    found = np.concatenate([digits[np.flatnonzero(is_found)], np.full(3, _START, np.uint8)])
    places = np.flatnonzero(found[:-3] == _START)
    codes = np.full((len(texts), 4), _ZERO, np.uint8)
    codes[rows, 0] = flat[heads] & 0xDF  # upper case
    is_open = np.ones(len(rows), bool)
    for number in (1, 2, 3):
        following = found[places + number]
        is_open &= following != _START
        codes[rows, number] = np.where(is_open, following, 0) + _ZERO
    offsets = pa.py_buffer(np.arange(0, 4 * len(texts) + 4, 4, dtype=np.int32))
    is_letter = (codes[:, 0] >= ord("A")) & (codes[:, 0] <= ord("Z"))
    coded = pa.StringArray.from_buffers(len(texts), offsets, pa.py_buffer(codes))
    return pc.if_else(arrow_array(is_letter), coded, texts)


soundex = _define(
    "soundex", {"expr": TEXT}, STRING, _soundex,
    "Return the Soundex code, a letter and three digits for the sound; text without a first letter stays.",
    ("Robert",), "R163",
)  # fmt: skip


def _hamming_bits(left: pa.Array, right: pa.Array) -> pa.Array:
    differing = np.bitwise_count(_bits(left) ^ _bits(right))
    can_count = (filled(left) >= 0) & (filled(right) >= 0)
    return masked(differing.astype(np.uint32), validity(left, right) & can_count)


def _bits(numbers: pa.Array) -> Numbers:
    return np.asarray(filled(numbers)).astype(np.uint64)


hamming_distance = _define(
    "hamming_distance", {"left": INTEGER, "right": INTEGER}, UINT32, _hamming_bits,
    "Count the bits in which two fingerprints of ``simhash`` differ; null for negative numbers.", (7, 4), 2,
)  # fmt: skip


def _simhash(texts: pa.Array, *, ngram_size: int | None) -> pa.Array:
    size = 3 if ngram_size is None else ngram_size
    if size < 1:
        raise InvalidArgumentError(f"simhash: ngram_size={size} must be at least 1")
    codes, starts, lengths = _characters(texts)
    counts = np.maximum(lengths - size + 1, 0)
    first = ranges(starts, counts)
    hashes = np.zeros(len(first), np.uint64)
    for place in range(size):
        hashes = mix(hashes + codes[first + place].astype(np.uint64) + GOLDEN)
    return masked(_majorities(hashes, counts), validity(texts))


_MAX_VOTES = 255
_VOTES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").view("<u8")[:, 0]
"""The bits of each byte, one in each byte of a word."""


def _majorities(hashes: Numbers, counts: Numbers) -> Numbers:
    """Return for each row the bits that more than half of its hashes have; ``counts`` are the hashes of each row."""
    num_parts = np.maximum(-(-counts // _MAX_VOTES), 1)  # so that the votes of a part fit a byte
    row_ends, first_parts = np.cumsum(counts), np.cumsum(num_parts) - num_parts
    bounds = ranges(np.zeros(len(counts), np.int64), num_parts) * _MAX_VOTES
    bounds = np.append(bounds + np.repeat(row_ends - counts, num_parts), len(hashes))
    sums, found = np.zeros(len(hashes) + 1, np.uint64), np.zeros((len(counts), 8), np.uint8)
    for place, byte in enumerate(hashes.view(np.uint8).reshape(-1, 8).T):
        np.cumsum(_VOTES[byte], out=sums[1:])  # it wraps around, and its differences are right
        votes = np.diff(sums[bounds]).view(np.uint8).reshape(-1, 8)
        if len(votes) > len(counts):
            votes = np.add.reduceat(votes, first_parts, dtype=np.int64)
        found[:, place] = np.packbits(votes > counts[:, None] // 2, bitorder="little")
    return found.view("<u8")[:, 0]


simhash = _define(
    "simhash", {"text": TEXT, "ngram_size": int | None}, UINT64, _simhash,
    "Return a 64-bit fingerprint of the character n-grams, three long by default; similar texts differ in few bits.",
    ("ab",), 0,
)  # fmt: skip
