"""A real Chromium, and the dashboard of this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from penstock.dashboard.process import start_dashboard, stop_dashboard
from penstock.dashboard.server import DashboardServer

expect.set_options(timeout=60_000)  # a busy machine takes its time

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-software-rasterizer",
    "--disable-extensions",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of one module. Playwright runs an event loop on this thread meanwhile, so that other
    tests, which may call ``asyncio.run``, must not run in between.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page in a profile of its own. Errors of its script and refusals of its security policy fail the test."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(60_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    yield page
    page.context.close()
    # The page asks again after the end of its server, which may come in the middle of an answer.
    ended = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE_CHUNKED_ENCODING")
    expected = ("401 (Unauthorized)", *ended)
    assert [each for each in problems if not any(reason in each for reason in expected)] == []


@pytest.fixture(autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs that this machine knows are those of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def dashboard() -> Iterator[DashboardServer]:
    yield start_dashboard()
    stop_dashboard()
