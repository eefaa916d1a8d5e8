"""Tables in a notebook: self-contained HTML. All data is escaped."""

from __future__ import annotations

import base64
import html
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import MissingExtraError
from penstock.frame.display.cells import cell_text, clipped, ends, format_footer, require_positive
from penstock.media.images.encoder import encoded, holds
from penstock.media.images.pixels import resize_into
from penstock.observe.printable import ELLIPSIS, format_count, visible_text
from penstock.types import DataType, Schema

MAX_HTML_COLUMNS = 50
MAX_TITLE_LENGTH = 2_000
MAX_SIDE = 100  # pixels
MIN_SIDE = 32  # smaller images are enlarged, with visible pixels
QUALITY = 85

# Colours are transparent shades of the page's own, so that they suit light and dark notebooks.
TABLE = "border-collapse:collapse;border:0;margin:0;font-size:13px;line-height:1.45"
TH = "padding:4px 12px;border:0;border-bottom:1px solid rgba(128,128,128,.55);vertical-align:bottom;font-weight:600"
TD = "padding:4px 12px;border:0;border-bottom:1px solid rgba(128,128,128,.18);vertical-align:top"
NUMBER = ";text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"
TEXT = ";text-align:left;white-space:nowrap"
FAINT = "opacity:.6;font-size:12px"

_WRAPPED = "width:max-content;max-width:28em;white-space:normal;overflow-wrap:anywhere"


def render_html(table: pa.Table, schema: Schema, *, total_rows: int | None = None, max_width: int = 100) -> str:
    """Return a self-contained HTML table for ``_repr_html_``; text longer than ``max_width`` is in a tooltip."""
    require_positive("max_width", max_width)
    footer = f'<div style="{FAINT};padding:4px 12px">{format_footer(table.num_rows, total_rows, len(schema))}</div>'
    if len(schema) == 0:
        return footer
    positions = ends(range(len(schema)), MAX_HTML_COLUMNS)
    head: list[str] = []
    columns: list[list[str]] = []
    for position in positions:
        dtype = schema[position].dtype
        side = NUMBER if dtype.is_numeric() else TEXT
        head.append(_header_html(schema[position].name, str(dtype), side))
        columns.append(
            [f'<td style="{TD}{side}">{cell_html(v, dtype, max_width)}</td>' for v in table.column(position)]
        )
    if hidden := len(schema) - len(positions):
        middle = (MAX_HTML_COLUMNS + 1) // 2
        head.insert(middle, _header_html(ELLIPSIS, f"(+{format_count(hidden, 'column')})", TEXT))
        columns.insert(middle, [f'<td style="{TD}{TEXT}">{ELLIPSIS}</td>'] * table.num_rows)
    plain_row = '<tr style="background:transparent">'
    rows = "".join(f"{plain_row}{''.join(cells)}</tr>\n" for cells in zip(*columns, strict=True))
    return (
        f'<div style="overflow-x:auto;max-width:100%">\n<table style="{TABLE}">\n'
        f"<thead>{plain_row}{''.join(head)}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n{footer}\n</div>"
    )


def _header_html(name: str, dtype: str, side: str) -> str:
    name, dtype = visible_text(name), visible_text(dtype)
    title = html.escape(clipped(f"{name}: {dtype}", MAX_TITLE_LENGTH))
    note = f'<div style="{FAINT};font-weight:400">{html.escape(clipped(dtype, 40))}</div>'
    return f'<th style="{TH}{side}" title="{title}">{html.escape(clipped(name, 60))}{note}</th>'


def cell_html(value: pa.Scalar, dtype: DataType, max_width: int = 100) -> str:
    """Return the content of one cell: a thumbnail of an image, or text."""
    if not value.is_valid:
        return '<span style="opacity:.5;font-style:italic">None</span>'
    text = cell_text(value, max_width)
    if dtype.is_image() and (picture := thumbnail_html(value.as_py(), html.escape(text.strip("<>")))):
        return picture
    if dtype.is_special() and text.startswith("<"):
        return f'<code style="background:transparent;color:inherit;opacity:.7">{html.escape(text)}</code>'
    if len(text) <= max_width:
        return html.escape(text) if len(text) <= 30 else f'<div style="{_WRAPPED}">{html.escape(text)}</div>'
    title = html.escape(clipped(cell_text(value, MAX_TITLE_LENGTH, newline="\n"), MAX_TITLE_LENGTH))
    return f'<div style="{_WRAPPED}" title="{title}">{html.escape(clipped(text, max_width))}</div>'


def thumbnail_html(pixels: np.ndarray[Any, Any], title: str) -> str | None:
    """Return an ``<img>`` with embedded data, None if the image packages are not installed. ``title`` is HTML."""
    try:
        small = _scaled_down(pixels)
        is_photo = max(small.shape[:2]) > MIN_SIDE and holds("JPEG", small.shape[2])
        encoding = "JPEG" if is_photo else "PNG"
        content = base64.b64encode(encoded(small, encoding, QUALITY)).decode()
    except MissingExtraError:
        return None
    height, width = small.shape[:2]
    factor = max(1, MIN_SIDE // max(height, width))
    look = "display:block;max-width:none;margin:0;border-radius:3px" + ";image-rendering:pixelated" * (factor > 1)
    return (
        f'<img src="data:image/{encoding.lower()};base64,{content}" width="{factor * width}" '
        f'height="{factor * height}" alt="{title}" title="{title}" style="{look}">'
    )


def _scaled_down(pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    height, width, channels = pixels.shape
    scale = MAX_SIDE / max(height, width)
    if scale >= 1:
        return pixels
    small = np.empty((max(1, round(height * scale)), max(1, round(width * scale)), channels), np.uint8)
    resize_into(pixels, small)
    return small
