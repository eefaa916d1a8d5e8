"""Hashes, which must never change: they decide in which bucket a row of yesterday's output is."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from penstock import functions as f
from penstock.errors import InvalidArgumentError
from penstock.expr.column import col
from penstock.functions.hashing import hash_bytes
from penstock.types import DataType
from tests.expr.evaluating import batch_of, evaluate, resolved, run

HASHES_OF_INTEGERS = [258863698125685209, 15979313559291895140, 2347819390714674329]
HASHES_OF_TEXT = [3003024032209334227, 14886966964097914600, 11948560221065427746]

x, y = col("x"), col("y")


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, None, 1],
        [1.5, float("nan"), None, 0.0],
        [True, False, None],
        ["a", "b", "", None, "a longer text of many words"],
        [b"a", b"", None],
        [[1, 2], [2, 1], [], None, [None]],
        [{"a": 1, "b": "x"}, {"a": None, "b": "x"}, None],
        [dt.date(2024, 1, 1), None],
        [dt.datetime(2024, 1, 1), None],
        [dt.timedelta(1), None],
    ],
)
def test_hash_tells_values_apart(values: list[Any]) -> None:
    hashes = evaluate(f.hash(x), x=values)
    assert None not in hashes
    assert len(set(hashes)) == len({repr(value) for value in values})
    assert resolved(f.hash(x), x=values) == DataType.uint64()


def test_hash_never_changes() -> None:
    assert evaluate(f.hash(x), x=[0, 1, None]) == HASHES_OF_INTEGERS
    assert evaluate(f.hash(x), x=["", "penstock", "a longer text"]) == HASHES_OF_TEXT


def test_equal_integers_hash_alike_in_every_type() -> None:
    assert evaluate(f.hash(x), x=pa.array([7, 0], pa.int8())) == evaluate(f.hash(x), x=pa.array([7, 0], pa.uint64()))
    assert evaluate(f.hash(x), x=[0.0]) == evaluate(f.hash(x), x=[-0.0])


def test_seed_and_order_matter() -> None:
    plain, seeded = evaluate(f.hash(x), x=[1]), evaluate(f.hash(x, seed=12345), x=[1])
    assert plain != seeded
    assert evaluate(f.hash(x, y), x=[1], y=[2]) != evaluate(f.hash(x, y), x=[2], y=[1])
    with pytest.raises(InvalidArgumentError, match="one or more"):
        f.hash()


def test_hash_is_spread_evenly() -> None:
    buckets = np.bincount(run(f.hash(x) % 16, batch_of(x=range(1000))).to_numpy())
    assert buckets.min() > 30


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_hash_of_bytes_does_not_depend_on_the_batch(values: list[bytes]) -> None:
    together = hash_bytes(pa.array(values, pa.binary()))
    alone = [hash_bytes(pa.array([value], pa.binary()))[0] for value in values]
    assert together.tolist() == alone
    assert len(set(together.tolist())) == len(set(values))


def test_minhash() -> None:
    texts = ["a b c d e f g h", "a b c d e f g x", "q r s t u v w z", None, "a", ""]
    rows = evaluate(f.minhash(x, num_hashes=128, ngram_size=2), x=texts)
    assert rows[3] is None
    assert all(len(row) == 128 for row in rows if row is not None)

    def similarity(one: list[int], two: list[int]) -> float:
        return float(np.mean(np.array(one) == np.array(two)))

    assert similarity(rows[0], rows[1]) == pytest.approx(6 / 8, abs=0.15)
    assert similarity(rows[0], rows[2]) < 0.05
    assert resolved(f.minhash(x, num_hashes=4, ngram_size=1), x=["a"]) == DataType.fixed_size_list("uint32", 4)


def test_minhash_depends_on_the_seed() -> None:
    one = evaluate(f.minhash(x, num_hashes=4, ngram_size=1), x=["a b"])
    two = evaluate(f.minhash(x, num_hashes=4, ngram_size=1, seed=2), x=["a b"])
    assert one != two
    with pytest.raises(InvalidArgumentError, match="num_hashes must be at least 1"):
        f.minhash(x, num_hashes=0, ngram_size=1)
