"""Filters and constants as SQL text, where the database answers as we would."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pyarrow as pa

from penstock.io.tables.sql.session import DatabaseKind
from penstock.protocols import Condition

MAX_LISTED = 1000  # values of an "in" that a statement lists; more would make it too long


def sql_condition(name: str, dtype: pa.DataType, condition: Condition, kind: DatabaseKind) -> str | None:
    """Return a condition on the quoted column ``name``, or None where the database may judge it differently.

    >>> sql_condition('"a"', pa.int64(), Condition("a", "!=", 3), "other")
    '"a" <> 3'
    """
    operator, value = condition.operator, condition.value
    if operator in ("is null", "is not null"):
        return f"{name} {operator.upper()}"
    values = value if operator == "in" else (value,)
    literals = [sql_literal(each, kind) for each in values]
    texts = [text for text in literals if text is not None]
    if len(texts) < len(values) or len(values) > MAX_LISTED:
        return None
    if kind == "sqlite" and pa.types.is_string(dtype):
        return _sqlite_text_condition(name, operator, values, texts)
    if operator == "in":
        return f"{name} IN ({', '.join(texts)})"
    if isinstance(value, str) and operator != "=":  # each database has its own order of text, and of case
        return None
    return f"{name} {'<>' if operator == '!=' else operator} {texts[0]}"


def _sqlite_text_condition(name: str, operator: str, values: Any, texts: list[str]) -> str | None:
    """Return a condition on a column that is read as text.

    In SQLite every value has its own type, and a number or bytes are not equal to their text. We read both as text,
    so the condition also takes rows that might be equal then.
    """
    if operator not in ("=", "in") or not all(isinstance(value, str) for value in values):
        return None
    as_bytes = [f"x'{value.encode('utf-8', 'surrogatepass').hex()}'" for value in values]
    found = f"{name} IN ({', '.join([*texts, *as_bytes])})"
    return f"({found} OR typeof({name}) IN ('integer', 'real'))" if any(map(_is_number, values)) else found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def sql_literal(value: Any, kind: DatabaseKind, is_bound: bool = False) -> str | None:
    """Return a constant as SQL, or None where a database may read it differently.

    The bound of a partition may be inexact, since it only has to be the same for both of its neighbours.

    >>> sql_literal("it's", "sqlite"), sql_literal(float("inf"), "sqlite"), sql_literal(True, "postgresql")
    ("'it''s'", None, 'TRUE')
    """
    is_exact = kind == "postgresql" or is_bound
    match value:
        case bool():
            return str(value).upper() if kind == "postgresql" else None
        case int():
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else None
        case decimal.Decimal():
            return f"{value:f}" if is_exact and value.is_finite() else None
        case str():
            return None if "\\" in value or "\0" in value else "'" + value.replace("'", "''") + "'"
        case datetime.datetime() if is_exact:
            name = "TIMESTAMPTZ " if value.tzinfo else "TIMESTAMP "
            return f"{name if kind == 'postgresql' else ''}'{value.isoformat(' ')}'"
        case datetime.date() if is_exact:
            return f"{'DATE ' if kind == 'postgresql' else ''}'{value.isoformat()}'"
    return None
