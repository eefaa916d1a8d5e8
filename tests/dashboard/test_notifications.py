"""A hidden page tells of the end of its query. In a real Chromium."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from penstock.dashboard.server import DashboardServer
from tests.dashboard.test_live import Running

HIDDEN_TAB = """
    Object.defineProperty(document, "hidden", { get: () => true });
    window.seen = [];
    window.Notification = class extends Notification {
        constructor(title, options) { super(title, options); window.seen.push([title, options.body]); }
    };
"""


def test_a_hidden_page_notifies_at_the_end(dashboard: DashboardServer, page: Page) -> None:
    """With the notifications of the browser, which are noted on their way."""
    page.context.grant_permissions(["notifications"])
    page.add_init_script(HIDDEN_TAB)
    with Running() as running:
        page.goto(dashboard.url)
        expect(page.locator("#query-state")).to_have_text("running")
        expect(page.get_by_role("button", name="Notify me")).to_have_count(0)  # it is allowed
        running.release.set()
        expect(page.locator("#query-state")).to_have_text("finished")
    ((title, body),) = page.evaluate("window.seen")
    assert title.endswith("udf halve finished")
    assert body.startswith("1 row failed, ")
