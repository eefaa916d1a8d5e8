"""The page shows a query while it runs, and controls it. Everything here is done in a real Chromium."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect

import penstock as ps
from penstock.ai.client.limits.limiter import LimiterKey, limiter_for
from penstock.dashboard.live import LiveQuery, Order
from penstock.dashboard.server import DashboardServer
from penstock.errors import QueryCancelledError
from penstock.events.events import (
    BundleProduced,
    CallCounts,
    Measures,
    ModelSample,
    QuerySampled,
    QueryStarted,
    StageInfo,
    StageSample,
)
from penstock.testing import ModelServer, faults
from tests.dashboard.test_server import ask
from tests.plain_server import counts, plain_server

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"


class Running:
    """A query on a thread of its own, whose rows from the hundredth on wait for ``release``."""

    def __init__(self, num_rows: int = 1000) -> None:
        self.release = threading.Event()
        self.error: BaseException | None = None
        self._num_rows = num_rows
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release.set()
        self._thread.join()

    def _run(self) -> None:
        @ps.func(on_error="ignore", use_process=False, max_concurrency=2)
        def halve(x: int) -> int:
            if x == 7:
                raise ValueError(MARKUP)
            if x >= 100:
                self.release.wait()
            return x // 2

        try:
            with ps.config(dashboard=True, progress=False):
                ps.range(self._num_rows).with_column(MARKUP, halve(ps.col("id"))).collect()
        except BaseException as exc:
            self.error = exc


def test_a_query_from_start_to_end(dashboard: DashboardServer, page: Page) -> None:
    """Data that looks like markup is shown as text; the token leaves the address bar."""
    dialogs: list[Any] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog), dialog.dismiss()))
    with Running() as running:
        page.goto(dashboard.url)
        expect(page.locator("#query-state")).to_have_text("running")
        assert page.url.endswith("/")
        function = page.locator("#stages tbody tr", has_text="halve")
        expect(function.locator("td").nth(2)).to_have_text("2")  # both workers wait
        expect(page.locator("#plan svg .node")).to_have_count(2)
        expect(page.locator("#errors summary")).to_contain_text(MARKUP)
        running.release.set()
        expect(page.locator("#query-state")).to_have_text("finished")
    expect(function.locator("td").first).to_have_text("1,000")
    expect(function.locator("td").last).to_have_text("1")
    expect(page.locator("#pause")).to_be_hidden()
    page.locator("#errors summary").click()
    expect(page.locator("#errors pre").last).to_contain_text("ValueError")
    assert page.locator("main img, main script").count() == 0
    assert dialogs == []


def test_the_last_rows_of_a_query_that_runs(dashboard: DashboardServer, page: Page) -> None:
    with Running():
        page.goto(dashboard.url)
        page.get_by_role("link", name="Rows").press("Enter")
        open_row = page.get_by_role("button", name="Open row 7")
        page.get_by_label("Status").select_option("failed")
        expect(page.locator("#rows-summary")).to_have_text("1 row found among the last rows, the newest first.")
        expect(page.locator("#rows-table tbody tr").last).to_have_text(f"ValueError: {MARKUP}")
        page.get_by_label("Search").fill("no such text")
        expect(page.locator("#rows-summary")).to_have_text("No such row.")
        page.get_by_label("Search").fill("7")
        check_access(page)
        open_row.press("Enter")
        expect(page.locator("#row-body")).to_contain_text("Traceback")
        check_access(page)
        page.keyboard.press("Escape")
        expect(open_row).to_be_focused()


def test_the_last_rows_have_the_numbers_of_the_input(dashboard: DashboardServer) -> None:
    @ps.func(on_error="ignore")
    def halve(id: int) -> int:
        if id == 107:
            raise ValueError("odd")
        return id // 2

    rows = ps.from_pydict({"id": list(range(100, 120)), "even": [id % 2 == 0 for id in range(100, 120)]})
    with ps.config(dashboard=True, progress=False):
        df = rows.where(~ps.col("even")).with_column("half", halve(ps.col("id"))).collect()
    page = dashboard._board.shown({}).rows({})
    assert [column["name"] for column in page["columns"]] == ["id", "even", "half"]
    assert {(row["row"], row["source"], row["cells"][0]["text"]) for row in page["rows"]} == {
        (number, "the input", str(100 + number)) for number in range(1, 20, 2)
    }
    assert [row["row"] for row in page["rows"] if row["error"]] == df.errors().to_pydict()["row"] == [7]


def test_rows_that_arrive_late_do_not_replace_those_that_a_person_reads(dashboard: DashboardServer, page: Page) -> None:
    """The page asks for the last rows again and again while the query runs; here an answer waits for the person."""
    open_row, delayed = page.get_by_role("button", name="Open row").first, []

    def focus_first(route: Route) -> None:
        delayed.append(route.request)
        open_row.evaluate("button => { button.id = 'read'; button.focus(); }")
        route.continue_(headers={**route.request.headers, "if-none-match": ""})  # so the answer has rows

    with Running():
        page.goto(dashboard.url)
        page.get_by_role("link", name="Rows").click()
        expect(open_row).to_be_visible()
        with page.expect_response(lambda answer: answer.request in delayed) as answer:
            page.route("**/api/rows?*", focus_first, times=1)
        answer.value.finished()
        with page.expect_response("**/api/state*"):  # by then the page has used the answer
            pass
        expect(page.locator("#read")).to_be_focused()


@pytest.mark.parametrize("has_ledger", [True, False])
def test_the_usage_of_a_row(
    has_ledger: bool, dashboard: DashboardServer, page: Page, model_server: ModelServer, tmp_path: Path
) -> None:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    with ps.config(dashboard=True, progress=False, cache_dir=str(tmp_path) if has_ledger else ""):
        ps.from_pydict({"t": ["red"]}).with_column("a", ps.prompt(ps.col("t"), model="gpt-5-mini")).collect()
    page.goto(dashboard.url)
    page.get_by_role("link", name="Rows").click()
    page.get_by_role("button", name="Open row 0").click()
    shown = page.locator("#row-body > :last-child")
    expect(shown).to_contain_text(
        "output tokens" if has_ledger else "The tokens and the cost of this call are not known"
    )


def test_pause_limit_and_resume(dashboard: DashboardServer, page: Page) -> None:
    with Running(100_000) as running:  # more than the two tasks hold that run at the pause
        page.goto(dashboard.url)
        most = page.get_by_label("Most tasks at once of udf halve")
        expect(most).to_have_value("2")
        most.fill("9")
        most.press("Tab")
        expect(most).to_have_value("2")  # there are no more workers
        most.fill("1")
        most.press("Tab")
        expect(page.get_by_role("dialog")).to_contain_text("Let udf halve run at most 1 task at once, in place of 2?")
        page.get_by_role("button", name="Leave it").click()
        expect(most).to_have_value("2")
        most.fill("1")
        most.press("Tab")
        ordered(page, page.get_by_role("button", name="Change it").click)
        expect(page.locator("#said")).to_have_text("At most 1 at once from now on.")
        expect(most).to_have_value("1")
        pause(page)
        expect(page.locator("#said")).to_have_text("The query pauses: calls in flight finish, none starts.")
        expect(page.locator("#query-state")).to_have_text(re.compile("^pausing, [12] tasks? running$"))
        running.release.set()
        expect(page.locator("#query-state")).to_have_text("paused")
        check_access(page)
        ordered(page, page.get_by_role("button", name="Resume").click)
        expect(page.locator("#query-state")).to_have_text("finished")
    state = json.loads(ask(dashboard, "GET", "/api/state")[2])
    assert [stage["limit"] for stage in state["query"]["stages"]] == [None, 1]
    status, _, body = ask(dashboard, "POST", "/api/control", body='{"query": 1, "action": "pause"}')
    assert status == 400
    assert "The query has ended, so nothing was changed." in body.decode()


def test_calls_in_flight_finish_before_a_query_is_paused(dashboard: DashboardServer, page: Page) -> None:
    """The model is so slow that its calls are in flight while the page is looked at."""

    def run() -> None:
        with ps.config(dashboard=True, progress=False), suppress(QueryCancelledError):
            prompts.collect()

    with plain_server(latency=8) as url:
        ps.set_provider("openai", base_url=url, api_key="test")
        df = ps.from_pydict({"t": [f"text {number}" for number in range(100)]})
        prompts = df.with_column("a", ps.prompt(ps.col("t"), model="gpt-5-mini", max_concurrency=7))
        thread = threading.Thread(target=run)
        thread.start()
        page.goto(dashboard.url)
        expect(page.locator("#models tbody td").nth(5)).to_have_text("7")
        expect(page.locator("#stages .calls").nth(1)).to_have_text(re.compile(r"^\d+ of 100 answered, 7 in flight$"))
        pause(page)
        expect(page.locator("#query-state")).to_have_text("pausing, 7 calls in flight")
        expect(page.locator("#query-state")).to_have_text("paused")
        num_requests = counts(url)["requests"]
        assert num_requests < 100
        assert counts(url)["in_flight"] == 0
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        page.get_by_role("button", name="Stop", exact=True).click()
        page.get_by_role("button", name="Stop the query").click()
        expect(page.locator("#query-state")).to_have_text("cancelled")
        thread.join()
        assert counts(url)["requests"] == num_requests


def test_a_failed_call_counts_before_its_task_ends(dashboard: DashboardServer, page: Page) -> None:
    def run() -> None:
        with ps.config(dashboard=True, progress=False), suppress(QueryCancelledError):
            prompts.collect()

    bad = [faults.HttpError(400, "not this one", containing=f"text {number}.") for number in (3, 100)]
    with ModelServer(latency=0.05, faults=[*bad, faults.Hang(containing="text 101.")]) as server:
        ps.set_provider("openai", base_url=server.openai_url, api_key="test")
        df = ps.from_pydict({"t": [f"text {number}." for number in range(128)]})
        prompts = df.with_column("a", ps.prompt(ps.col("t"), model="gpt-5-mini", on_error="null"))
        thread = threading.Thread(target=run)
        thread.start()
        page.goto(dashboard.url)
        expect(page.locator("#errors-title")).to_have_text("Errors 2 rows failed")
        kinds = page.locator("#error-kinds li")
        expect(kinds).to_have_count(2)
        expect(kinds.first).to_contain_text("not this one")
        expect(kinds.last).to_contain_text("other errors, or errors of tasks that still run")
        page.get_by_role("button", name="Stop", exact=True).click()
        page.get_by_role("button", name="Stop the query").click()
        thread.join()
        expect(page.locator("#query-state")).to_have_text("cancelled")
        expect(kinds.last).to_contain_text("other errors, or errors of tasks that were stopped")


def test_the_limit_of_a_stage_that_calls_a_model_is_one_on_requests() -> None:
    class Control:
        def set_paused(self, is_paused: bool) -> None: ...
        def num_under_way(self) -> tuple[int, int]:
            return 0, 0

        def cancel(self) -> None: ...
        def limit_tasks(self, stage: int, max_running: int) -> None: ...

    limiter = limiter_for(LimiterKey("provider", "http://127.0.0.1", "model"))
    query = LiveQuery()
    query.on_control(Control())
    query.on_event(QueryStarted((StageInfo(0, "prompt", model=("provider", "model")),), 0.0))
    query.follow(Order("limit", 0, 3))
    assert limiter.state().limit == 3
    assert query.snapshot()["stages"][0]["limit"] == 3


def test_dollars_and_time_are_projected_as_on_the_terminal() -> None:
    """By the stage that calls the model and by the slowest stage, not by the last one alone."""
    query = LiveQuery()
    samples = tuple(StageSample(stage, 1, 2, 0, 0, 0, None, 1000, True) for stage in (0, 1))
    for event in (
        QueryStarted((StageInfo(0, "prompt", model=("o", "gpt")), StageInfo(1, "slow", inputs=(0,))), 0.0),
        BundleProduced(0, 500, 1, 1.0),
        BundleProduced(1, 100, 1, 1.0),
        QuerySampled(10.0, samples, 0, 0, 0.0, Measures(models=(ModelSample("o", "gpt", 500, 0, 0, 1, 1, 2.0),))),
    ):
        query.on_event(event)
    shown = query.snapshot()
    assert (shown["models"][0]["projected_dollars"], shown["left_s"]) == (4.0, 90.0)


def test_the_headline_counts_answered_calls_not_bundles() -> None:
    query = LiveQuery()
    calls = CallCounts(1955, 17, 37, 3000, True)
    samples = (StageSample(0, 0, 2, 0, 0, 0, None, 3000, True), StageSample(1, 9, 9, 0, 0, 0, None, 3000, True, calls))
    for event in (
        QueryStarted((StageInfo(0, "read"), StageInfo(1, "prompt", inputs=(0,), model=("o", "gpt"))), 0.0),
        BundleProduced(0, 3000, 1, 1.0),
        BundleProduced(1, 64, 1, 1.0),
        QuerySampled(10.0, samples, 0, 0, 0.0),
    ):
        query.on_event(event)
    shown = query.snapshot()
    stage = shown["stages"][shown["calls_stage"]]
    assert stage["calls"] == {"num_answered": 1955, "num_failed": 17, "num_in_flight": 37, "total": 3000}
    assert (stage["num_done"], stage["total"], stage["rate"], shown["num_failed"]) == (1972, 3000, 197.2, 17)


def test_cancel_by_keyboard(dashboard: DashboardServer, page: Page) -> None:
    with Running() as running:
        page.goto(dashboard.url)
        page.get_by_role("button", name="Stop", exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Keep it running")).to_be_focused()
        page.keyboard.press("Tab")
        ordered(page, lambda: page.keyboard.press("Enter"))
        running.release.set()
        expect(page.locator("#query-state")).to_have_text("cancelled")
        expect(page.locator("#plan .node").last).to_have_attribute("data-state", "stopped")
    assert isinstance(running.error, QueryCancelledError)


def ordered(page: Page, act: Callable[[], object]) -> None:
    """Do something that sends an order, and wait until the server has taken it."""
    with page.expect_response("**/api/control") as answer:
        act()
    assert answer.value.ok


def pause(page: Page) -> None:
    """Pause the query, which asks once."""
    page.get_by_role("button", name="Pause", exact=True).click()
    ordered(page, page.get_by_role("button", name="Pause the query").click)


def test_the_page_is_accessible(dashboard: DashboardServer, page: Page) -> None:
    """In both themes and on a phone: no violation of axe's rules, and nothing beyond the edge of the screen."""
    page.emulate_media(color_scheme="dark")
    with Running():
        page.goto(dashboard.url)
        expect(page.locator("#errors summary")).to_be_visible()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        check_access(page)
        page.get_by_role("button", name="Change to the light theme").press("Enter")
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        page.set_viewport_size({"width": 390, "height": 800})
        check_access(page)
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")


def check_access(page: Page) -> None:
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.viewport_size is not None
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def test_a_page_without_its_token_says_so(dashboard: DashboardServer, page: Page) -> None:
    page.goto(dashboard.url.partition("#")[0])
    expect(page.get_by_role("status").first).to_contain_text("Open the whole URL that Penstock printed")


def test_a_million_rows_are_no_more_to_show_than_a_thousand(dashboard: DashboardServer, page: Page) -> None:
    def run(num_rows: int) -> tuple[int, int]:
        with ps.config(dashboard=True, progress=False):
            ps.range(num_rows).map_batches(lambda batch: batch, batch_size=10_000, use_process=False).count_rows()
        expect(page.locator("#stages tbody td").first).to_have_text(f"{num_rows:,}")
        expect(page.locator("#query-state")).to_have_text("finished")
        # One page of rows, at first those of an earlier query; a failed one has a second line.
        assert page.locator("#rows-table tbody tr").count() <= 2 * 25
        num_elements = page.evaluate("document.querySelectorAll('body *:not(#rows-table *)').length")
        return num_elements, len(ask(dashboard, "GET", "/api/state")[2])

    page.goto(dashboard.url)
    num_elements, nbytes = run(1_000)
    more_elements, more_nbytes = run(1_000_000)
    assert more_elements <= num_elements + 10
    assert more_nbytes <= nbytes + 40_000  # at most 200 points of the charts
