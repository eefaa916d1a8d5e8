"""What a source must know of a predicate that it is given."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def columns_needed(schema: pa.Schema, columns: Sequence[str], predicate: pc.Expression | None) -> set[str]:
    """Return ``columns`` and those that ``predicate`` uses: the ones without which it cannot be bound."""
    needed = set(columns)
    if predicate is None or _can_bind(predicate, schema, needed):
        return needed
    every = set(schema.names)
    return needed | {name for name in every - needed if not _can_bind(predicate, schema, every - {name})}


def _can_bind(predicate: pc.Expression, schema: pa.Schema, names: set[str]) -> bool:
    empty = pa.schema([f for f in schema if f.name in names]).empty_table()
    try:
        empty.filter(predicate)
    except pa.ArrowInvalid:
        return False
    return True
