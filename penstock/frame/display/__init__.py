"""Tables on a terminal and in a notebook. All data is shown as text; none is interpreted.

cells    values as text, and the part of a table that is shown
text     aligned text, fitted to the width of the terminal
html     self-contained HTML

It may import ``types``, ``media`` and ``observe.printable``.
"""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa

from penstock.frame.display.html import render_html
from penstock.frame.display.text import check_format, print_table, render_text
from penstock.observe.screens import is_notebook
from penstock.types import Schema

__all__ = ["check_format", "print_table", "render_html", "render_text", "show"]


def show(
    table: pa.Table, schema: Schema, *, format: str = "default", max_width: int | None = None, **options: Any
) -> None:
    """Print a table; in a notebook, display it as HTML unless another format is asked for."""
    if is_notebook() and format in ("default", "html"):
        display: Any = sys.modules["IPython"].display
        display.display(display.HTML(render_html(table, schema, max_width=max(max_width or 0, 100), **options)))
    else:
        print_table(table, schema, format=format, max_width=max_width, **options)
