"""A temporary database hands its connection on to the next one."""

from __future__ import annotations

import pytest

from penstock.relational.temporary_duckdb import MIN_MEMORY_BYTES, TemporaryDatabase

LARGE = "select range as x from range(6_000_000) order by hash(range)"


def connection_after(sql: str, *, is_locked: bool = False) -> object:
    """Run a query in a database of its own, and return the connection that it had."""
    database = TemporaryDatabase(MIN_MEMORY_BYTES, 1, is_locked=is_locked)
    found: object = database._connection
    assert sum(batch.num_rows for batch in database.query(sql, {}))
    database.close()
    return found


def test_a_connection_serves_one_query_after_the_other() -> None:
    assert connection_after("select 1 as x") is connection_after("select 1 as x")


@pytest.mark.parametrize(("sql", "is_locked"), [("select 1 as x", True), (LARGE, False)], ids=["of a user", "spilled"])
def test_a_connection_with_a_past_serves_no_more(sql: str, is_locked: bool) -> None:
    assert connection_after(sql, is_locked=is_locked) is not connection_after("select 1 as x")
