"""The results that wait for the reader, and the rows of them that it has used."""

from __future__ import annotations

import pytest

from penstock.contracts import Bundle
from penstock.engine.resources import Results


def used_after_each(results: Results, sizes: list[int]) -> list[int]:
    found = []
    for size in sizes:
        results.put(Bundle(range(size), size, nbytes=size))
        results.take()
        found.append(results.num_rows_used)
    return found


@pytest.mark.parametrize(
    ("results", "used"),
    [
        (Results(4), [64, 96, 112]),
        (Results(4, num_unused=1), [0, 64, 96]),
        # A reader that cuts batches of 16 rows may stop after the first one of the result that it is at.
        (Results(4, batch_rows=16), [16, 80, 112]),
        (Results(4, num_unused=1, batch_rows=16), [0, 16, 80]),
    ],
)
def test_rows_count_as_used_when_the_reader_has_certainly_had_them(results: Results, used: list[int]) -> None:
    assert used_after_each(results, [64, 32, 16]) == used
