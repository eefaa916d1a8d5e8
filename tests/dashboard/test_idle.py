"""An open page costs little: it asks, but gets, draws and animates nothing while nothing changes."""

from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

import penstock as ps
from penstock.dashboard.home import HomeBoard
from penstock.dashboard.live import LiveQuery, news_of
from penstock.dashboard.server import DashboardServer
from penstock.events.events import QuerySampled, QueryStarted, RowError, RowsFailed, StageInfo, StageSample
from tests.dashboard.test_job import run_job
from tests.dashboard.test_live import Running

WATCH = """() => {
    window.changes = [];
    const options = { subtree: true, childList: true, characterData: true, attributes: true };
    const note = (found) => window.changes.push(...found.map((each) => each.target.data ?? each.target.outerHTML));
    new MutationObserver(note).observe(document, options);
}"""


WATCH_NEWS = """(still) => {
    window.needless = [];
    const isNeedless = ({ type, target, oldValue }) => type === "characterData" && oldValue === target.data;
    const isIn = ({ target }, places) => (target.parentElement ?? target).closest(places);
    const note = (found) => {
        const isBad = (each) => (isNeedless(each) && !isIn(each, ".chart")) || (still && isIn(each, still));
        window.needless.push(...found.filter(isBad).map((each) => each.target.data ?? each.target.outerHTML));
    };
    const options = { subtree: true, childList: true, characterDataOldValue: true, attributes: true };
    new MutationObserver(note).observe(document, options);
}"""


def check_idle(page: Page, path: str) -> None:
    """Three polls bring no data, and nothing of the page changes meanwhile."""
    with page.expect_response(lambda answer: path in answer.url and answer.status == 304):
        pass
    page.evaluate(WATCH)
    statuses = []
    for _ in range(3):
        with page.expect_response(lambda answer: path in answer.url) as answer:
            pass
        statuses.append(answer.value.status)
    assert statuses == [304] * 3
    assert page.evaluate("window.changes") == []
    assert page.evaluate("document.getAnimations().length") == 0


def test_a_page_without_news_draws_nothing(tmp_path: Path, page: Page) -> None:
    run_job(tmp_path / "jobs" / "one")
    page.clock.set_fixed_time(datetime.now())  # the ages of jobs are text too
    with contextlib.closing(DashboardServer(HomeBoard(str(tmp_path / "jobs")))) as server:
        page.goto(server.url)
        expect(page.locator("#jobs tbody tr")).to_have_count(1)
        check_idle(page, "/api/home")
        page.get_by_role("link", name="one").click()
        expect(page.locator("#query-state")).to_have_text("finished")
        check_idle(page, "/api/state")
        page.get_by_role("link", name="Rows").click()
        expect(page.locator("#rows-table tbody tr").first).to_be_visible()
        check_idle(page, "/api/state")


def test_a_page_follows_the_query_that_starts_after_a_pause(dashboard: DashboardServer, page: Page) -> None:
    with ps.config(dashboard=True, progress=False):
        ps.range(7).collect()
        page.goto(dashboard.url)
        expect(page.locator("#stages tbody td").first).to_have_text("7")
        check_idle(page, "/api/state")
        ps.range(9).collect()
    expect(page.locator("#stages tbody td").first).to_have_text("9")


def test_only_news_is_written_into_the_page(dashboard: DashboardServer, page: Page) -> None:
    """While the time of a query goes on, no text is written again, and no part of the rows is touched."""
    with Running():
        page.goto(dashboard.url)
        expect(page.locator("#query-state")).to_have_text("running")
        for view, table, still in (
            ("Run", "#stages", ""),
            ("Rows", "#rows-table", "main > section > :not(.headline:first-child)"),
        ):
            page.get_by_role("link", name=view, exact=True).click()
            expect(page.locator(f"{table} tbody tr").first).to_be_visible()
            page.evaluate(WATCH_NEWS, still)
            for _ in range(3):
                shown = page.locator("#query-time").inner_text()
                expect(page.locator("#query-time")).not_to_have_text(shown)
            assert page.evaluate("window.needless") == []


def test_charts_get_new_points_now_and_then() -> None:
    """Those that a page has are not sent again; of the errors it gets the last ones, unless it asks for all."""
    query = LiveQuery()
    errors = tuple(RowError("f", "", "ValueError", str(number), "") for number in range(20))

    def sampled(time_s: float) -> dict[str, Any]:
        query.on_event(QuerySampled(time_s, (StageSample(0, 0, 1, 0, 0, 0, None, 9, True),), 0, 0, 0.0))
        return query.snapshot()

    query.on_event(QueryStarted((StageInfo(0, "f"),), 0.0))
    query.on_event(RowsFailed(0, errors))
    first, soon, later = sampled(100.0), sampled(109.0), sampled(111.0)
    assert (first["history"]["times"][-1], soon["history"]["times"][-1], later["history"]["times"][-1]) == (
        100,
        100,
        111,
    )
    assert news_of(soon, {"points": "100"})["history"] is None
    assert news_of(later, {"points": "100"})["history"]["times"] == [100, 109, 111]
    assert [error["message"] for error in news_of(later, {})["errors"]] == ["19", "18", "17", "16"]
    assert len(news_of(later, {"errors": "all"})["errors"]) == 20
