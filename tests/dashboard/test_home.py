"""``penstock dashboard`` without arguments lists the jobs and the running queries of the machine."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import penstock as ps
from penstock.dashboard.home import HomeBoard
from penstock.dashboard.known import known_jobs
from penstock.dashboard.server import DashboardServer
from penstock.errors import InvalidArgumentError
from tests.dashboard.test_job import run_job
from tests.dashboard.test_live import check_access


def test_jobs_and_queries_of_the_machine(tmp_path: Path, page: Page, dashboard: DashboardServer) -> None:
    """A failed job says why, a query of a process leads to its own page, and back leads to the list."""

    @ps.func(use_process=False, version="1")
    def divide(x: int) -> int:
        return x // 0

    with ps.config(progress=False):
        run_job(tmp_path / "good")
        with pytest.raises(ZeroDivisionError):
            ps.range(10).with_column("y", divide(ps.col("id"))).write_parquet(str(tmp_path / "bad"), resume=True)
        with ps.config(dashboard=True):
            ps.range(5).with_column("half", ps.col("id") / 2).collect()
    home = DashboardServer(HomeBoard(None))
    page.goto(home.url)
    jobs = page.locator("#jobs tbody tr")
    expect(jobs).to_have_count(2)
    expect(jobs.first).to_contain_text("ZeroDivisionError")
    expect(page.locator("#queries tbody tr")).to_contain_text(["range(0, 5)"])
    check_access(page)
    page.get_by_label("Find").fill("good")
    expect(jobs).to_have_count(1)
    expect(page.locator("#queries tbody tr")).to_have_count(0)
    page.get_by_label("Find").fill("range(0")
    expect(page.locator("#queries tbody tr")).to_have_count(1)
    page.get_by_label("Find").fill("")
    page.get_by_role("link", name="good").click()
    expect(page.locator("#query-state")).to_have_text("finished")
    expect(page).to_have_title(re.compile("^finished · good"))
    page.reload()
    expect(page.locator("#query-name")).to_have_text("good")
    page.go_back()
    expect(jobs).to_have_count(2)
    page.locator("#queries a").click()
    expect(page.locator("#query-name")).to_contain_text("range(0, 5)")
    home.close()


def test_only_listed_jobs_are_shown(tmp_path: Path) -> None:
    run_job(tmp_path / "seen" / "one", num_rows=42)
    run_job(tmp_path / "other", num_rows=42)
    assert set(known_jobs()) == {str(tmp_path / "seen" / "one"), str(tmp_path / "other")}
    board = HomeBoard(str(tmp_path / "seen"))
    assert [job["root"] for job in board.home()["jobs"]] == [str(tmp_path / "seen" / "one")]
    assert board.state({"job": str(tmp_path / "seen" / "one")})["query"]["num_rows"] == 42
    with pytest.raises(InvalidArgumentError, match="is not listed here"):
        board.shown({"job": str(tmp_path / "other")})


def test_a_long_column_name_keeps_the_page_narrow_and_a_deleted_job_says_so(tmp_path: Path, page: Page) -> None:
    job = tmp_path / "jobs" / "one"
    ps.from_pydict({"n" * 300: [1, 2]}).write_parquet(str(job), resume=True)
    server = DashboardServer(HomeBoard(str(tmp_path / "jobs")))
    page.goto(server.url)
    page.get_by_role("link", name="one").click()
    page.get_by_role("link", name="Rows").click()
    page.locator("summary", has_text="Filter by column").click()
    expect(page.locator("#rows-table tbody tr")).to_have_count(2)
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") == width
    page.goto("about:blank")
    visitor = page.context.browser.new_page()  # its console says "400 (Bad Request)"
    visitor.goto(server.url)
    visitor.get_by_role("link", name="one").click()
    expect(visitor.locator("#query-state")).to_have_text("finished")
    shutil.rmtree(job)
    expect(visitor.locator("#notice")).to_have_text(f"The job in '{job}' is gone: its folder was deleted or moved.")
    visitor.close()
    server.close()
