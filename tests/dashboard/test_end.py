"""A page that is open when the process ends shows how the run ended, with its last rows. In a real Chromium."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from penstock.dashboard.job import JobBoard
from penstock.dashboard.process import LiveBoard
from penstock.dashboard.server import DashboardServer
from tests.dashboard.test_cluster import HIDDEN_TAB
from tests.dashboard.test_live import check_access

SCRIPT = """
import sys, time
from pathlib import Path
import penstock as ps
from penstock.dashboard import process

process.MAX_WAIT_S = 60.0  # a busy machine takes its time
folder, is_job = Path(sys.argv[1]), sys.argv[2] == "job"
ps.set_config(dashboard=not is_job, progress=False)

@ps.func(use_process=False, max_concurrency=2, version="1")
def halve(x: int) -> int:
    while x >= 100 and not (folder / "go").exists() and not (folder / "fail").exists():
        time.sleep(0.01)
    if x >= 100 and (folder / "fail").exists():
        raise ValueError("no half of this")
    (folder / "begun").touch()
    return x // 2

df = ps.range(400).with_column("half", halve(ps.col("id")))
if is_job:
    df.write_parquet(str(folder / "out"), resume=True)
else:
    df.collect()
"""


@contextmanager
def running(folder: Path, kind: str) -> Iterator[subprocess.Popen[str]]:
    """Run the script, whose rows from the hundredth on wait for the file ``go`` or ``fail``."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(folder), kind]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(folder: Path, process: subprocess.Popen[str]) -> None:
    (folder / "go").touch()


def fail(folder: Path, process: subprocess.Popen[str]) -> None:
    (folder / "fail").touch()


def interrupt(folder: Path, process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    (folder / "go").touch()


def kill(folder: Path, process: subprocess.Popen[str]) -> None:
    process.kill()


@pytest.mark.parametrize(
    ("end", "state", "error"),
    [
        (finish, "finished", ""),
        (fail, "failed", "no half of this"),
        (interrupt, "cancelled", "Stopped by Ctrl-C."),
        (kill, "process ended", ""),
    ],
)
def test_an_open_page_shows_the_end_of_its_process(
    end: Callable[[Path, subprocess.Popen[str]], None], state: str, error: str, tmp_path: Path, page: Page
) -> None:
    if end is kill:
        page.context.grant_permissions(["notifications"])
        page.add_init_script(HIDDEN_TAB)
    with running(tmp_path, "live") as process:
        assert process.stderr is not None
        page.goto(process.stderr.readline().partition("Dashboard: ")[2].strip())
        expect(page.locator("#query-state")).to_have_text("running")
        end(tmp_path, process)
        process.communicate()
    expect(page.locator("#query-state")).to_have_text(state)
    expect(page.locator("#query-error")).to_contain_text(error)
    expect(page.locator("#notice")).to_contain_text("The process has ended or cannot be reached; this is its state at ")
    if end is kill:
        ((title, _),) = page.evaluate("window.seen")
        assert title.endswith("ended: its process is gone or cannot be reached")
        expect(page.locator("#tiles")).to_contain_text("on average")
        expect(page.locator("#tiles")).not_to_contain_text("Time left")
        expect(page.get_by_label("Most tasks at once of udf halve")).to_have_count(0)
        check_access(page)
    expect(page.get_by_role("button", name="Pause")).to_be_hidden()
    expect(page.locator("#error-kinds a")).to_have_count(0)
    page.get_by_role("link", name="Rows").click()
    expect(page.locator("#rows-summary")).to_contain_text("The process has ended or cannot be reached.")
    if state == "finished":
        expect(page.locator("#rows-summary")).to_contain_text("These are the last rows that this page has.")
        for name in ("Search", "Status", "Sort by"):
            expect(page.get_by_label(name)).to_be_disabled()
        expect(page.locator("#rows-table thead a")).to_have_count(0)
        expect(page.locator("#rows-off")).to_contain_text("the process that answers them has ended.")
        page.locator("#rows-table button").first.click()
        expect(page.locator("#row-body")).to_contain_text("half")
        check_access(page)


@pytest.mark.parametrize(
    ("end", "state", "error"),
    [
        (finish, "finished", ""),
        (fail, "failed", "no half of this"),
        (interrupt, "cancelled", "Stopped by Ctrl-C."),
        (kill, "stopped", "The process of this run was killed"),
    ],
)
def test_the_folder_of_a_job_tells_how_its_run_ended(
    end: Callable[[Path, subprocess.Popen[str]], None], state: str, error: str, tmp_path: Path, page: Page
) -> None:
    """The page of another process follows it, and a page that is opened later shows the same."""
    with running(tmp_path, "job") as process:
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
        server = DashboardServer(JobBoard([str(tmp_path / "out")]))
        page.goto(server.url)
        expect(page.locator("#stages tbody th", has_text="halve")).to_be_visible()
        expect(page.locator("#query-state")).to_have_text("running")
        end(tmp_path, process)
        process.communicate()
    for board in (None, JobBoard([str(tmp_path / "out")])):
        if board is not None:
            server.close()
            server = DashboardServer(board)
            page.goto("about:blank")
            page.goto(server.url)
        expect(page.locator("#query-state")).to_have_text(state)
        expect(page.locator("#query-error")).to_contain_text(error)
        expect(page.locator("#query-time")).not_to_contain_text("left")
        if state == "failed":
            expect(page.locator("#errors")).to_contain_text("no half of this")
        assert (page.get_by_text("No row has failed").count() == 0) == (state == "failed")
    server.close()


def test_the_process_waits_for_no_page_if_none_is_open() -> None:
    server = DashboardServer(LiveBoard())
    try:
        server.wait_for_pages("1", 3600.0)
    finally:
        server.close()
