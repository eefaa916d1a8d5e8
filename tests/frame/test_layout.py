"""Verbs that change how rows are cut, never which rows there are."""

from __future__ import annotations

import pytest

import penstock as ps


@pytest.mark.parametrize("size", [1, 3, 10, 99])
def test_into_batches_gives_that_size_but_for_the_last(size: int) -> None:
    batches = list(ps.range(10).into_batches(4).into_batches(size).iter_partitions())
    sizes = [batch.num_rows for batch in batches]
    assert all(n == size for n in sizes[:-1])
    assert [row for batch in batches for row in batch.column("id").to_pylist()] == list(range(10))


@pytest.mark.parametrize("verb", ["repartition", "into_partitions"])
@pytest.mark.parametrize(("num", "sizes"), [(1, {10}), (3, {3, 4}), (10, {1})])
def test_repartition_gives_parts_of_nearly_equal_size(verb: str, num: int, sizes: set[int]) -> None:
    parts = list(getattr(ps.range(10).into_batches(4), verb)(num).iter_partitions())
    assert len(parts) == num
    assert {part.num_rows for part in parts} == sizes
    assert [row for part in parts for row in part.column("id").to_pylist()] == list(range(10))


def test_a_function_is_given_the_batches_that_were_made() -> None:
    sizes = ps.range(10).into_batches(4).map_batches(lambda batch: {"n": [len(batch["id"])]}).to_pydict()
    assert sizes == {"n": [4, 4, 2]}
