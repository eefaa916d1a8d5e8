"""Tables as people see them: on a terminal and in a notebook.

Values are read one at a time and only as far as they are shown, so a cell that holds a gigabyte costs no more than a
short one. Nothing that the data holds can reach the terminal or the page as anything but text.
"""

from __future__ import annotations

import codecs
import html
import io
import json
import os
import pickle
import re
import reprlib
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TextIO

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.observe.text import ELLIPSIS, cell_width, fit, format_bytes, format_count, visible_text
from penstock.types import DataType, EmbeddingType, FileType, ImageType, PythonType, Schema, TensorType
from penstock.types.extension import IMAGE_MODES

MIN_COLUMN_WIDTH = 12  # text is not squeezed below this to make room for more columns
MAX_HTML_COLUMNS = 50
MAX_TITLE_LENGTH = 2_000


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
ALIGNMENTS: dict[str, Callable[[str, int], str]] = {
    "left": lambda text, width: text + " " * (width - cell_width(text)),
    "right": lambda text, width: " " * (width - cell_width(text)) + text,
    "center": lambda text, width: (" " * ((width - cell_width(text)) // 2) + text).ljust(
        width - cell_width(text) + len(text)
    ),
}


@dataclass(frozen=True, slots=True)
class Terminal:
    """What a stream can show; ``width`` is None where lines have no end, as in a file."""

    width: int | None
    has_color: bool


def terminal_of(stream: TextIO) -> Terminal:
    """Return what ``stream`` can show, honouring ``COLUMNS``, ``NO_COLOR`` and ``TERM=dumb``."""
    if not stream.isatty():
        return Terminal(None, False)
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
    return Terminal(shutil.get_terminal_size().columns, not is_plain)


def print_table(table: pa.Table, schema: Schema, *, file: TextIO | None = None, **options: Any) -> None:
    """Print a table as wide and as colourful as ``file`` (standard output) allows; options as in ``render_text``."""
    stream = file or sys.stdout
    terminal = terminal_of(stream)
    options = {"terminal_width": terminal.width, "color": terminal.has_color} | options
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = render_text(table, schema, **options) + "\n"
    stream.write(text.encode(encoding, "replace").decode(encoding))


# --- text -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    dtype: str
    cells: Sequence[str]
    is_null: Sequence[bool]
    align: str
    is_elastic: bool  # text may be squeezed to make room; a number or a date would be of no use
    width: int


def render_text(
    table: pa.Table,
    schema: Schema,
    *,
    total_rows: int | None = None,
    max_width: int = 30,
    format: str | None = "default",
    terminal_width: int | None = None,
    color: bool = False,
    verbose: bool | None = None,
    align: str | None = "auto",
) -> str:
    """Return an aligned table of all rows of ``table``, with a line below that says how many rows there are.

    ``total_rows`` is the number of rows the table was cut from, None if that is not known. No column is wider than
    ``max_width`` cells. Where ``terminal_width`` is given, text columns are narrowed to fit it, and then columns in
    the middle left out. ``verbose`` says whether the types are shown; by default they are, except in Markdown.

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
    style = _known("format", format or "default", FORMATS)
    align = _known("align", align or "auto", ("auto", *ALIGNMENTS))
    _require_positive("max_width", max_width)
    if style == "html":
        return render_html(table, schema, total_rows=total_rows)
    box = BOXES[style]
    verbose = style != "markdown" if verbose is None else verbose
    columns = _shown_columns(table, schema, box, max_width, terminal_width, align, verbose)
    if style == "markdown":
        columns = [_for_markdown(column) for column in columns]
    footer = format_footer(table.num_rows, total_rows, len(schema))
    if not columns:
        return footer
    return "\n".join([*_lines(columns, table.num_rows, box, style, verbose, color), footer])


def format_footer(num_rows: int, total_rows: int | None, num_columns: int) -> str:
    """Return the line that says how much of the data is shown.

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


def _known(what: str, value: str, options: Iterable[str]) -> str:
    names = list(options)
    if value not in names:
        hint = did_you_mean(str(value).lower(), names)
        raise InvalidArgumentError(f"{what}={value!r} is not known; known: {', '.join(names)}.{hint}")
    return value


def _require_positive(what: str, value: int) -> None:
    if value < 1:
        raise InvalidArgumentError(f"{what}={value!r} must be at least 1.")


def _shown_columns(
    table: pa.Table, schema: Schema, box: Box, max_width: int, terminal_width: int | None, align: str, verbose: bool
) -> list[_Column]:
    """Return the columns that fit, each as wide as it will be drawn."""
    num_columns = len(schema)
    # A column takes at least four cells: those that could never be shown are not even read.
    keep = num_columns if terminal_width is None else min(num_columns, terminal_width // 4 + 1)
    kept = _ends(range(num_columns), keep)
    columns = {position: _column(table, schema, position, max_width, align, verbose) for position in kept}
    while True:
        kept = _ends(range(num_columns), keep)
        shown = [columns[position] for position in kept]
        if hidden := num_columns - len(kept):
            shown.insert((keep + 1) // 2, _elided(hidden, table.num_rows, verbose))
        if terminal_width is None:
            return shown
        widest = max((column.width for column in shown if column.is_elastic), default=0)
        for cap in range(widest, MIN_COLUMN_WIDTH - 1 if keep > 1 else 3, -1):
            narrowed = [_narrowed(column, cap) for column in shown]
            if _total_width(narrowed, box) <= terminal_width:
                return narrowed
        if keep <= 1 or _total_width(shown, box) <= terminal_width:
            return shown
        keep -= 1


def _ends(positions: Sequence[int], keep: int) -> list[int]:
    """Return the first and the last positions, ``keep`` in all.

    >>> _ends(range(10), 5)
    [0, 1, 2, 8, 9]
    """
    if keep >= len(positions):
        return list(positions)
    return [*positions[: (keep + 1) // 2], *positions[len(positions) - keep // 2 :]]


def _column(table: pa.Table, schema: Schema, position: int, max_width: int, align: str, verbose: bool) -> _Column:
    field = schema[position]
    name = fit(visible_text(field.name[: 4 * max_width]), max_width)
    dtype = fit(visible_text(str(field.dtype)), max_width) if verbose else ""
    scalars = list(table.column(position))
    cells = [fit(cell_text(scalar, max_width), max_width) for scalar in scalars]
    return _Column(
        name,
        dtype,
        cells,
        [not scalar.is_valid for scalar in scalars],
        ("right" if field.dtype.is_numeric() else "left") if align == "auto" else align,
        not (field.dtype.is_numeric() or field.dtype.is_temporal() or field.dtype.is_boolean()),
        max(map(cell_width, (name, dtype, *cells))),
    )


def _elided(num_hidden: int, num_rows: int, verbose: bool) -> _Column:
    """Return the column that stands for those left out."""
    note = f"(+{format_count(num_hidden, 'column')})"
    name, dtype = (ELLIPSIS, note) if verbose else (f"{ELLIPSIS} {note}", "")
    return _Column(name, dtype, [ELLIPSIS] * num_rows, [False] * num_rows, "left", False, max(len(name), len(dtype)))


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
    name = _markdown_text(f"{column.name} ({column.dtype})" if column.dtype else column.name)
    cells = [_markdown_text(cell) for cell in column.cells]
    return replace(column, name=name, dtype="", cells=cells, width=max(3, *map(cell_width, (name, *cells))))


def _markdown_text(text: str) -> str:
    """Return ``text`` with what would end the cell, start a tag or make a link taken literally."""
    return re.sub(r"[\\|<]|(?<=\])\(", r"\\\g<0>", text)


def _lines(
    columns: Sequence[_Column], num_rows: int, box: Box, style: str, verbose: bool, color: bool
) -> Iterable[str]:
    def paint(text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if color and code and text.strip() else text

    def rule(line: str) -> str:
        left, fill, cross, right = tuple(line)
        return paint((left + cross.join(fill * (column.width + 2) for column in columns) + right).strip(" "), "2")

    def text(values: Sequence[str], codes: Sequence[str]) -> str:
        cells = []
        for column, value, code in zip(columns, values, codes, strict=True):
            padded = ALIGNMENTS[column.align](value, column.width)
            cells.append(f" {padded.replace(value, paint(value, code), 1) if value else padded} ")
        line = paint(box.left, "2") + paint(box.middle, "2").join(cells) + paint(box.right, "2")
        return line if box.right else line.rstrip(" ")

    if box.top:
        yield rule(box.top)
    yield text([column.name for column in columns], ["1"] * len(columns))
    if verbose and style != "markdown":
        yield text([column.dtype for column in columns], ["2"] * len(columns))
    if style == "markdown":
        marks = {"left": ":{}-", "right": "-{}:", "center": ":{}:"}
        yield "|" + "|".join(marks[column.align].format("-" * column.width) for column in columns) + "|"
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


# --- HTML -----------------------------------------------------------------------------------------------------------

# Colours are the page's own, thinned: one table serves light and dark notebooks.
_TABLE = "border-collapse:collapse;border:0;margin:0;font-size:13px;line-height:1.45"
_TH = "padding:4px 12px;border:0;border-bottom:1px solid rgba(128,128,128,.55);vertical-align:bottom;font-weight:600"
_TD = "padding:4px 12px;border:0;border-bottom:1px solid rgba(128,128,128,.18);vertical-align:top"
_NUMBER = ";text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"
_TEXT = ";text-align:left;white-space:nowrap"
_WRAPPED = "width:max-content;max-width:28em;white-space:normal;overflow-wrap:anywhere"
_FAINT = "opacity:.6;font-size:12px"


def render_html(table: pa.Table, schema: Schema, *, total_rows: int | None = None, max_width: int = 100) -> str:
    """Return a self-contained HTML table for ``_repr_html_``; longer text than ``max_width`` is in a tooltip."""
    _require_positive("max_width", max_width)
    footer = f'<div style="{_FAINT};padding:4px 12px">{format_footer(table.num_rows, total_rows, len(schema))}</div>'
    if len(schema) == 0:
        return footer
    positions = _ends(range(len(schema)), MAX_HTML_COLUMNS)
    head: list[str] = []
    columns: list[list[str]] = []
    for position in positions:
        dtype = schema[position].dtype
        side = _NUMBER if dtype.is_numeric() else _TEXT
        head.append(_header_html(schema[position].name, str(dtype), side))
        columns.append(
            [f'<td style="{_TD}{side}">{cell_html(v, dtype, max_width)}</td>' for v in table.column(position)]
        )
    if hidden := len(schema) - len(positions):
        middle = (MAX_HTML_COLUMNS + 1) // 2
        head.insert(middle, _header_html(ELLIPSIS, f"(+{format_count(hidden, 'column')})", _TEXT))
        columns.insert(middle, [f'<td style="{_TD}{_TEXT}">{ELLIPSIS}</td>'] * table.num_rows)
    plain_row = '<tr style="background:transparent">'
    rows = "".join(f"{plain_row}{''.join(cells)}</tr>\n" for cells in zip(*columns, strict=True))
    return (
        f'<div style="overflow-x:auto;max-width:100%">\n<table style="{_TABLE}">\n'
        f"<thead>{plain_row}{''.join(head)}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n{footer}\n</div>"
    )


def _header_html(name: str, dtype: str, side: str) -> str:
    name, dtype = visible_text(name), visible_text(dtype)
    title = html.escape(_clipped(f"{name}: {dtype}", MAX_TITLE_LENGTH))
    note = f'<div style="{_FAINT};font-weight:400">{html.escape(_clipped(dtype, 40))}</div>'
    return f'<th style="{_TH}{side}" title="{title}">{html.escape(_clipped(name, 60))}{note}</th>'


def cell_html(value: pa.Scalar, dtype: DataType, max_width: int = 100) -> str:
    """Return the content of one cell. What a type deserves beyond text, such as thumbnails, belongs here."""
    if not value.is_valid:
        return '<span style="opacity:.5;font-style:italic">None</span>'
    text = cell_text(value, max_width)
    if dtype.is_extension() and text.startswith("<"):
        return f'<code style="background:transparent;color:inherit;opacity:.7">{html.escape(text)}</code>'
    if len(text) <= max_width:
        return html.escape(text) if len(text) <= 30 else f'<div style="{_WRAPPED}">{html.escape(text)}</div>'
    title = html.escape(_clipped(cell_text(value, MAX_TITLE_LENGTH, newline="\n"), MAX_TITLE_LENGTH))
    return f'<div style="{_WRAPPED}" title="{title}">{html.escape(_clipped(text, max_width))}</div>'


def _clipped(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + ELLIPSIS


# --- values ---------------------------------------------------------------------------------------------------------


def cell_text(value: pa.Scalar, max_width: int, newline: str = "⏎") -> str:
    """Return a value as text on one line: all of it where it fits ``max_width`` cells, else somewhat more than fits."""
    text = _text(value, 4 * max_width)
    return "None" if text is None else visible_text(text, newline)


def _text(value: pa.Scalar, limit: int) -> str | None:
    """Return a value as text, which may end after ``limit`` characters; None for null."""
    if not value.is_valid:
        return None
    match value:
        case pa.StringScalar() | pa.LargeStringScalar():
            return _string(value, limit)
        case pa.BinaryScalar() | pa.LargeBinaryScalar() | pa.FixedSizeBinaryScalar():
            return _bytes(value, limit)
        case pa.BooleanScalar():
            return "true" if value.as_py() else "false"
        case pa.FloatScalar():
            return str(np.float32(value.as_py()))
        case pa.HalfFloatScalar():
            return str(np.float16(value.as_py()))
        case pa.TimestampScalar() | pa.Date32Scalar() | pa.Date64Scalar() | pa.Time32Scalar() | pa.Time64Scalar():
            return _moment(value)
        case pa.DurationScalar():
            return _duration(value)
        case pa.MapScalar():
            keys, items = value.values.field(0), value.values.field(1)
            pairs = (f"{_json(key, limit)}: {_json(item, limit)}" for key, item in zip(keys, items, strict=True))
            return _joined("{", pairs, "}", limit)
        case pa.ListScalar() | pa.LargeListScalar() | pa.FixedSizeListScalar() | pa.ListViewScalar():
            return _joined("[", (_json(item, limit) for item in value.values), "]", limit)
        case pa.StructScalar():
            names = (json.dumps(field.name, ensure_ascii=False) for field in value.type)
            pairs = (f"{name}: {_json(value[position], limit)}" for position, name in enumerate(names))
            return _joined("{", pairs, "}", limit)
        case pa.DictionaryScalar():
            return _text(value.value, limit)
        case pa.ExtensionScalar():
            return _extension(value, limit)
        case _:
            return str(value.as_py())


def _json(value: pa.Scalar, limit: int) -> str:
    """Return a value inside a list, struct or map: as JSON where JSON has it."""
    text = _text(value, limit)
    if text is None:
        return "null"
    is_text = isinstance(value, pa.StringScalar | pa.LargeStringScalar) or DataType(value.type).is_temporal()
    return json.dumps(text, ensure_ascii=False) if is_text else text


def _joined(opening: str, parts: Iterable[str], closing: str, limit: int) -> str:
    """Return the parts with commas between, as many as it takes to pass ``limit``."""
    texts: list[str] = []
    length = 0
    for part in parts:
        if length > limit:
            return f"{opening}{', '.join(texts)}, {ELLIPSIS}{closing}"
        texts.append(part)
        length += len(part) + 2
    return f"{opening}{', '.join(texts)}{closing}"


def _string(value: pa.Scalar, limit: int) -> str:
    buffer = value.as_buffer()
    is_whole = buffer.size <= 4 * limit
    # An incremental decoder holds back a character that the cut divides.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(buffer.slice(0, min(buffer.size, 4 * limit)).to_pybytes(), final=is_whole)
    return text if is_whole and len(text) <= limit else text[:limit] + ELLIPSIS


def _bytes(value: pa.Scalar, limit: int) -> str:
    buffer = value.as_buffer()
    shown = repr(buffer.slice(0, min(buffer.size, limit)).to_pybytes())[2:-1].replace('"', '\\"').replace("\\'", "'")
    return f'b"{shown}"' if buffer.size <= limit else f'b"{shown}{ELLIPSIS}"'


def _moment(value: pa.Scalar) -> str:
    try:
        text = str(value.cast(pa.string()).as_py())
    except pa.ArrowException:  # a timezone that this machine does not know
        text = str(pa.scalar(value.value, pa.timestamp(value.type.unit)).cast(pa.string()).as_py()) + "Z"
    return re.sub(r"\.0+(?=$|Z|[+-])", "", text)


def _duration(value: pa.Scalar) -> str:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[value.type.unit]
    seconds, rest = divmod(value.value, per_second)
    try:
        if rest * 10**6 % per_second == 0:
            return str(timedelta(seconds=seconds, microseconds=rest * 10**6 // per_second))
    except OverflowError:
        pass
    return f"{value.value} {value.type.unit}"


def _extension(value: pa.ExtensionScalar, limit: int) -> str | None:
    kind, stored = value.type, value.value
    match kind:
        case EmbeddingType():
            return f"<embedding {kind.size} x {DataType(kind.value_type)}>"
        case TensorType():
            shape = stored["shape"].as_py() or () if kind.shape is None else kind.shape
            return f"<tensor {'x'.join(map(str, shape)) or 'scalar'} {DataType(kind.value_type)}>"
        case ImageType():
            if kind.shape is not None:
                height, width, channels = kind.shape
            else:
                height, width, channels = (stored[name].as_py() for name in ("height", "width", "channels"))
            return f"<image {IMAGE_MODES.get(channels, '?')} {width}x{height}>"
        case FileType():
            if stored["path"].is_valid:
                return _text(stored["path"], limit)
            return f"<file {format_bytes(stored['data'].as_buffer().size)}>" if stored["data"].is_valid else "<file>"
        case PythonType():
            return _python(stored.as_buffer(), limit)
        case _:
            return _text(stored, limit)


class _NeedsClassError(Exception):
    """A pickle holds more than plain values; the argument is the class it names."""


class _PlainUnpickler(pickle.Unpickler):
    """Loads numbers, text and containers, and runs no code: looking at a file must not execute what it holds."""

    def find_class(self, module: str, name: str) -> Any:
        raise _NeedsClassError(f"{module}.{name}")


def _python(pickled: pa.Buffer, limit: int) -> str:
    size = format_bytes(pickled.size)
    try:
        plain = _PlainUnpickler(io.BytesIO(pickled)).load()
        short = reprlib.Repr()
        short.maxstring = short.maxother = limit
        return short.repr(plain)
    except _NeedsClassError as needs:
        name = str(needs)
        return f"<python {size}>" if name.startswith("cloudpickle") else f"<python {_clipped(name, 80)}, {size}>"
    except Exception:  # what a damaged pickle raises is anyone's guess
        return f"<python {size}>"
