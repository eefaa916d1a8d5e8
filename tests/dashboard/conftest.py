"""A real Chromium, and the dashboard of this process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

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


class Chromium:
    """A browser for the tests of this folder, started by the first one that needs it.

    All pages share one profile and one process, which has compiled the dashboard's scripts; with a profile of its own
    a test took three times as long. A page stores its settings by port, and each test has a port of its own.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._context: BrowserContext | None = None

    def new_page(self) -> Page:
        if self._context is None:
            playwright = self._stack.enter_context(sync_playwright())
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            self._context = browser.new_context(viewport={"width": 1280, "height": 900})
            self._stack.callback(browser.close)
            stays = self._context.new_page()  # or the process ends with the last page of its address
            stays.route("**", lambda route: route.fulfill(body=""))
            stays.goto("http://127.0.0.1/")
        self._context.clear_permissions()
        self._context.clear_cookies()
        return self._context.new_page()

    def close(self) -> None:
        self._stack.close()
        self._context = None


CHROMIUM = Chromium()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Close the browser after the last test of this folder: Playwright runs an event loop on this thread meanwhile, and
    other tests may call ``asyncio.run``.
    """
    yield
    if nextitem is None or nextitem.path.parent != item.path.parent:
        CHROMIUM.close()


@pytest.fixture
def page() -> Iterator[Page]:
    """A page of its own. Errors of its script and refusals of its security policy fail the test."""
    page = CHROMIUM.new_page()
    page.set_default_timeout(60_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    yield page
    page.close()
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
