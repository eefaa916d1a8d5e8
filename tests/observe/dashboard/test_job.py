"""``penstock dashboard OUT`` shows a job of this or another process, its rows, and those of another run beside them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import penstock as ps
from penstock.cli.dashboard import read_files
from penstock.errors import InvalidArgumentError
from penstock.observe.dashboard.job import JobBoard
from penstock.observe.dashboard.prompts import described_prompts
from penstock.observe.dashboard.server import DashboardServer
from penstock.testing import ModelServer
from tests.observe.dashboard.test_live import check_access

MARKUP = "<img src=x onerror=alert(1)>"


def run_job(out: Path, suffix: str = "", num_rows: int = 60) -> None:
    """Write a job with texts, images and a failed row."""

    @ps.func(on_error="ignore", use_process=False, version="1")
    def answer(text: str, id: int) -> str:
        if id == 41:
            raise ValueError("no answer")
        return f"{text}: answer {id}{suffix if id % 20 == 7 else ''}"

    pixels = [np.full((8, 8, 3), number, np.uint8) for number in range(num_rows)]
    df = ps.from_pydict({"id": list(range(num_rows)), "text": [f"question {MARKUP}"] * num_rows, "image": pixels})
    df = df.with_column("image", ps.col("image").cast(ps.DataType.image("RGB")))
    df.with_column("answer", answer(ps.col("text"), ps.col("id"))).write_parquet(str(out), resume=True)


@contextmanager
def served(*roots: Path) -> Iterator[DashboardServer]:
    server = DashboardServer(JobBoard([str(root) for root in roots], read_files))
    yield server
    server.close()


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("jobs")
    run_job(folder / "one")
    run_job(folder / "two", " (better)")
    return folder / "one", folder / "two"


def test_the_rows_of_a_finished_job(jobs: tuple[Path, Path], page: Page) -> None:
    with served(jobs[0]) as server:
        page.goto(server.url)
        expect(page.locator("#query-state")).to_have_text("finished")
        expect(page.locator(".tile .value").first).to_have_text("60")
        expect(page.locator("#plan .node").last).to_contain_text("write parquet")
        expect(page.locator("#pause")).to_be_hidden()
        page.get_by_role("link", name="Rows").press("Enter")
        lines, summary = page.locator("#rows-table tbody tr"), page.locator("#rows-summary")
        expect(summary).to_have_text("Rows 0 to 24 of 60.")
        expect(lines.first).to_contain_text(f"question {MARKUP}: answer 0")
        assert lines.first.locator("img").evaluate("image => image.naturalWidth") == 8
        page.get_by_role("button", name="Next").click()
        expect(summary).to_have_text("Rows 25 to 49 of 60.")
        page.get_by_role("button", name="Previous").click()
        expect(summary).to_have_text("Rows 0 to 24 of 60.")
        page.get_by_label("Search").fill("ANSWER 5")
        expect(summary).to_have_text("11 rows found among 60.")
        page.get_by_label("Search").fill("")
        page.get_by_label("Failed rows only").check()
        expect(summary).to_have_text("1 row found among 60.")
        expect(lines.last).to_have_text("ValueError: no answer")
        page.get_by_role("button", name="Open row 41").press("Enter")
        expect(page.locator("#row-body > pre").first).to_have_text("ValueError: no answer")
        page.locator("summary", has_text="Traceback").press("Enter")
        expect(page.locator("#row-body details pre").first).to_contain_text("Traceback (most recent call last)")
        expect(page.locator("#row-body")).to_contain_text("answer(col(text), col(id))")
        assert page.locator("[onerror]").count() == 0


def test_the_prompt_of_a_row_is_shown_as_it_was_sent(tmp_path: Path, model_server: ModelServer, page: Page) -> None:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    df = ps.from_pydict({"text": [f"red {MARKUP}"], "picture": [np.zeros((8, 8, 3), np.uint8)], "rule": ["Be brief."]})
    parts = [ps.format("Say {}", ps.col("text").upper()), ps.col("picture"), "In one word."]
    answers = ps.prompt(parts, system_message=ps.col("rule"), model="gpt-5-mini", usage=True)
    df.with_column("answer", answers).write_parquet(str(tmp_path / "out"), resume=True)
    with served(tmp_path / "out") as server:
        page.goto(server.url)
        page.get_by_role("link", name="Rows").click()
        page.get_by_role("button", name="Open row 0").click()
        expect(page.locator(".message")).to_have_count(2)
        shown = page.locator(".message pre").all_text_contents()
        expect(page.locator(".message img")).to_have_count(1)
        expect(page.locator("#row-body")).to_contain_text("output_tokens")
        check_access(page)
    (seen,) = model_server.requests
    sent = [each["text"] for each in seen.body["input"][0]["content"] if each["type"] == "input_text"]
    assert shown == [seen.body["instructions"], *sent] == ["Be brief.", f"Say RED {MARKUP.upper()}", "In one word."]


@ps.func
def shout(text: str) -> str:
    return text.upper()


@pytest.mark.parametrize(
    ("change", "prompt", "is_shown"),
    [
        (lambda df: df.where(ps.col("n") > 0).limit(5), ps.col("t"), True),
        (lambda df: df.with_column("t", ps.lit("another text")), ps.col("t"), False),
        (lambda df: df.select("a"), ps.col("t"), False),
        (lambda df: df.with_column("a", ps.col("a").upper()), ps.col("t"), False),
        (lambda df: df.map_batches(lambda batch: batch), ps.col("t"), False),
        (lambda df: df, shout(ps.col("t")), False),
    ],
)
def test_a_prompt_that_the_rows_of_a_job_cannot_fill_is_not_shown(
    change: Callable[[ps.DataFrame], ps.DataFrame], prompt: ps.Expression, is_shown: bool, model_server: ModelServer
) -> None:
    """The columns that it was made of are gone or have other values, or a function would run again."""
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    df = ps.from_pydict({"t": ["text"], "n": [1]}).with_column("a", ps.prompt(prompt, model="gpt-5-mini"))
    assert bool(described_prompts(change(df)._plan)) == is_shown


def test_two_runs_side_by_side(jobs: tuple[Path, Path], page: Page) -> None:
    with served(*jobs) as server:
        page.goto(server.url)
        page.get_by_role("link", name="Rows").click()
        page.get_by_label("Different rows only").check()
        expect(page.locator("#rows-summary")).to_have_text("3 rows found among 60.")
        expect(page.locator("#rows-table .differs")).to_contain_text(
            ["answer 7 (better)", "27 (better)", "47 (better)"]
        )
        assert page.get_by_label("Match by").input_value() == "id"
        check_access(page)
        page.set_viewport_size({"width": 390, "height": 800})
        page.get_by_role("button", name="Change to the dark theme").click()
        check_access(page)
        page.get_by_role("button", name="Open row 7").click()
        expect(page.locator("#row-body .side > div")).to_have_count(2)


def test_a_job_that_runs_is_followed_and_paused(tmp_path: Path, page: Page) -> None:
    """The page shows the run at once, before a part is committed, and the end. The rows from the hundredth on wait."""
    begun, release = threading.Event(), threading.Event()

    @ps.func(use_process=False, max_concurrency=2, version="1")
    def halve(x: int) -> int:
        if x >= 100:
            begun.set()
            release.wait()
        return x // 2

    def run() -> None:
        with ps.config(checkpoint_interval=3600, progress=False):
            ps.range(400).with_column("half", halve(ps.col("id"))).write_parquet(str(tmp_path / "out"), resume=True)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        begun.wait()
        with served(tmp_path / "out") as server:
            page.goto(server.url)
            expect(page.locator("#query-state")).to_have_text("running")
            expect(page.locator("#stages tbody th", has_text="halve")).to_be_visible()
            page.get_by_role("button", name="Pause").click()
            expect(page.locator("#query-state")).to_have_text("paused")
            release.set()
            page.get_by_role("button", name="Resume").click()
            expect(page.locator("#query-state")).to_have_text("finished")
            expect(page.locator(".tile .value").first).to_have_text("400")
    finally:
        release.set()
        thread.join()


def test_a_folder_without_a_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="There is no job in"):
        JobBoard([str(tmp_path)], read_files)


def test_the_commands_print_the_url_and_end_with_ctrl_c(jobs: tuple[Path, Path], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "dashboard", str(jobs[0])]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Dashboard: http://127.0.0.1:")
        process.send_signal(2)
        assert process.wait() == 0
    script = tmp_path / "script.py"
    script.write_text("import penstock as ps\nps.range(3).collect()\n")
    command = [sys.executable, "-m", "penstock", "run", str(script), "--dashboard"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("Dashboard: http://127.0.0.1:")


def test_a_failed_run_shows_its_error_until_the_next_run(tmp_path: Path) -> None:
    def run(divisor: int) -> None:
        @ps.func(use_process=False, version="1")
        def divide(x: int) -> int:
            return x // divisor

        ps.range(10).with_column("y", divide(ps.col("id"))).write_parquet(str(tmp_path / "out"), resume=True)

    with pytest.raises(ZeroDivisionError):
        run(0)
    shown = JobBoard([str(tmp_path / "out")], read_files).state(None)["query"]
    assert shown["state"] == "failed"
    assert "ZeroDivisionError" in shown["error"]
    run(2)
    shown = JobBoard([str(tmp_path / "out")], read_files).state(None)["query"]
    assert (shown["state"], shown["error"], shown["num_rows"]) == ("finished", "", 10)
