"""The part of a table that is shown."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InvalidArgumentError
from penstock.observe.text import format_count


def format_footer(num_rows: int, total_rows: int | None, num_columns: int) -> str:
    """Return a line with the number of rows shown and the total.

    >>> format_footer(8, 1000, 3), format_footer(8, None, 3), format_footer(8, 8, 3)
    ('(showing first 8 of 1,000 rows)', '(showing first 8 rows)', '(8 rows)')
    """
    if num_columns == 0:
        return "(no columns)"
    if total_rows is None:
        return f"(showing first {format_count(num_rows, 'row')})" if num_rows else "(no rows)"
    if num_rows >= total_rows:
        return f"({format_count(num_rows, 'row')})" if num_rows else "(no rows)"
    return f"(showing first {num_rows:,} of {format_count(total_rows, 'row')})"


def require_positive(what: str, value: int) -> None:
    if value < 1:
        raise InvalidArgumentError(f"{what}={value!r} must be at least 1.")


def ends(positions: Sequence[int], keep: int) -> list[int]:
    """Return the first and the last positions, ``keep`` in all.

    >>> ends(range(10), 5)
    [0, 1, 2, 8, 9]
    """
    if keep >= len(positions):
        return list(positions)
    return [*positions[: (keep + 1) // 2], *positions[len(positions) - keep // 2 :]]
