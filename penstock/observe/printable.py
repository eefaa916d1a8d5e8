"""Text and numbers for people, safe to print on a terminal whatever they contain."""

from __future__ import annotations

import math
import os
import re
import shutil
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

ELLIPSIS = "…"
NEWLINE = "⏎"
MIN_WRAPPED = 20  # the least cells of a wrapped line

# Control characters can move the cursor or colour the screen, lone surrogates cannot be encoded, and the bidirectional
# controls change the order in which text reads. The joiners that emoji and Indic scripts need are left alone.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LINE_BREAK = re.compile("\r\n|[\n\r\u2028\u2029]")


def visible_text(text: str, newline: str = NEWLINE) -> str:
    r"""Return ``text`` on one line (unless ``newline`` breaks it), with invisible characters escaped.

    >>> visible_text("one\ntwo\tthree \x1b[31mred")
    'one⏎two three \\x1b[31mred'
    """
    if text.isprintable() and text.isascii():
        return text
    lines = _LINE_BREAK.split(text)
    return newline.join(_UNSAFE.sub(_escaped, line) for line in lines)


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    return " " if character == "\t" else ascii(character)[1:-1]


def fit_middle(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` cells, its middle replaced by an ellipsis where it is longer.

    The names of stages often differ at their end.

    >>> fit_middle("prompt gpt-5-mini as title", 20)
    'prompt gpt… as title'
    """
    if cell_width(text) <= width or not text.isascii():
        return fit(text, width)
    num_last = max(width - 1, 0) // 2
    return text[: max(width - 1, 0) - num_last] + ELLIPSIS + text[len(text) - num_last :]


def terminal_width(stream: TextIO) -> int | None:
    """Return the number of cells of a line on the terminal behind ``stream``; None if there is no terminal.

    The environment variable ``COLUMNS`` takes precedence.
    """
    if not stream.isatty():
        return None
    with suppress(OSError, ValueError):
        stated = os.environ.get("COLUMNS", "")
        return int(stated) if stated.isdecimal() and int(stated) else os.get_terminal_size(stream.fileno()).columns
    return shutil.get_terminal_size().columns


def cell_width(text: str) -> int:
    """Return the number of terminal cells that ``text`` takes: two for most Chinese, Japanese and emoji characters."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fit(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` cells, its end replaced by an ellipsis where it is longer.

    >>> fit("penstock", 5)
    'pens…'
    """
    if cell_width(text) <= width:
        return text
    if text.isascii():
        return text[: max(width - 1, 0)] + ELLIPSIS
    from rich.cells import set_cell_size

    return set_cell_size(text, max(width - 1, 0)) + ELLIPSIS


def wrapped_text(text: str, width: int | None, indent: str = "  ") -> list[str]:
    """Return a text in lines of ``width`` cells, the second and later ones with an indent.

    >>> wrapped_text("finished in 2.0 s; most work in Map", 24)
    ['finished in 2.0 s; most', '  work in Map']
    """
    if width is None or cell_width(text) <= width:
        return [text]
    return textwrap.wrap(text, max(width, MIN_WRAPPED), subsequent_indent=indent, break_on_hyphens=False) or [text]


def aligned_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table of texts as lines, the first column on the left and the others on the right.

    >>> aligned_lines(("stage", "rows"), [("read", "1,000")])
    ['stage   rows', '-----  -----', 'read   1,000']
    """
    widths = [max(map(cell_width, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for first, *others in (header, ["-" * width for width in widths], *rows):
        cells = [first + " " * (widths[0] - cell_width(first))]
        cells += [" " * (width - cell_width(cell)) + cell for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells))
    return lines


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> format_count(1, "row"), format_count(12345, "row")
    ('1 row', '12,345 rows')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_bytes(nbytes: float) -> str:
    """Return a size in units of a thousand.

    >>> format_bytes(512), format_bytes(1_234_567), format_bytes(999_950)
    ('512 B', '1.2 MB', '1.0 MB')
    """
    if nbytes < 1000:
        return f"{nbytes:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        nbytes /= 1000
        if nbytes < 999.95:
            return f"{nbytes:.1f} {unit}"
    return f"{nbytes / 1000:.1f} PB"


def format_seconds(seconds: float) -> str:
    """Return a duration, the shorter the more precise.

    >>> format_seconds(0.0123), format_seconds(12.34), format_seconds(75), format_seconds(3725)
    ('12 ms', '12.3 s', '1m 15s', '1h 02m')
    """
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    return f"{minutes // 60}h {minutes % 60:02d}m"


def format_about(seconds: float) -> str:
    """Return an estimated duration, rounded to the precision of an estimate.

    >>> format_about(0.4), format_about(25.3), format_about(83), format_about(3725)
    ('1 s', '25 s', '1m 25s', '1h 02m')
    """
    if seconds < 60:
        return f"{max(math.ceil(seconds - 0.5), 1)} s"
    return format_seconds(5 * round(seconds / 5))


def format_rate(per_second: float) -> str:
    """Return a number of rows per second.

    >>> format_rate(0.25), format_rate(12_345.6)
    ('0.2 rows/s', '12,346 rows/s')
    """
    return f"{per_second:,.0f} rows/s" if per_second >= 10 else f"{per_second:.1f} rows/s"


def format_number(value: float) -> str:
    """Return a number with separators.

    >>> format_number(12345), format_number(0.123456)
    ('12,345', '0.1235')
    """
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.4g}"


def format_dollars(amount: float) -> str:
    """Return an amount with cents; a smaller one with two significant digits.

    >>> format_dollars(12.345), format_dollars(0.00012345), format_dollars(0)
    ('$12.35', '$0.00012', '$0.00')
    """
    if amount >= 0.01 or not amount:
        return f"${amount:,.2f}"
    return f"${amount:.2g}" if amount >= 0.0001 else f"${amount:.8f}".rstrip("0")
