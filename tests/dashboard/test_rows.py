"""Rows are sorted, filtered, counted, exported and reviewed; what a person chose is in the address."""

from __future__ import annotations

import datetime
import io
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, Route, expect

import penstock as ps
from penstock.dashboard.job import JobBoard
from penstock.dashboard.row_pages import pages
from penstock.dashboard.row_pages.export import exported, shapes
from penstock.dashboard.row_pages.found_rows import RowsRequest
from penstock.dashboard.row_pages.pages import _scanned_rows
from penstock.dashboard.row_pages.parquet_rows import parquet_rows
from penstock.dashboard.row_pages.row_search import NUMBER, selected
from penstock.errors import InvalidArgumentError
from penstock.frame.read.by_extension import read_files
from tests.dashboard.test_job import MARKUP, served
from tests.dashboard.test_live import check_access

NUM_ROWS = 300


class Answer(TypedDict):
    label: str
    cost: float
    text: str


def write_rows(out: Path, suffix: str = "") -> None:
    @ps.func(on_error="ignore", use_process=False, version="1")
    def answer(id: int) -> Answer:
        if id in (41, 42):
            raise ValueError(f"row {id} has no answer")
        return {
            "label": ("good", "bad")[id % 2],
            "cost": id / 1000,
            "text": f"**{id}** {MARKUP}{suffix if id < 3 else ''}",
        }

    df = ps.range(NUM_ROWS).with_column("a.b", ps.col("id") % 7)
    df.with_column("answer", answer(ps.col("id"))).write_parquet(str(out), resume=True)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rows") / "out"
    write_rows(out)
    return out


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_SEARCH_S", 60.0)  # a busy machine takes its time


@pytest.fixture(scope="module")
def board(job: Path) -> JobBoard:
    return JobBoard([str(job)])


def ids(page: dict[str, Any]) -> list[int]:
    return [int(row["cells"][0]["text"]) for row in page["rows"]]


def test_a_row_that_is_no_whole_number_is_refused(board: JobBoard) -> None:
    with pytest.raises(InvalidArgumentError, match=r"The number of a row is a whole number from 0 on; got 1\.5\."):
        board.rows({"alone": "1", "jump": "1.5"})


def test_rows_are_sorted_and_filtered_by_columns_and_fields(board: JobBoard) -> None:
    found = board.rows({"sort": "answer.cost", "desc": "1"})
    assert ids(found) == list(range(299, 274, -1))
    assert ids(board.rows({"sort": "answer.cost", "desc": "1", "first": "290"})) == [*range(7, -1, -1), 41, 42]
    where = orjson.dumps([["answer.label", "is", "bad"], ["id", "over", "100"], ["a.b", "is", "3"]]).decode()
    found = board.rows({"where": where})
    assert ids(found) == [id for id in range(101, 300) if id % 2 and id % 7 == 3][:25]
    assert ids(board.rows({"status": "failed"})) == [41, 42]
    assert ids(board.rows({"status": "answered", "where": '[["id", "under", "44"], ["id", "over", "39"]]'})) == [40, 43]
    alone = board.rows({"sort": "id", "desc": "1", "first": "120", "alone": "1"})
    assert (alone["before"], alone["after"]) == (121, 119)
    for wrong in ({"sort": "nothing"}, {"where": '[["id", "over", "many"]]'}, {"where": '[["id", "near", "1"]]'}):
        with pytest.raises(InvalidArgumentError):
            board.rows(wrong)


@pytest.mark.parametrize(
    ("asked", "places"),
    [
        ({"search": "red"}, [0, 2]),  # in any case, in structs and lists; neither in images nor in embeddings
        ({"search": "2.5"}, [1]),
        ({"where": '[["tags", "over", "1"]]'}, [1]),
        ({"where": '[["text", "is not", "Red"]]'}, [1, 2]),
        ({"where": '[["text", "null", ""]]'}, [2]),
        ({"where": '[["answer.label", "has", "RED"]]'}, [2]),
        ({"where": '[["image", "is", "1"]]'}, []),
        ({"sort": "text"}, [1, 0, 2]),
        ({"sort": "tags", "desc": "1"}, [1, 0, 2]),
        ({"sort": "vector"}, [0, 1, 2]),
    ],
)
def test_values_of_any_type_are_found_and_sorted(asked: dict[str, str], places: list[int]) -> None:
    pixels = [np.zeros((2, 2, 3), np.uint8)] * 3
    values = {
        "text": ["Red", "green", None],
        "number": [1.0, 2.5, None],
        "tags": [["x"], ["y", "z"], None],
        "answer": [{"label": "blue"}, {"label": None}, {"label": "dark RED"}],
        "vector": [np.full(2, 2.5, np.float32)] * 3,
        "image": pixels,
    }
    rows = ps.from_pydict(values).with_column("image", ps.col("image").cast(ps.DataType.image("RGB")))
    assert selected(rows, {}, RowsRequest.of(asked)).to_pydict()[NUMBER] == places


def test_a_selection_is_counted_and_exported(board: JobBoard) -> None:
    rows = board.table({"where": '[["answer.label", "is", "good"]]'}, 1000)
    assert rows.num_rows == NUM_ROWS // 2 - 1
    found = {shape["facet"]: shape for shape in shapes(board.table({}, 1000))}
    assert found["answer.label"]["bars"] == [["good", 149], ["bad", 149]]
    assert (found["answer.cost"]["least"], found["answer.cost"]["num_null"]) == (0.0, 2)
    assert pq.read_table(io.BytesIO(exported(rows, "parquet"))).equals(rows)
    assert [orjson.loads(line) for line in exported(rows, "jsonl").splitlines()] == rows.to_pylist()
    assert exported(rows, "csv").count(b"\n") == rows.num_rows + 1


def test_a_person_reads_and_reviews_rows(job: Path, page: Page) -> None:
    with served(job) as server:
        page.goto(server.url)
        page.locator("#error-kinds a").click()
        expect(page.locator("#rows-summary")).to_have_text("2 rows found among 300.")
        page.get_by_role("button", name="Open row 41").click()
        expect(page.locator("#row-title")).to_contain_text("Row 41")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#row-body")).to_contain_text("row 42 has no answer")
        expect(page.get_by_role("button", name="Next row")).to_be_disabled()
        page.get_by_role("button", name="Thumb down").click()
        page.get_by_label("Note", exact=True).fill(MARKUP)
        page.get_by_label("Note", exact=True).press("Tab")
        expect(page.locator("#said")).to_contain_text("_reviews")
        check_access(page)
        page.reload()
        expect(page.get_by_label("Note", exact=True)).to_have_value(MARKUP)
        expect(page.locator("#rows-summary")).to_have_text("2 rows found among 300.")
        page.set_viewport_size({"width": 390, "height": 800})
        check_access(page)
        page.set_viewport_size({"width": 1280, "height": 900})
        page.get_by_role("button", name="Close").click()
        page.get_by_role("link", name="Remove the filter").click()
        page.get_by_label("Status").select_option("")
        page.get_by_label("Sort by").select_option("answer.cost")
        page.get_by_label("Largest first").check()
        expect(page.get_by_role("button", name="Open row 299")).to_be_visible()
        page.get_by_role("button", name="Open row 298").click()
        expect(page.locator("#row-body .fields")).to_contain_text("good")
        page.get_by_label("View", exact=True).select_option("json")
        expect(page.locator("#row-body pre")).to_contain_text('"label": "good"')
        page.get_by_role("button", name="Close").click()
        page.get_by_text("Filter by column, hide columns").click()
        page.get_by_role("button", name="Distributions").click()
        page.locator("#shapes").get_by_role("link", name="bad").click()
        expect(page.locator("#rows-summary")).to_have_text("149 rows found among 300. These are 25 of them.")
        check_access(page)
        page.get_by_role("link", name="Remove the filter").click()
        expect(page.locator("#rows-summary")).to_have_text("1 to 25 of 300 rows, by answer.cost.")
        expect(page.get_by_label("Export")).to_be_visible()  # the panel stays open
        page.go_back()
        expect(page.locator("#rows-summary")).to_have_text("149 rows found among 300. These are 25 of them.")
        with page.expect_download() as download:
            page.get_by_label("Export").select_option("jsonl")
        assert download.value.suggested_filename == "rows.jsonl"
        assert len(Path(download.value.path()).read_bytes().splitlines()) == 149
        page.go_back()
        expect(page.locator("#rows-summary")).to_have_text("1 to 25 of 300 rows, by answer.cost.")
        assert page.locator("[onerror]").count() == 0
    kept = ps.read_json(f"{job}/_reviews/").to_pylist()
    assert [(each["row"], each["thumb"], each["note"]) for each in kept] == [(42, -1, MARKUP)]


def test_a_key_that_is_pressed_before_a_row_is_there_counts(job: Path, page: Page) -> None:
    held: list[Route] = []
    with served(job) as server:
        page.goto(server.url.replace("/#", "/?view=rows&status=failed#"))
        page.route("**/api/rows?*alone=1*", lambda route: held.append(route), times=1)
        page.get_by_role("button", name="Open row 41").click()
        expect(page.locator("#row-title")).to_have_text("Row")
        page.keyboard.press("ArrowRight")
        held[0].continue_()
        expect(page.locator("#row-body")).to_contain_text("row 42 has no answer")


def test_two_runs_and_a_verdict(job: Path, tmp_path: Path, page: Page) -> None:
    write_rows(tmp_path / "other", " better")
    with served(job, tmp_path / "other") as server:
        page.goto(f"{server.url.replace('/#', '/?view=rows&different=1#')}")
        expect(page.locator("#compare-summary")).to_contain_text("of 300 rows differ")
        page.get_by_role("button", name="Open row 1", exact=False).first.click()
        expect(page.locator("#row-body ins")).to_contain_text(["better"])
        page.get_by_role("button", name="Second is better").click()
        expect(page.locator("#said")).to_contain_text("_reviews")
        check_access(page)
    verdicts = [each for each in ps.read_json(f"{job}/_reviews/").to_pylist() if each["verdict"]]
    assert [(each["id"], each["verdict"], each["other"]) for each in verdicts] == [
        (1, "second", str(tmp_path / "other"))
    ]
    compared = ps.compare(str(job), str(tmp_path / "other")).to_pydict()
    assert (compared["rows"], compared["failed"], compared["models"]) == ([NUM_ROWS] * 2, [2, 2], ["", ""])
    assert (compared["agreement"][0], compared["wins"], compared["ties"]) == (1 - 3 / NUM_ROWS, [0, 1], [0, 0])
    assert ps.compare(str(tmp_path / "other"), f"{job}/").to_pydict()["wins"] == [1, 0]  # the same verdicts
    with pytest.raises(InvalidArgumentError, match="by='answer' is no column"):
        ps.compare(str(job), str(tmp_path / "other"), by="answer")


def test_rows_of_a_file_are_read_with_their_types(tmp_path: Path) -> None:
    """DuckDB reads those that it holds exactly; a column of another type has the whole row read by Penstock."""
    values: dict[str, list[Any]] = {
        "id": list(range(500)),
        'a "name"': [f"text {id}" if id % 3 else None for id in range(500)],
        "answer": [{"label": "good", "costs": [id / 7, None], "raw": b"\x00"} if id % 5 else None for id in range(500)],
        "image": [np.full((2, 2, 3), id % 256, np.uint8) if id % 4 else None for id in range(500)],
        "vector": [np.full(3, id, np.float32) for id in range(500)],
    }
    df = ps.from_pydict(values)
    for name, rows in {"plain": df, "timed": df.with_column("at", ps.lit(datetime.timedelta(1)))}.items():
        rows.write_parquet(str(tmp_path / name), mode="overwrite")
        (path,) = map(str, (tmp_path / name).glob("*.parquet"))
        schema = read_files([path]).schema.to_arrow()
        found = parquet_rows(path, [3, 4, 499], schema)
        expected = _scanned_rows(read_files([path]), [3, 4, 499])
        assert (found is None) == (name == "timed")
        assert found is None or found.equals(expected)
        assert expected.column("id").to_pylist() == [3, 4, 499]
    assert parquet_rows(path, [3], schema.append(pa.field("ID", pa.int64()))) is None


def test_every_row_of_many_files_is_found(tmp_path: Path) -> None:
    """Pages, searches and jumps cross the bounds of files."""
    table = pa.table({"id": list(range(1000))})
    ps.from_arrow(table).write_parquet(str(tmp_path / "out"), resume=True, rows_per_file=130)
    board = JobBoard([str(tmp_path / "out")])
    assert ids(board.rows({"first": "120"})) == list(range(120, 145))
    assert ids(board.rows({"where": '[["id", "is", "999"]]'})) == [999]
    assert ids(board.rows({"sort": "id", "desc": "1", "first": "500"})) == list(range(499, 474, -1))
    assert ids(board.rows({"alone": "1", "jump": "777"})) == [777]
