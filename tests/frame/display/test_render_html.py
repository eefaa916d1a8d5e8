"""The table of a notebook: well-formed, escaped, bounded."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import InvalidArgumentError
from penstock.frame.display.html import MAX_HTML_COLUMNS, MAX_TITLE_LENGTH, cell_html, render_html
from penstock.types import DataType, EmbeddingType, Schema

EVIL = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)",
    "</td></table><iframe src=javascript:alert(1)>",
    "&lt;b&gt;",
    "<!-- --><svg/onload=alert(1)>" * 50,
    "'\"><script>alert(1)</script>" * 100,
]


class Page(HTMLParser):
    """Reads a page as a browser would: its elements, attributes and text, and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open or "th" in self.open:
            self.cells[-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"comment {data!r}")


def render(table: pa.Table, **options: Any) -> str:
    return render_html(table, Schema.from_arrow(table.schema), **options)


def test_names_types_values_and_footer() -> None:
    text = render(pa.table({"id": [1, 20], "text": ["a", None]}), total_rows=1000)
    assert Page(text).cells == ["idint64", "textstring", "1", "a", "20", "None"]
    assert "(showing first 2 of 1,000 rows)" in text


def test_nulls_are_told_from_the_word() -> None:
    assert "italic" in cell_html(pa.scalar(None, pa.string()), DataType.string())
    assert cell_html(pa.scalar("None"), DataType.string()) == "None"


def test_numbers_are_on_the_right() -> None:
    page = Page(render(pa.table({"n": [1.5], "text": ["a"]})))
    sides = ["text-align:right" in (attrs["style"] or "") for tag, attrs in page.elements if tag in ("th", "td")]
    assert sides == [True, False, True, False]


def test_no_markup_comes_from_the_data() -> None:
    table = pa.table(
        {evil: [evil] for evil in EVIL}
        | {"list": [EVIL], "struct": [dict.fromkeys(EVIL, "x")], "bytes": ["".join(EVIL).encode()]}
    )
    page = Page(render(table))
    assert {tag for tag, _ in page.elements} <= {"div", "table", "thead", "tbody", "tr", "th", "td", "span"}
    assert {name for _, attrs in page.elements for name in attrs} == {"style", "title"}
    assert EVIL[0] in page.cells
    styles = "".join(attrs.get("style") or "" for _, attrs in page.elements)
    assert "alert" not in styles


def test_long_text_is_cut_and_its_start_is_in_the_tooltip() -> None:
    page = Page(cell_html(pa.scalar("line one\n" + "x" * 100_000), DataType.string(), 100))
    ((_, attrs),) = page.elements
    title = attrs["title"] or ""
    assert title.startswith("line one\nxxx")
    assert len(title) == MAX_TITLE_LENGTH
    assert title.endswith("…")


def test_the_page_stays_small() -> None:
    assert len(render(pa.table({"text": ["x" * 1_000_000] * 8}))) < 8 * (MAX_TITLE_LENGTH + 1_000)


def test_control_characters_are_written_out() -> None:
    text = render(pa.table({"\x00name\u202e": ["\x1b[31m\x00\u202e" + "y" * 200]}))
    assert not {"\x00", "\x1b", "\u202e"} & set(text)


def test_extension_values_are_placeholders() -> None:
    kind = EmbeddingType(pa.float32(), 2)
    array = pa.ExtensionArray.from_storage(kind, pa.array([[1, 2]], kind.storage_type))
    assert Page(render(pa.table({"e": array}))).cells[-1] == "<embedding 2 x float32>"


def test_too_many_columns_are_left_out_in_the_middle() -> None:
    page = Page(render(pa.table({f"c{number}": [number] for number in range(500)})))
    assert len(page.cells) == 2 * (MAX_HTML_COLUMNS + 1)
    assert f"…(+{500 - MAX_HTML_COLUMNS} columns)" in page.cells
    assert "c499int64" in page.cells


def test_empty_tables() -> None:
    assert "(no rows)" in render(pa.table({"a": pa.array([], pa.int64())}))
    assert "(no columns)" in render(pa.table({}))


def test_a_bad_width_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="max_width=-1"):
        render(pa.table({"a": [1]}), max_width=-1)
