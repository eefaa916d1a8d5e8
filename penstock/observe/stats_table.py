"""The figures of stages as a table of texts that fits a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.observe.printable import (
    cell_width,
    fit,
    fit_middle,
    format_bytes,
    format_rate,
    format_seconds,
    visible_text,
)
from penstock.observe.stage_stats import StageStats, rows_done

MAX_NAME_WIDTH = 48
MIN_NAME_WIDTH = 20
SPACE = 2  # cells between columns

LEAST_USEFUL = ("bundles", "held", "no room", "no input", "bytes", "busy", "no worker", "rate", "wall", "failed")
"""The columns that a narrow terminal leaves out, in this order."""


def stage_columns(stages: Sequence[StageStats]) -> dict[str, list[str]]:
    """Return the columns of the table by their header, without empty columns."""
    has_failed = any(stats.num_failed for stats in stages)
    has_waited = any(stats.peak_nbytes for stats in stages)
    columns: dict[str, Callable[[StageStats], str]] = {
        "stage": short_name,
        "rows": lambda s: f"{rows_done(stages, s):,}",
        "failed": lambda s: f"{s.num_failed:,}" if has_failed else "",
        "bytes": lambda s: format_bytes(s.nbytes),
        "bundles": lambda s: f"{s.num_bundles:,}",
        "busy": lambda s: format_seconds(s.busy_s),
        "no input": lambda s: format_seconds(s.waited_input_s) if has_waited else "",
        "no room": lambda s: format_seconds(s.waited_output_s) if has_waited else "",
        "no worker": lambda s: format_seconds(s.waited_workers_s) if has_waited else "",
        "held": lambda s: format_bytes(s.peak_nbytes) if has_waited else "",
        "wall": lambda s: "-" if s.wall_s is None else format_seconds(s.wall_s),
        "rate": lambda s: format_rate(rows_done(stages, s) / s.wall_s) if s.wall_s else "-",
    }
    texts = {header: [text(stats) for stats in stages] for header, text in columns.items()}
    return {header: cells for header, cells in texts.items() if any(cells)}


def short_name(stats: StageStats) -> str:
    return fit(visible_text(stats.stage), MAX_NAME_WIDTH)


def fitted_table(columns: dict[str, list[str]], width: int | None) -> list[tuple[str, ...]]:
    """Return the header and the rows of the columns that fit ``width`` cells. Only the names of stages are ever cut.

    >>> fitted_table({"stage": ["read"], "rows": ["1,000"], "bundles": ["12"]}, 20)
    [('stage', 'rows'), ('read', '1,000')]
    """
    if width is None or _total_width(columns) <= width:
        return _rows(columns)
    shown = {**columns, "stage": [fit(name, max(width // 3, MIN_NAME_WIDTH)) for name in columns["stage"]]}
    for header in LEAST_USEFUL:
        if _total_width(shown) > width:
            shown.pop(header, None)
    room = width - _total_width({**shown, "stage": []}) + len("stage")
    return _rows({**shown, "stage": [fit_middle(name, max(room, MIN_NAME_WIDTH)) for name in columns["stage"]]})


def _rows(columns: dict[str, list[str]]) -> list[tuple[str, ...]]:
    return [tuple(columns), *zip(*columns.values(), strict=True)]


def _total_width(columns: dict[str, list[str]]) -> int:
    return sum(_width(header, cells) for header, cells in columns.items()) + SPACE * (len(columns) - 1)


def _width(header: str, cells: Sequence[str]) -> int:
    return max(map(cell_width, (header, *cells)))
