"""Rows that kill their worker are found with few deaths."""

from __future__ import annotations

import pytest

from penstock.engine.pools.worker_restart import RestartPlan, RestartPolicy


def searched(num_rows: int, deadly: set[int]) -> tuple[list[int], int, int]:
    """Return the rows that were given up, the number of deaths and the number of calls."""
    plan, given_up, num_deaths, num_calls = RestartPlan(num_rows, RestartPolicy(lambda *_: None)), [], 0, 0
    while (part := plan.part) is not None:
        num_calls += 1
        if deadly.isdisjoint(range(part.offset, part.offset + part.num_rows)):
            plan.note_done()
            continue
        num_deaths += 1
        if not plan.note_death():
            given_up.append(part.offset)
    return given_up, num_deaths, num_calls


@pytest.mark.parametrize("row", [0, 77, 255])
def test_a_deadly_row_of_256_is_found_with_four_deaths(row: int) -> None:
    given_up, num_deaths, num_calls = searched(256, {row})
    assert (given_up, num_deaths) == ([row], 4)
    assert num_calls <= 34


def test_each_other_deadly_row_costs_at_most_two_deaths() -> None:
    assert searched(256, {3, 5, 90, 255})[:2] == ([3, 5, 90, 255], 9)


def test_a_deadly_row_of_many_is_found_with_few_calls() -> None:
    given_up, num_deaths, num_calls = searched(10_000, {1234})
    assert (given_up, num_deaths) == ([1234], 5)
    assert num_calls <= 122
