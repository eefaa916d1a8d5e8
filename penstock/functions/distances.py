"""Differences between texts, by characters."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr.arrays import masked, validity
from penstock.expr.kinds import FLOAT64, INT64, TEXT
from penstock.functions.table import FunctionTable
from penstock.types.plain import arrow_scalar

_table = FunctionTable(__name__)
_define = _table.kernel
_PAIR = {"left": TEXT, "right": TEXT}


def _pairwise(measure: str, dtype: pa.DataType) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """Return a kernel of pairs of texts by rapidfuzz; ``measure`` names a function of its module ``distance``."""

    def kernel(left: pa.Array, right: pa.Array) -> pa.Array:
        from rapidfuzz import distance, process

        texts = [side.cast(pa.string()).fill_null("").to_pylist() for side in (left, right)]
        scorer = operator.attrgetter(measure)(distance)
        found = process.cpdist(*texts, scorer=scorer, dtype=dtype.to_pandas_dtype())
        return masked(found, validity(left, right), dtype)

    return kernel


def _hamming(left: pa.Array, right: pa.Array) -> pa.Array:
    has_one_length = pc.equal(pc.utf8_length(left), pc.utf8_length(right))
    found = _pairwise("Hamming.distance", pa.int64())(left, right)
    return pc.if_else(has_one_length, found, arrow_scalar(None, pa.int64()))


levenshtein_distance = _define(
    "levenshtein_distance", _PAIR, INT64, _pairwise("Levenshtein.distance", pa.int64()),
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
    "jaro_similarity", _PAIR, FLOAT64, _pairwise("Jaro.similarity", pa.float64()),
    "Return the Jaro similarity of two texts, from 0 to 1.", ("abcd", "abdc"), 0.9166666666666666,
)  # fmt: skip
jaro_winkler_similarity = _define(
    "jaro_winkler_similarity", _PAIR, FLOAT64, _pairwise("JaroWinkler.similarity", pa.float64()),
    "Return the Jaro similarity with a bonus for a common prefix of up to four characters.", ("abc", "abc"), 1.0,
)  # fmt: skip
