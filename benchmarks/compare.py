"""Compare the outputs of two engines as multisets of rows, since engines do not promise an order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb


def fingerprint(output: Path, answer: Any) -> str:
    """Return a text that is equal for equal outputs: columns, types, row count and order-free hashes of the rows."""
    files = [str(path) for path in sorted(output.rglob("*.parquet"))]
    if not files:
        return json.dumps(answer, sort_keys=True)
    with duckdb.connect() as connection:
        rows = connection.read_parquet(files)
        schema = sorted(zip(rows.columns, map(str, rows.dtypes), strict=True))
        columns = ", ".join(f'"{name}"' for name, _ in schema)
        # A sum alone could hide a row lost and another doubled only by a collision; the xor makes that two collisions.
        found = connection.execute(
            f"select count(*), sum(hash({columns})::hugeint), bit_xor(hash({columns})) from read_parquet($files)",
            {"files": files},
        ).fetchone()
    assert found is not None
    num_rows, total, xor = found
    names = ", ".join(f"{name} {dtype}" for name, dtype in schema)
    return f"{num_rows} rows ({names}), hash {total % 2**64:016x}{xor:016x}"


def are_near(left: str, right: str | None, tolerance: float) -> bool:
    """Return True if two answers have the same names and no number differs by more than ``tolerance``.

    >>> are_near('{"a": 1.0}', '{"a": 1.5}', 0.5), are_near('{"a": 1.0}', '{"b": 1.0}', 0.5)
    (True, False)
    """
    if not tolerance or right is None:
        return left == right
    first, second = json.loads(left), json.loads(right)
    return first.keys() == second.keys() and all(abs(first[name] - second[name]) <= tolerance for name in first)
