"""The text table, character by character, and what it does when there is no room."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import pyarrow as pa
import pytest
from rich.cells import cell_len

import penstock as ps
from penstock.errors import InvalidArgumentError
from penstock.frame.display.text import FORMATS, print_table, render_text
from penstock.types import Schema

SMALL = pa.table({"id": [1, 20, None], "text": ["a", "it|is\nlong " * 5, "漢字"], "tags": [["x", None], None, []]})


def render(table: pa.Table, **options: Any) -> str:
    return render_text(table, Schema.from_arrow(table.schema), **options)


def widths_of(text: str) -> set[int]:
    """Return the widths of the lines of the table, which is one width if it is aligned."""
    return {cell_len(line) for line in text.splitlines()[:-1]}


GOLDEN = {
    "default": """\
╭───────┬──────────────┬──────────────╮
│    id │ text         │ tags         │
│ int64 │ string       │ list[string] │
├───────┼──────────────┼──────────────┤
│     1 │ a            │ ["x", null]  │
│    20 │ it|is⏎long … │ None         │
│  None │ 漢字         │ []           │
╰───────┴──────────────┴──────────────╯
(showing first 3 of 1,000 rows)""",
    "fancy": """\
╭───────┬──────────────┬──────────────╮
│    id ┆ text         ┆ tags         │
│ int64 ┆ string       ┆ list[string] │
╞═══════╪══════════════╪══════════════╡
│     1 ┆ a            ┆ ["x", null]  │
├╌╌╌╌╌╌╌┼╌╌╌╌╌╌╌╌╌╌╌╌╌╌┼╌╌╌╌╌╌╌╌╌╌╌╌╌╌┤
│    20 ┆ it|is⏎long … ┆ None         │
├╌╌╌╌╌╌╌┼╌╌╌╌╌╌╌╌╌╌╌╌╌╌┼╌╌╌╌╌╌╌╌╌╌╌╌╌╌┤
│  None ┆ 漢字         ┆ []           │
╰───────┴──────────────┴──────────────╯
(showing first 3 of 1,000 rows)""",
    "grid": """\
┌───────┬──────────────┬──────────────┐
│    id │ text         │ tags         │
│ int64 │ string       │ list[string] │
╞═══════╪══════════════╪══════════════╡
│     1 │ a            │ ["x", null]  │
├───────┼──────────────┼──────────────┤
│    20 │ it|is⏎long … │ None         │
├───────┼──────────────┼──────────────┤
│  None │ 漢字         │ []           │
└───────┴──────────────┴──────────────┘
(showing first 3 of 1,000 rows)""",
    "simple": """\
    id   text           tags
 int64   string         list[string]
-------+--------------+--------------
     1   a              ["x", null]
    20   it|is⏎long …   None
  None   漢字           []
(showing first 3 of 1,000 rows)""",
    "plain": """\
    id  text          tags
 int64  string        list[string]
     1  a             ["x", null]
    20  it|is⏎long …  None
  None  漢字          []
(showing first 3 of 1,000 rows)""",
    "markdown": """\
|   id | text          | tags        |
|-----:|:--------------|:------------|
|    1 | a             | ["x", null] |
|   20 | it\\|is⏎long … | None        |
| None | 漢字          | []          |
(showing first 3 of 1,000 rows)""",
}


@pytest.mark.parametrize("style", GOLDEN)
def test_each_format_is_drawn_exactly_so(style: str) -> None:
    assert render(SMALL, total_rows=1000, format=style, max_width=12) == GOLDEN[style]


def test_every_format_has_a_golden_table_but_html() -> None:
    assert {*GOLDEN, "html"} == set(FORMATS)
    assert render(SMALL, format="html").startswith("<div")


def test_none_is_the_default_format() -> None:
    assert render(SMALL, format=None) == render(SMALL, format="default")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("format", "markdwn", "format='markdwn' is not known; use one of default, .*, html. Did you mean 'markdown'?"),
        ("format", "Fancy", "Did you mean 'fancy'?"),
        ("max_width", 0, "max_width=0 must be at least 1"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(option: str, value: object, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message.replace("?", r"\?")):
        render(SMALL, **{option: value})


@pytest.mark.parametrize(
    ("num_rows", "total_rows", "footer"),
    [
        (8, 1000, "(showing first 8 of 1,000 rows)"),
        (8, None, "(showing first 8 rows)"),
        (1, None, "(showing first 1 row)"),
        (8, 8, "(8 rows)"),
        (1, 1, "(1 row)"),
        (0, 0, "(no rows)"),
        (0, None, "(no rows)"),
    ],
)
def test_the_footer_says_how_much_is_shown(num_rows: int, total_rows: int | None, footer: str) -> None:
    text = render(pa.table({"a": range(num_rows)}), total_rows=total_rows)
    assert text.splitlines()[-1] == footer


def test_no_columns() -> None:
    assert render(pa.table({})) == "(no columns)"


def test_an_empty_table_still_shows_its_columns() -> None:
    assert render(SMALL.slice(0, 0)).splitlines()[1] == "│    id │ text   │ tags         │"


def test_numbers_stand_at_the_right_and_text_of_any_width_at_the_left() -> None:
    assert render(pa.table({"ab": ["7", "漢"]}), format="plain").splitlines()[2:4] == [" 7", " 漢"]
    assert render(pa.table({"ab": [7, 12]}), format="markdown").splitlines()[1] == "|----:|"


def test_wide_characters_are_counted_as_terminals_draw_them() -> None:
    texts = ["plain", "漢字かな交じり文", "👍 emoji", "👨‍👩‍👧 family", "e\u0301 combining", "हिन्दी", "한국어", "ﾊﾝｶｸ"]
    assert len(widths_of(render(pa.table({"text": texts, "n": range(8)})))) == 1
    for max_width in range(1, 12):
        assert len(widths_of(render(pa.table({"text": texts, "n": range(8)}), max_width=max_width))) == 1


@pytest.mark.parametrize("max_width", [1, 2, 7, 30, 80])
def test_no_column_is_wider_than_max_width(max_width: int) -> None:
    table = pa.table({"x" * 50: ["y" * 200], "b": [b"z" * 200], "s": [{"key": "v" * 200}], "漢" * 50: ["字" * 99]})
    rule = render(table, max_width=max_width).splitlines()[0]
    widths = [len(part) - 2 for part in rule[1:-1].split("┬")]
    assert len(widths) == 4
    assert max(widths) == max_width


@pytest.mark.parametrize("style", ["default", "fancy", "grid", "simple", "plain"])
@pytest.mark.parametrize("width", [30, 40, 57, 80, 133, 400])
def test_the_table_fits_the_terminal(width: int, style: str) -> None:
    table = pa.table({f"column {number}": ["some text " * number] for number in range(12)})
    text = render(table, terminal_width=width, format=style)
    assert max(cell_len(line) for line in text.splitlines()[:-1]) <= width


def test_text_is_narrowed_before_columns_are_left_out() -> None:
    table = pa.table({"a": ["word " * 9], "b": ["word " * 9], "when": pa.array([0], pa.timestamp("us"))})
    text = render(table, terminal_width=60)
    assert "columns" not in text
    assert "1970-01-01 00:00:00" in text
    assert widths_of(text) == {59}  # the two text columns are equally wide


def test_columns_in_the_middle_are_left_out() -> None:
    table = pa.table({f"c{number}": [number] for number in range(20)})
    assert (
        render(table, terminal_width=50)
        == """\
╭───────┬───────┬───────────────┬───────┬───────╮
│    c0 │    c1 │ …             │   c18 │   c19 │
│ int64 │ int64 │ (+16 columns) │ int64 │ int64 │
├───────┼───────┼───────────────┼───────┼───────┤
│     0 │     1 │ …             │    18 │    19 │
╰───────┴───────┴───────────────┴───────┴───────╯
(showing first 1 row)"""
    )
    assert "… (+18 columns)" in render(table, terminal_width=30, format="markdown")


def test_ten_thousand_columns_are_shown_as_some() -> None:
    table = pa.table({f"c{number}": [number] for number in range(10_000)})
    text = render(table, terminal_width=80)
    assert "c9999" in text
    assert len(widths_of(text)) == 1


def test_colour_marks_nulls_and_changes_nothing_else() -> None:
    painted = render(SMALL, color=True)
    assert "\x1b[2mNone\x1b[0m" in painted
    assert "\x1b[1mid\x1b[0m" in painted
    assert re.sub(r"\x1b\[\d+m", "", painted) == render(SMALL)


def test_the_text_none_is_not_painted_as_null() -> None:
    assert "\x1b[2mNone" not in render(pa.table({"a": ["None"]}), color=True)


def test_a_file_gets_no_colour_and_no_limit() -> None:
    out = io.StringIO()
    table = pa.table({f"c{number}": [number] for number in range(50)})
    print_table(table, Schema.from_arrow(table.schema), file=out, total_rows=1)
    assert "\x1b" not in out.getvalue()
    assert "c25" in out.getvalue()


def test_a_stream_that_knows_no_box_characters_does_not_fail() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    print_table(SMALL, Schema.from_arrow(SMALL.schema), file=out)
    out.flush()
    assert b"int64" in raw.getvalue()


def test_a_terminal_gets_colour_and_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = pa.table({f"c{number}": [number] for number in range(50)})
    assert "\x1b[1m" in (colored := printed_on_terminal(table))
    assert "c25" not in colored
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in printed_on_terminal(table)


LONG = "the quick brown fox jumps over the lazy dog " * 10


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_text_columns_use_the_room_of_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    table = pa.table({"id": [1, 2], "question": [LONG, "short"], "label": ["good", "bad"], "answer": [LONG, LONG]})
    lines = printed_on_terminal(table, width).splitlines()[:-1]
    assert {cell_len(line) for line in lines} <= {width - 1, width}  # an odd cell may remain
    assert lines[4].count("…") == 2
    assert "good" in lines[4]


def test_a_short_column_leaves_its_room_to_others() -> None:
    table = pa.table({"a": ["x" * 10], "b": [LONG]})
    line = render(table, terminal_width=100).splitlines()[4]
    assert "x" * 10 in line
    assert cell_len(line) == 100


def test_max_width_holds_on_a_wide_terminal_too() -> None:
    assert max(widths_of(render(pa.table({"a": [LONG]}), terminal_width=200, max_width=30))) == 34


def test_without_a_terminal_a_column_has_thirty_cells() -> None:
    assert widths_of(render(pa.table({"a": [LONG], "b": [LONG]}))) == {2 * 33 + 1}


def test_show_and_repr_use_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    df = ps.from_pydict({"a": [LONG]}).collect()
    with terminal(100) as (stream, read):
        monkeypatch.setattr(sys, "stdout", stream)
        shown = repr(df)
        df.show()
        assert read().splitlines()[:-1] == shown.splitlines()[:-1]
    assert widths_of(shown) == {100}


def printed_on_terminal(table: pa.Table, width: int | None = None) -> str:
    with terminal(width) as (stream, read):
        print_table(table, Schema.from_arrow(table.schema), file=stream)
        return read()


@contextmanager
def terminal(width: int | None) -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """Yield a terminal of some width, and a function that returns what was written to it."""
    controller, terminal = pty.openpty()
    if width is not None:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    with os.fdopen(terminal, "w", encoding="utf-8") as stream:

        def read() -> str:
            stream.write("END\n")
            stream.flush()
            text = b""
            while not text.endswith(b"END\r\n"):
                text += os.read(controller, 1 << 16)
            return text.decode().removesuffix("END\r\n")

        yield stream, read
    os.close(controller)
