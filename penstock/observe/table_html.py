"""Tables of texts in a notebook: self-contained HTML. Everything is escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence

from penstock.observe.printable import visible_text

# Colours are transparent shades of the page's own, so that they suit light and dark notebooks.
TABLE = "border-collapse:collapse;border:0;margin:0;font-size:13px;line-height:1.45"
TH = "padding:4px 12px;border:0;border-bottom:1px solid rgba(128,128,128,.55);vertical-align:bottom;font-weight:600"
TD = "padding:4px 12px;border:0;border-bottom:1px solid rgba(128,128,128,.18);vertical-align:top"
NUMBER = ";text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"
TEXT = ";text-align:left;white-space:nowrap"
FAINT = "opacity:.6;font-size:12px"


def plain_table_html(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """Return a table of texts, the first column on the left and the others on the right, with lines above and below."""

    def line(cells: Sequence[str], tag: str, style: str) -> str:
        drawn = [
            f'<{tag} style="{style}{NUMBER if place else TEXT}">{html.escape(visible_text(cell))}</{tag}>'
            for place, cell in enumerate(cells)
        ]
        return f'<tr style="background:transparent">{"".join(drawn)}</tr>\n'

    table = ""
    if rows:
        body = "".join(line(row, "td", TD) for row in rows)
        table = f'<table style="{TABLE}">\n<thead>{line(header, "th", TH)}</thead>\n<tbody>\n{body}</tbody>\n</table>\n'
    below = "".join(f"<div>{html.escape(visible_text(note))}</div>\n" for note in notes)
    return (
        f'<div style="overflow-x:auto;max-width:100%">\n'
        f'<div style="padding:4px 12px;font-size:13px">{html.escape(visible_text(title))}</div>\n'
        f'{table}<div style="{FAINT};padding:4px 12px">\n{below}</div>\n</div>'
    )
