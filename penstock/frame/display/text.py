"""Tables on a terminal: aligned text, fitted to its width, in several styles."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

import pyarrow as pa

from penstock.errors import check_choice
from penstock.frame.display.cells import cell_text, ends, format_footer, require_positive
from penstock.frame.display.html import render_html
from penstock.observe.printable import ELLIPSIS, cell_width, fit, format_count, terminal_width, visible_text
from penstock.types import Schema

MAX_COLUMN_WIDTH = 30  # without a terminal
MIN_COLUMN_WIDTH = 12  # text is not narrowed below this to show more columns


@dataclass(frozen=True, slots=True)
class Box:
    """The lines around a table. A rule is its left end, filling, crossing and right end; an empty one is not drawn."""

    top: str = ""
    header: str = ""
    row: str = ""
    bottom: str = ""
    left: str = ""
    middle: str = ""
    right: str = ""


BOXES = {
    "default": Box("╭─┬╮", "├─┼┤", "", "╰─┴╯", "│", "│", "│"),
    "fancy": Box("╭─┬╮", "╞═╪╡", "├╌┼┤", "╰─┴╯", "│", "┆", "│"),
    "grid": Box("┌─┬┐", "╞═╪╡", "├─┼┤", "└─┴┘", "│", "│", "│"),
    "simple": Box(header=" -+ ", middle=" "),
    "plain": Box(),
    "markdown": Box(header="|-||", left="|", middle="|", right="|"),
}
FORMATS = (*BOXES, "html")


def print_table(table: pa.Table, schema: Schema, *, file: TextIO | None = None, **options: Any) -> None:
    """Print a table to ``file`` (standard output); options as in ``render_text``.

    On a terminal, fit its width and use colours, honouring ``COLUMNS``, ``NO_COLOR`` and ``TERM=dumb``.
    """
    stream = file or sys.stdout
    if (width := terminal_width(stream)) is not None:
        is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
        options = {"terminal_width": width, "color": not is_plain} | options
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = render_text(table, schema, **options) + "\n"
    stream.write(text.encode(encoding, "replace").decode(encoding))


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    dtype: str
    cells: Sequence[str]
    is_null: Sequence[bool]
    is_right: bool  # numbers
    is_elastic: bool  # may be narrowed: text, but not numbers or dates
    width: int


def render_text(
    table: pa.Table,
    schema: Schema,
    *,
    total_rows: int | None = None,
    max_width: int | None = None,
    format: str | None = "default",
    terminal_width: int | None = None,
    color: bool = False,
) -> str:
    """Return all rows of ``table`` as aligned text, with the row count below.

    ``total_rows`` is the number of rows of the whole result, None if unknown. No column is wider than ``max_width``
    cells: by default the width of the terminal, or 30 without one. To fit ``terminal_width``, text columns are narrowed
    first, the widest most, then columns in the middle are hidden.
    All formats except Markdown show the types.

    >>> table = pa.table({"id": [1, 20], "text": ["a", None]})
    >>> print(render_text(table, Schema.from_arrow(table.schema), total_rows=1000))
    ╭───────┬────────╮
    │    id │ text   │
    │ int64 │ string │
    ├───────┼────────┤
    │     1 │ a      │
    │    20 │ None   │
    ╰───────┴────────╯
    (showing first 2 of 1,000 rows)
    """
    style = check_format(format)
    if max_width is None:
        max_width = terminal_width or MAX_COLUMN_WIDTH
    require_positive("max_width", max_width)
    if style == "html":
        return render_html(table, schema, total_rows=total_rows)
    box = BOXES[style]
    has_types = style != "markdown"
    columns = _shown_columns(table, schema, box, max_width, terminal_width, has_types)
    if style == "markdown":
        columns = [_for_markdown(column) for column in columns]
    footer = format_footer(table.num_rows, total_rows, len(schema))
    if not columns:
        return footer
    return "\n".join([*_lines(columns, table.num_rows, box, has_types, color), footer])


def check_format(format: str | None) -> str:
    """Return a known table style, or raise an error that lists them."""
    check_choice("format", style := format or "default", FORMATS)
    return style


def _shown_columns(
    table: pa.Table, schema: Schema, box: Box, max_width: int, terminal_width: int | None, has_types: bool
) -> list[_Column]:
    """Return the columns that fit, each with its final width."""
    num_columns = len(schema)
    # A column takes at least four cells. Columns that cannot fit are not read.
    keep = num_columns if terminal_width is None else min(num_columns, terminal_width // 4 + 1)
    kept = ends(range(num_columns), keep)
    columns = {position: _column(table, schema, position, max_width, has_types) for position in kept}
    while True:
        kept = ends(range(num_columns), keep)
        shown = [columns[position] for position in kept]
        if hidden := num_columns - len(kept):
            shown.insert((keep + 1) // 2, _elided(hidden, table.num_rows, has_types))
        if terminal_width is None:
            return shown
        surplus = _total_width(shown, box) - terminal_width
        if surplus <= 0:
            return shown
        cap = _widest([column.width for column in shown if column.is_elastic], surplus)
        if cap >= (MIN_COLUMN_WIDTH if keep > 1 else 4):
            return [_narrowed(column, cap) for column in shown]
        if keep <= 1:
            return shown
        keep -= 1


def _widest(widths: Sequence[int], surplus: int) -> int:
    """Return a width such that cutting all wider columns to it saves ``surplus`` cells; 0 if no width does.

    >>> _widest([60, 20, 100], 50), _widest([10, 10], 50)
    (55, 0)
    """
    caps = range(max(widths, default=0), 0, -1)
    return next((cap for cap in caps if sum(max(width - cap, 0) for width in widths) >= surplus), 0)


def _column(table: pa.Table, schema: Schema, position: int, max_width: int, has_types: bool) -> _Column:
    field = schema[position]
    name = fit(visible_text(field.name[: 4 * max_width]), max_width)
    dtype = fit(visible_text(str(field.dtype)), max_width) if has_types else ""
    scalars = list(table.column(position))
    cells = [fit(cell_text(scalar, max_width), max_width) for scalar in scalars]
    return _Column(
        name,
        dtype,
        cells,
        [not scalar.is_valid for scalar in scalars],
        field.dtype.is_numeric(),
        not (field.dtype.is_numeric() or field.dtype.is_temporal() or field.dtype.is_boolean()),
        max(map(cell_width, (name, dtype, *cells))),
    )


def _elided(num_hidden: int, num_rows: int, has_types: bool) -> _Column:
    """Return the column that stands for the hidden columns."""
    note = f"(+{format_count(num_hidden, 'column')})"
    name, dtype = (ELLIPSIS, note) if has_types else (f"{ELLIPSIS} {note}", "")
    return _Column(name, dtype, [ELLIPSIS] * num_rows, [False] * num_rows, False, False, max(len(name), len(dtype)))


def _narrowed(column: _Column, cap: int) -> _Column:
    if column.width <= cap or not column.is_elastic:
        return column
    cells = [fit(cell, cap) for cell in column.cells]
    name, dtype = fit(column.name, cap), fit(column.dtype, cap)
    return replace(column, name=name, dtype=dtype, cells=cells, width=max(map(cell_width, (name, dtype, *cells))))


def _total_width(columns: Sequence[_Column], box: Box) -> int:
    between = len(box.middle) * (len(columns) - 1)
    return len(box.left) + sum(column.width + 2 for column in columns) + between + len(box.right)


def _for_markdown(column: _Column) -> _Column:
    name = _markdown_text(column.name)
    cells = [_markdown_text(cell) for cell in column.cells]
    return replace(column, name=name, cells=cells, width=max(3, *map(cell_width, (name, *cells))))


def _markdown_text(text: str) -> str:
    """Return ``text`` with escaped characters that would end the cell, start a tag or make a link."""
    return re.sub(r"[\\|<]|(?<=\])\(", r"\\\g<0>", text)


def _lines(columns: Sequence[_Column], num_rows: int, box: Box, has_types: bool, color: bool) -> Iterable[str]:
    def paint(text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if color and code and text.strip() else text

    def rule(line: str) -> str:
        left, fill, cross, right = tuple(line)
        return paint((left + cross.join(fill * (column.width + 2) for column in columns) + right).strip(" "), "2")

    def text(values: Sequence[str], codes: Sequence[str]) -> str:
        cells = []
        for column, value, code in zip(columns, values, codes, strict=True):
            space, painted = " " * (column.width - cell_width(value)), paint(value, code)
            cells.append(f" {space + painted if column.is_right else painted + space} ")
        line = paint(box.left, "2") + paint(box.middle, "2").join(cells) + paint(box.right, "2")
        return line if box.right else line.rstrip(" ")

    if box.top:
        yield rule(box.top)
    yield text([column.name for column in columns], ["1"] * len(columns))
    if has_types:
        yield text([column.dtype for column in columns], ["2"] * len(columns))
    if box is BOXES["markdown"]:
        rules = ["-" * column.width for column in columns]
        marks = [f"-{rule}:" if column.is_right else f":{rule}-" for column, rule in zip(columns, rules, strict=True)]
        yield f"|{'|'.join(marks)}|"
    elif box.header:
        yield rule(box.header)
    for row in range(num_rows):
        if row and box.row:
            yield rule(box.row)
        yield text(
            [column.cells[row] for column in columns], ["2" if column.is_null[row] else "" for column in columns]
        )
    if box.bottom:
        yield rule(box.bottom)
